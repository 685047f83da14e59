// Package jsontext appends strings, keys and numbers in JSON format, optionally nested in a JSON
// string, and in the formats of logfmt and the console.
package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// JSON strings are checked and copied eight bytes at a time. The eight bytes are loaded as a
// little-endian number, so the first byte is the lowest. In a mask, bit 7 of a byte means that the
// byte must be escaped or examined. Only the lowest such bit is reliable, because a subtraction may
// borrow from higher bytes.

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// unsafeASCII marks the bytes of w that cannot be copied without a further check: control
// characters, '"', '\\' and non-ASCII bytes.
func unsafeASCII(w uint64) uint64 { return unsafeBits(w) & highs }

// Special marks the bytes of w that end a run of plain text in a JSON string: control characters,
// '"' and '\\'. Only the lowest mark is exact.
func Special(w uint64) uint64 {
	return ((w ^ 0x02*ones - 0x21*ones) | (w ^ 0x5c*ones - ones)) &^ w & highs
}

// unsafeBits is like unsafeASCII, but only bit 7 of each byte is defined.
func unsafeBits(w uint64) uint64 {
	// Flipping bit 1 exchanges '"' and the space, and maps control characters to control
	// characters. Therefore one comparison finds both '"' and control characters.
	return (w ^ 0x02*ones - 0x21*ones) | (w ^ 0x5c*ones - ones) | w
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// loadShort loads fewer than eight bytes. It fills the remaining bytes with spaces, which need no
// escape.
func loadShort(s string) uint64 {
	n := len(s)
	pad := uint64(0x20*ones) << (8 * n & 63)
	if n >= 4 {
		return load32(s) | load32(s[n-4:])<<(8*(n-4)&63) | pad
	}
	if n > 0 {
		return uint64(s[0]) | uint64(s[n>>1])<<(8*(n>>1)&63) | uint64(s[n-1])<<(8*(n-1)&63) | pad
	}
	return pad
}

// slack is the capacity needed after the end of a string that is copied eight bytes at a time.
const slack = 16

// short is the maximum length of strings copied without a loop. It covers nearly all keys
// and most values.
const short = 32

// copyShort copies s, which has up to short bytes, to b. It returns the bitwise OR of unsafeASCII
// over all groups of eight bytes. The groups may overlap; bytes of b after the end of s are
// overwritten.
func copyShort(b *[short]byte, s string) uint64 {
	n := len(s)
	if n > 16 {
		w0, w1, w2, w3 := load64(s), load64(s[8:]), load64(s[n-16:]), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[:], w0)
		binary.LittleEndian.PutUint64(b[8:], w1)
		binary.LittleEndian.PutUint64(b[n-16:], w2)
		binary.LittleEndian.PutUint64(b[n-8:], w3)
		return (unsafeBits(w0) | unsafeBits(w1) | unsafeBits(w2) | unsafeBits(w3)) & highs
	}
	if n >= 8 {
		w0, w1 := load64(s), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[:], w0)
		binary.LittleEndian.PutUint64(b[n-8:], w1)
		return (unsafeBits(w0) | unsafeBits(w1)) & highs
	}
	if n == 0 {
		return 0
	}
	w := uint64(0x20*ones) << (8 * n & 63)
	if n >= 4 {
		w |= load32(s) | load32(s[n-4:])<<(8*(n-4)&63)
	} else {
		w |= uint64(s[0]) | uint64(s[n>>1])<<(8*(n>>1)&63) | uint64(s[n-1])<<(8*(n-1)&63)
	}
	binary.LittleEndian.PutUint64(b[:], w)
	return unsafeASCII(w)
}

// AppendEscaped appends s as the inside of a JSON string. Like slog, it escapes the characters that
// RFC 8259 requires to be escaped, replaces each invalid byte by U+FFFD, and escapes U+2028 and
// U+2029, which some parsers treat as line breaks.
func AppendEscaped(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n <= short {
		dst = Spare(dst, short)
		if copyShort((*[short]byte)(dst[j:j+short]), s) == 0 {
			return dst[:j+n]
		}
		return escapeRest(dst, s, 0)
	}
	dst, k := appendASCII(dst, s)
	if k == n {
		return dst
	}
	return escapeRest(dst, s, k)
}

