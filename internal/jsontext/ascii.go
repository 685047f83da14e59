package jsontext

import (
	"math/bits"
	"strings"
	"unsafe"
)

// copyASCIIWords copies a prefix of src to dst and returns its length. The prefix ends before the
// first byte that is a control character, '"', '\\' or not ASCII. n is the length of src and dst
// and must be at least 8.
func copyASCIIWords(dst, src *byte, n int) int {
	s := unsafe.String(src, n)
	k := spanASCII(s)
	copy(unsafe.Slice(dst, n), s[:k])
	return k
}

// spanASCII returns the length of the prefix of s that ends before the first control character,
// '"', '\\' or non-ASCII byte. s has at least eight bytes.
func spanASCII(s string) int {
	i := 0
	if len(s) >= 256 {
		var end int
		if i, end = spanLong(s); end < i {
			return end
		}
	}
	for ; len(s)-i >= 32; i += 32 {
		p := s[i : i+32]
		w0, w1, w2, w3 := load64(p), load64(p[8:]), load64(p[16:]), load64(p[24:])
		if (unsafeBits(w0)|unsafeBits(w1)|unsafeBits(w2)|unsafeBits(w3))&highs != 0 {
			break
		}
	}
	for ; len(s)-i >= 8; i += 8 {
		if m := unsafeASCII(load64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	// The last eight bytes overlap bytes that are already checked.
	i = len(s) - 8
	if m := unsafeASCII(load64(s[i:])); m != 0 {
		return i + bits.TrailingZeros64(m)>>3
	}
	return len(s)
}

// spanLong is like spanASCII, for blocks of 64 bytes. blocks is the length in bytes of the leading
// blocks that contain only ASCII and no control characters. end is the index of the first '"' or
// '\\' in them, or blocks if there is none. The loop does not look for these two characters,
// because package strings finds them faster, with vector instructions.
func spanLong(s string) (blocks, end int) {
	i := 0
	for ; len(s)-i >= 64; i += 64 {
		p := s[i : i+64]
		w0, w1, w2, w3 := load64(p), load64(p[8:]), load64(p[16:]), load64(p[24:])
		w4, w5, w6, w7 := load64(p[32:]), load64(p[40:]), load64(p[48:]), load64(p[56:])
		bad := (w0 - 0x20*ones | w0) | (w1 - 0x20*ones | w1) | (w2 - 0x20*ones | w2) | (w3 - 0x20*ones | w3) |
			(w4 - 0x20*ones | w4) | (w5 - 0x20*ones | w5) | (w6 - 0x20*ones | w6) | (w7 - 0x20*ones | w7)
		if bad&highs != 0 {
			break
		}
	}
	end = i
	if k := strings.IndexByte(s[:end], '"'); k >= 0 {
		end = k
	}
	if k := strings.IndexByte(s[:end], '\\'); k >= 0 {
		end = k
	}
	return i, end
}
