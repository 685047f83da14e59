package loki

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// checkSnappy compresses src twice, since the second time the table is not empty,
// into memory of just the size that is promised to be enough, between guards.
func checkSnappy(t *testing.T, e *snappy, src []byte) []byte {
	t.Helper()
	const guard = 64
	bound := snappyBound(len(src))
	var out []byte
	for range 2 {
		mem := bytes.Repeat([]byte{0xa5}, bound+2*guard)
		out = e.encode(mem[guard:guard:guard+bound], src)
		if &out[0] != &mem[guard] {
			t.Fatalf("%d bytes do not fit into %d", len(src), bound)
		}
		for i, c := range mem {
			if (i < guard || i >= guard+bound) && c != 0xa5 {
				t.Fatalf("wrote at %d, outside of %d bytes", i-guard, bound)
			}
		}
		got, err := s2.Decode(nil, out)
		if err != nil || !bytes.Equal(got, src) {
			t.Fatalf("%d bytes do not come back: %v", len(src), err)
		}
	}
	return out
}

func TestSnappy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	letters := make([]byte, 100_000)
	for i := range letters {
		letters[i] = "ab"[rng.IntN(2)]
	}
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, `{"Message":"User %d performed purchase","UserId":%d,"id":"%x"}`, i, i, rng.Uint64())
	}
	far := append(append(append([]byte{}, noise[:70_000]...), noise[:300]...), noise[69_000:70_000]...) // matches out of and in reach
	e := new(snappy)
	for name, src := range map[string][]byte{
		"noise": noise, "letters": letters, "lines": []byte(lines.String()), "zeros": make([]byte, 300_000), "far": far,
		"lengths of literals": append(append(noise[:60:60], noise[:61]...), append(noise[:256:256], noise[100:400]...)...),
	} {
		out := checkSnappy(t, e, src)
		t.Logf("%s: %d to %d bytes", name, len(src), len(out))
	}
	// What lies in front of src in memory, and was compressed before, is out of reach.
	mem := bytes.Repeat([]byte("some line or other\n"), 2000)
	for _, at := range []int{0, len(mem) / 2} {
		src := mem[at : at+len(mem)/2]
		if got, err := s2.Decode(nil, e.encode(nil, src)); err != nil || !bytes.Equal(got, src) {
			t.Errorf("from %d on: %v", at, err)
		}
	}
	for n := range 300 {
		checkSnappy(t, e, noise[:n])
		checkSnappy(t, e, letters[:n])
		checkSnappy(t, e, make([]byte, n))
	}
	if a, b := len(e.encode(nil, []byte(lines.String()))), len(s2.EncodeSnappy(nil, []byte(lines.String()))); a > b+b/5 {
		t.Errorf("lines: %d bytes, s2 makes %d of them", a, b)
	}
}

// TestSnappySpans: spans come back as one, within the memory that is promised to be
// enough.
func TestSnappySpans(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	e := new(snappy)
	for range 300 {
		var spans [][]byte
		var whole []byte
		small := rng.IntN(2) == 0 // of noise
		n := 20
		if small {
			n = 300
		}
		for range rng.IntN(n) {
			span := bytes.Repeat([]byte("entry of some length "), 400)[:rng.IntN(90)*rng.IntN(90)]
			if small {
				span = span[:min(len(span), rng.IntN(4))]
			}
			for i := range span {
				if small || rng.IntN(3) == 0 {
					span[i] = byte(rng.Uint32())
				}
			}
			spans = append(spans, span)
			whole = append(whole, span...)
		}
		// The memory is just as large as is promised to be enough, between guards.
		bound := snappySpansBound(len(whole), len(spans))
		mem := bytes.Repeat([]byte{0xa5}, bound+128)
		out := e.encodeSpans(mem[64:64:64+bound], spans, len(whole))
		if got, err := s2.Decode(nil, out); err != nil || !bytes.Equal(got, whole) || &out[0] != &mem[64] {
			t.Fatalf("%d spans of %d bytes: %v", len(spans), len(whole), err)
		}
		if !bytes.Equal(mem[:64], mem[64+bound:]) || bytes.Count(mem[:64], []byte{0xa5}) != 64 {
			t.Fatalf("%d spans of %d bytes: wrote outside", len(spans), len(whole))
		}
	}
}

// TestSnappyWraps: positions are counted on from call to call and begin again
// before they overflow.
func TestSnappyWraps(t *testing.T) {
	src := []byte(strings.Repeat("some line or other 123\n", 4000))
	e := &snappy{base: math.MaxUint32 - 3*uint32(len(src))}
	for i := range e.table {
		e.table[i] = e.base - uint32(i) // what an earlier call may have left
	}
	for range 5 {
		before := e.base
		checkSnappy(t, e, src)
		if e.base < before {
			return
		}
	}
	t.Error("it never began again")
}

func TestSnappyAllocatesNothing(t *testing.T) {
	src := []byte(strings.Repeat("some line or other 123\n", 4000))
	dst := make([]byte, snappyBound(len(src)))
	e := new(snappy)
	if n := testing.AllocsPerRun(10, func() { e.encode(dst, src) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzSnappy(f *testing.F) {
	f.Add([]byte(""), uint16(0))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint16(3))
	f.Add([]byte(`{"Message":"hi","n":1}{"Message":"hi","n":2}`), uint16(2000))
	e := new(snappy)
	f.Fuzz(func(t *testing.T, src []byte, times uint16) {
		checkSnappy(t, e, src)
		if n := len(src); n > 0 && n < 1<<12 {
			checkSnappy(t, e, bytes.Repeat(src, 1+int(times)%(1<<17/n)))
		}
	})
}

func BenchmarkSnappy(b *testing.B) {
	var lines []byte
	for i := 0; len(lines) < 1<<20; i++ {
		lines = fmt.Appendf(lines, `{"Message":"User %d performed purchase on resource res-%d","UserId":%d,"Action":"purchase","Duration":%d.5}`, i, i*7, i, i%100)
	}
	dst := make([]byte, snappyBound(len(lines)))
	e := new(snappy)
	b.Run("own", func(b *testing.B) {
		b.SetBytes(int64(len(lines)))
		for b.Loop() {
			e.encode(dst, lines)
		}
	})
	b.Run("s2", func(b *testing.B) {
		b.SetBytes(int64(len(lines)))
		for b.Loop() {
			s2.EncodeSnappy(dst, lines)
		}
	})
}