// appendASCII appends the prefix of s that needs no escape and is ASCII, and returns its length. s
// must have more than short bytes.
func appendASCII(dst []byte, s string) ([]byte, int) {
	n, j := len(s), len(dst)
	dst = Spare(dst, n)
	to, from := unsafe.SliceData(dst[j:j+n]), unsafe.StringData(s)
	var k int
	if haveVectors {
		k = copyASCIIVectors(to, from, n)
	} else {
		k = copyASCIIWords(to, from, n)
	}
	return dst[:j+k], k
}

// An escape is the replacement of one byte: the n lowest bytes of text.
type escape struct {
	text uint64
	n    uint8
}

// escapes has an entry for each ASCII byte that must be escaped.
var escapes = func() (t [128]escape) {
	set := func(c byte, text string) { t[c] = escape{loadShort(text), uint8(len(text))} }
	const hex = "0123456789abcdef"
	for c := range byte(0x20) {
		set(c, `\u00`+hex[c>>4:c>>4+1]+hex[c&15:c&15+1])
	}
	set('\n', `\n`)
	set('\r', `\r`)
	set('\t', `\t`)
	set('"', `\"`)
	set('\\', `\\`)
	return t
}()

// escapeRest continues AppendEscaped at byte i of s.
func escapeRest(dst []byte, s string, i int) []byte {
	j := len(dst)
	for {
		// First copy the text that needs no escape.
		if cap(dst)-j < len(s)-i+slack {
			dst = grow(dst[:j], len(s)-i+slack)
		}
		b := dst[:cap(dst)]
		for {
			r := len(s) - i
			var w uint64
			if r >= 8 {
				w = load64(s[i:])
			} else {
				w = loadShort(s[i:])
			}
			binary.LittleEndian.PutUint64(b[j:], w)
			if m := unsafeASCII(w); m != 0 {
				k := bits.TrailingZeros64(m) >> 3
				i, j = i+k, j+k
				break
			}
			if r <= 8 {
				return dst[:j+r]
			}
			i, j = i+8, j+8
		}
		// The next byte or character is escaped.
		if c := s[i]; c < 0x80 {
			e := &escapes[c]
			binary.LittleEndian.PutUint64(b[j:], e.text)
			j += int(e.n)
			i++
		} else if end := spanUTF8(s, i); end > i {
			j += copy(b[j:], s[i:end])
			i = end
		} else {
			esc, size := escapeRune(s, i)
			j += copy(b[j:], esc)
			i += size
		}
	}
}

// escapeRune returns the replacement of the bytes at s[i], where spanUTF8 stopped at a
// non-ASCII byte, and the number of bytes replaced.
func escapeRune(s string, i int) (esc string, size int) {
	if i+2 < len(s) && s[i] == 0xe2 && s[i+1] == 0x80 {
		switch s[i+2] {
		case 0xa8:
			return `\u2028`, 3
		case 0xa9:
			return `\u2029`, 3
		}
	}
	return "\ufffd", 1
}

// The states of spanUTF8. For each byte, utf8Steps has a word that contains the successor of each
// state. The value of a state is the offset in bits of its successor in the word, so a step is a
// shift. The state fault is its own successor. The last state, afterE280, has only four bits, which
// is sufficient for its successors fault, atChar and tail1.
const (
	fault  = 6 * iota // invalid UTF-8, or must be escaped
	atChar            // between characters
	tail1             // one continuation byte must follow
	tail2
	tail3
	afterE0 // a next byte below a0 is an overlong encoding
	afterED // a next byte from a0 is a surrogate
	afterF0 // a next byte below 90 is an overlong encoding
	afterF4 // a next byte from 90 is beyond U+10FFFF
	afterE2
	afterE280 // U+2028 and U+2029 must be escaped
)

// utf8Steps has a word for each byte. The word contains the successor of each state.
var utf8Steps = func() (t [256]uint64) {
	for b := range t {
		step := func(from, to uint64) { t[b] |= to << from }
		switch {
		case b < 0x80:
			if escapes[b].n == 0 {
				step(atChar, atChar)
			}
		case b < 0xc0:
			step(tail1, atChar)
			step(tail2, tail1)
			step(tail3, tail2)
			if b < 0xa0 {
				step(afterED, tail1)
			} else {
				step(afterE0, tail1)
			}
			if b < 0x90 {
				step(afterF4, tail2)
			} else {
				step(afterF0, tail2)
			}
			if b == 0x80 {
				step(afterE2, afterE280)
			} else {
				step(afterE2, tail1)
			}
			if b&^1 != 0xa8 {
				step(afterE280, atChar)
			}
		case b < 0xc2 || b > 0xf4:
		case b < 0xe0:
			step(atChar, tail1)
		case b == 0xe0:
			step(atChar, afterE0)
		case b == 0xe2:
			step(atChar, afterE2)
		case b == 0xed:
			step(atChar, afterED)
		case b < 0xf0:
			step(atChar, tail2)
		case b == 0xf0:
			step(atChar, afterF0)
		case b == 0xf4:
			step(atChar, afterF4)
		default:
			step(atChar, tail3)
		}
	}
	return t
}()

