package jsontext

import (
	"bytes"
	"testing"
)

// copyASCII and its portable variant stop at the first byte that must not be copied unchecked, at
// every position and length. They do not write beyond dst.
func TestCopyASCII(t *testing.T) {
	for name, impl := range map[string]func(dst, src *byte, n int) int{"copyASCII": copyASCII, "copyASCIIWords": copyASCIIWords} {
		dst, src := make([]byte, 400), make([]byte, 400)
		check := func(n, want int) {
			t.Helper()
			for i := range dst {
				dst[i] = '#'
			}
			if got := impl(&dst[1], &src[0], n); got != want {
				t.Fatalf("%s copied %d of %d bytes, want %d", name, got, n, want)
			}
			if !bytes.Equal(dst[1:1+want], src[:want]) || dst[0] != '#' || dst[1+n] != '#' {
				t.Fatalf("%s of %d bytes: %q", name, n, dst[:n+2])
			}
		}
		for i := range src {
			src[i] = byte(0x20 + i%0x5f)
			if src[i] == '"' || src[i] == '\\' {
				src[i] = 'a'
			}
		}
		for n := 16; n < 300; n++ {
			check(n, n)
		}
		for c := range 256 {
			for _, n := range []int{16, 65, 130} {
				for at := range n {
					old := src[at]
					src[at] = byte(c)
					if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
						check(n, at)
					} else {
						check(n, n)
					}
					src[at] = old
				}
			}
		}
	}
}
