package jsontext

import (
	"bytes"
	"testing"
)

// copyASCIIWords and copyASCIIVectors stop at the first control character, '"', '\\' or non-ASCII
// byte, at every position and length. They do not write beyond dst.
func TestCopyASCII(t *testing.T) {
	variants := map[string]func(dst, src *byte, n int) int{"words": copyASCIIWords}
	if haveVectors {
		variants["vectors"] = copyASCIIVectors
	}
	stops := func(c byte) bool { return c < 0x20 || c >= 0x80 || c == '"' || c == '\\' }
	dst, src := make([]byte, 600), make([]byte, 600)
	check := func(n, want int) {
		t.Helper()
		for name, impl := range variants {
			for i := range n + 2 {
				dst[i] = '#'
			}
			if got := impl(&dst[1], &src[0], n); got != want {
				t.Fatalf("%s copied %d of %d bytes, want %d: %q", name, got, n, want, src[:n])
			}
			if !bytes.Equal(dst[1:1+want], src[:want]) || dst[0] != '#' || dst[1+n] != '#' {
				t.Fatalf("%s of %d bytes: %q", name, n, dst[:n+2])
			}
		}
	}
	for i := range src {
		if src[i] = byte(0x20 + i%0x5f); stops(src[i]) {
			src[i] = 'a'
		}
	}
	for n := 32; n < 500; n++ {
		check(n, n)
	}
	for c := range 256 {
		for _, n := range []int{32, 65, 130, 290} {
			for at := range n {
				old := src[at]
				src[at] = byte(c)
				if stops(byte(c)) {
					check(n, at)
				} else {
					check(n, n)
				}
				src[at] = old
			}
		}
	}
}

// copyASCIIVectors copies the same prefix of any text as copyASCIIWords.
func FuzzCopyASCII(f *testing.F) {
	f.Add(bytes.Repeat([]byte("text "), 100))
	f.Add([]byte("a line\nand \x80, which is not valid"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := len(text)
		if !haveVectors || n < 32 {
			t.Skip()
		}
		words, vectors := make([]byte, n), make([]byte, n)
		k := copyASCIIWords(&words[0], &text[0], n)
		if got := copyASCIIVectors(&vectors[0], &text[0], n); got != k || !bytes.Equal(vectors[:k], words[:k]) {
			t.Errorf("%q: %d bytes %q, want %d", text, got, vectors[:k], k)
		}
	})
}