// spanUTF8 returns the end of the longest part of s[i:] that can be copied unchanged: valid UTF-8
// without characters that must be escaped. No branch depends on a byte, so its time depends only on
// the length of the text.
func spanUTF8(s string, i int) int {
	state := uint64(atChar)
	if len(s)-i >= 128 {
		i, state = spanHalves(s, i)
	}
	for len(s)-i >= 16 {
		p, before := s[i:i+16], state
		state = utf8Steps[p[0]] >> (state & 63)
		state = utf8Steps[p[1]] >> (state & 63)
		state = utf8Steps[p[2]] >> (state & 63)
		state = utf8Steps[p[3]] >> (state & 63)
		state = utf8Steps[p[4]] >> (state & 63)
		state = utf8Steps[p[5]] >> (state & 63)
		state = utf8Steps[p[6]] >> (state & 63)
		state = utf8Steps[p[7]] >> (state & 63)
		state = utf8Steps[p[8]] >> (state & 63)
		state = utf8Steps[p[9]] >> (state & 63)
		state = utf8Steps[p[10]] >> (state & 63)
		state = utf8Steps[p[11]] >> (state & 63)
		state = utf8Steps[p[12]] >> (state & 63)
		state = utf8Steps[p[13]] >> (state & 63)
		state = utf8Steps[p[14]] >> (state & 63)
		state = utf8Steps[p[15]] >> (state & 63)
		if state&63 == fault {
			state = before
			break
		}
		i += 16
	}
	end := i // after the last complete character
	if state&63 != atChar {
		for end--; s[end] < 0xc0; end-- { // go back to the first byte of the incomplete character
		}
	}
	for ; i < len(s); i++ {
		switch state = utf8Steps[s[i]] >> (state & 63); state & 63 {
		case fault:
			return end
		case atChar:
			end = i + 1
		}
	}
	return end
}

// spanHalves is the first part of spanUTF8. It checks both halves of s[i:] in the same loop, so
// that the CPU processes them in parallel. It returns the end of the accepted text, which begins at
// i, and the state there.
func spanHalves(s string, i int) (end int, state uint64) {
	k := i + (len(s)-i)/2
	for k > i && s[k]&0xc0 == 0x80 {
		k--
	}
	mid := k
	lo, hi := uint64(atChar), uint64(atChar)
	for mid-i >= 8 {
		p, q, before := s[i:i+8], s[k:k+8], lo
		lo = utf8Steps[p[0]] >> (lo & 63)
		hi = utf8Steps[q[0]] >> (hi & 63)
		lo = utf8Steps[p[1]] >> (lo & 63)
		hi = utf8Steps[q[1]] >> (hi & 63)
		lo = utf8Steps[p[2]] >> (lo & 63)
		hi = utf8Steps[q[2]] >> (hi & 63)
		lo = utf8Steps[p[3]] >> (lo & 63)
		hi = utf8Steps[q[3]] >> (hi & 63)
		lo = utf8Steps[p[4]] >> (lo & 63)
		hi = utf8Steps[q[4]] >> (hi & 63)
		lo = utf8Steps[p[5]] >> (lo & 63)
		hi = utf8Steps[q[5]] >> (hi & 63)
		lo = utf8Steps[p[6]] >> (lo & 63)
		hi = utf8Steps[q[6]] >> (hi & 63)
		lo = utf8Steps[p[7]] >> (lo & 63)
		hi = utf8Steps[q[7]] >> (hi & 63)
		if lo&63 == fault || hi&63 == fault {
			return i, before
		}
		i, k = i+8, k+8
	}
	end, state = i, lo
	for ; i < mid; i++ {
		lo = utf8Steps[s[i]] >> (lo & 63)
	}
	if lo&63 == atChar {
		return k, hi // the lower half ends where the upper one starts
	}
	return end, state
}
