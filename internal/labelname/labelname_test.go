package labelname

import (
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

func TestOf(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "a.b-c": "a_b_c", "1a": "_1a", "": "_", "__name__": "_name__", "é": "_", "a:b": "a_b", "_x": "_x",
		"..x": "_x", "_": "_", "__": "_", "1": "_1", "_1": "_1", "é1": "_1",
	} {
		if got := Of(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("a.b")
	f.Add("__1")
	f.Add("")
	f.Fuzz(func(t *testing.T, in string) {
		got := Of(in)
		for i := range len(got) {
			if !allowed(got[i], i == 0) {
				t.Fatalf("%q: %q", in, got)
			}
		}
		if got == "" || strings.HasPrefix(got, "__") || Of(got) != got {
			t.Fatalf("%q: %q", in, got)
		}
		if tail := Tail([]byte("xx"+in), 2); string(tail) != "xx"+got {
			t.Fatalf("%q: %q and %q", in, got, tail)
		}
	})
}

// Of and Tail return the same names. Of returns a valid name unchanged, and Tail changes the name
// in place.
func TestTail(t *testing.T) {
	chars := []string{"a", "_", "9", ".", "é", "\xff", "🙂", "Z", " "}
	rng := testkit.Rand(testkit.Seed(t))
	for range 20_000 {
		name := ""
		for range rng.IntN(6) {
			name += chars[rng.IntN(len(chars))]
		}
		if got := string(Tail([]byte("keep"+name), 4)); got != "keep"+Of(name) {
			t.Fatalf("%q: got %q, want %q", name, got, Of(name))
		}
	}
}
