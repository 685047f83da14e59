package jsontext

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// EscapeTail escapes dst[start:] like AppendEscaped, for all positions of the escapes and all
// capacities.
func TestEscapeTailEqualsEscape(t *testing.T) {
	parts := []string{`"`, `\\`, "a", "abcdefghijklmnop", " ", "\u00e9", "\u2028", "\n", "\x00", "\u20ac", "\U0001f600"}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		var sb strings.Builder
		kinds := []int{2, 4, 6, len(parts)}[i%4] // with or without text that needs the slow path
		for range rng.IntN(12) {
			sb.WriteString(strings.Repeat(parts[rng.IntN(kinds)], 1+rng.IntN(9)))
		}
		head := strings.Repeat("h", rng.IntN(4))
		dst := append(make([]byte, 0, rng.IntN(200)), head+sb.String()...)
		want := string(AppendEscaped([]byte(head), sb.String()))
		if got := string(EscapeTail(dst, len(head))); got != want {
			t.Fatalf("%q: got %q, want %q", sb.String(), got, want)
		}
	}
}

func BenchmarkEscapeTail(b *testing.B) {
	line := `"Exception":{"Type":"*main.thrown","Message":"failed","StackTrace":"` + strings.Repeat(`example.com/shop/internal/orders.(*Store).Place /src/shop/internal/orders/store.go:117\n`, 34) + `"}`
	dst := make([]byte, 0, 16<<10)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		dst = EscapeTail(append(dst[:0], line...), 0)
	}
}
