// Package jsontext appends strings, keys and numbers as JSON has them, also within a
// JSON string, and as logfmt and the console show them.
package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// JSON strings are checked and copied eight bytes at a time. A word is a little
// endian load, so its lowest byte comes first, and a mask has bit 7 of a byte
// set where that byte needs attention; bits below the first one set are exact,
// those above it may be artefacts of a borrow.

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// unsafeASCII marks the bytes of w that cannot be copied without a closer look:
// control characters, '"', '\\' and all that is not ASCII.
func unsafeASCII(w uint64) uint64 { return odd(w) & highs }

// odd is unsafeASCII with noise in the bits other than 7.
func odd(w uint64) uint64 {
	// Flipping bit 1 swaps '"' with the space and keeps the control characters
	// among themselves, so one comparison finds both.
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

// loadShort loads fewer than eight bytes; the rest of the word are harmless
// ones.
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

// slack is the room that a string needs beyond its length while it is copied in
// whole words.
const slack = 16

// short is the length up to which strings, and so nearly all keys and most
// values, are copied without a loop.
const short = 32

// copyShort copies s, of up to short bytes, to b and returns unsafeASCII of all
// of it. The words overlap; what is behind the end of s in b is overwritten.
func copyShort(b *[short]byte, s string) uint64 {
	n := len(s)
	if n > 16 {
		w0, w1, w2, w3 := load64(s), load64(s[8:]), load64(s[n-16:]), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[:], w0)
		binary.LittleEndian.PutUint64(b[8:], w1)
		binary.LittleEndian.PutUint64(b[n-16:], w2)
		binary.LittleEndian.PutUint64(b[n-8:], w3)
		return (odd(w0) | odd(w1) | odd(w2) | odd(w3)) & highs
	}
	if n >= 8 {
		w0, w1 := load64(s), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[:], w0)
		binary.LittleEndian.PutUint64(b[n-8:], w1)
		return (odd(w0) | odd(w1)) & highs
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

// AppendEscaped appends s as the inside of a JSON string. Like slog, it escapes
// what RFC 8259 demands, replaces each invalid byte by U+FFFD, and escapes U+2028
// and U+2029, which some readers take for the end of a line.
func AppendEscaped(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n <= short {
		dst = Spare(dst, short)
		if copyShort((*[short]byte)(dst[j:j+short]), s) == 0 {
			return dst[:j+n]
		}
		return escapeRest(dst, s, 0)
	}
	k := spanASCII(s)
	dst = append(dst, s[:k]...)
	if k == n {
		return dst
	}
	return escapeRest(dst, s, k)
}

// spanASCII returns the length of the longest beginning of s that can be copied
// without a closer look. s must have eight bytes or more.
func spanASCII(s string) int {
	i := 0
	for ; len(s)-i >= 32; i += 32 {
		p := s[i : i+32]
		w0, w1, w2, w3 := load64(p), load64(p[8:]), load64(p[16:]), load64(p[24:])
		if (odd(w0)|odd(w1)|odd(w2)|odd(w3))&highs != 0 {
			break
		}
	}
	for ; len(s)-i >= 8; i += 8 {
		if m := unsafeASCII(load64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	// The last word overlaps with what has been looked at already.
	i = len(s) - 8
	if m := unsafeASCII(load64(s[i:])); m != 0 {
		return i + bits.TrailingZeros64(m)>>3
	}
	return len(s)
}

// An escape is what stands for one byte: the n lowest bytes of text.
type escape struct {
	text uint64
	n    uint8
}

// escapes has an entry for each ASCII byte that has to be escaped.
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

// escapeRest goes on with s at byte i.
func escapeRest(dst []byte, s string, i int) []byte {
	j := len(dst)
	for {
		// A run that can be copied,
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
		// then a byte or character that needs attention.
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

// escapeRune returns what stands for the bytes at s[i], where spanUTF8 stopped
// at a byte that is not ASCII, and how many they are.
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

// spanUTF8 returns the end of the span of s, beginning at i, that can be copied
// as it is: valid UTF-8 without anything to escape.
func spanUTF8(s string, i int) int {
	n := len(s)
	for {
		// Words of ASCII and two-byte characters, mixed at will. carry has bit
		// 7 set if the last byte of the word before began a character.
		carry := uint64(0)
		for n-i >= 8 {
			w := load64(s[i:])
			lead := w & (w << 1)                          // 11xxxxxx
			bad := (lead<<8 | carry) ^ (w &^ (w << 1))    // 10xxxxxx exactly where one is due
			bad |= (w&(0xfe*ones) ^ 0xc0*ones - ones) & w // c0 and c1 say in two bytes what fits in one
			bad |= odd(w) &^ w
			long := lead & (w << 2) & highs // 111xxxxx: not for this loop
			if bad&highs|long != 0 {
				if first := long & -long; first != 0 && bad&highs&(first|(first-1)) == 0 {
					i += bits.TrailingZeros64(first) >> 3
					carry = 0
				}
				break
			}
			carry = lead >> 56
			i += 8
		}
		if carry&0x80 != 0 {
			i--
		}
		// One character at a time, until a longer one has been passed.
		for {
			if i >= n {
				return n
			}
			c := s[i]
			if c < 0x80 {
				if escapes[c].n != 0 {
					return i
				}
				i++
				continue
			}
			if c < 0xe0 {
				if c < 0xc2 || i+1 >= n || s[i+1]&0xc0 != 0x80 {
					return i
				}
				i += 2
				continue
			}
			if c < 0xf0 {
				k := span3(s, i)
				if k == i {
					return i
				}
				i = k
			} else {
				if c > 0xf4 || i+3 >= n || s[i+1]&0xc0 != 0x80 || s[i+2]&0xc0 != 0x80 || s[i+3]&0xc0 != 0x80 ||
					c == 0xf0 && s[i+1] < 0x90 || c == 0xf4 && s[i+1] > 0x8f {
					return i
				}
				i += 4
			}
			if i >= n {
				return n
			}
			if s[i] < 0xe0 {
				break
			}
		}
	}
}

// span3 is spanUTF8 for three-byte characters only.
func span3(s string, i int) int {
	n := len(s)
	for n-i >= 8 {
		w := load64(s[i:])
		if w&0xc0c0f0_c0c0f0 != 0x8080e0_8080e0 {
			break
		}
		a, b := uint16(w), uint16(w>>24)
		if odd3(a) || odd3(b) {
			break
		}
		i += 6
	}
	for i+3 <= n {
		if s[i]&0xf0 != 0xe0 || s[i+1]&0xc0 != 0x80 || s[i+2]&0xc0 != 0x80 {
			break
		}
		v := uint16(s[i]) | uint16(s[i+1])<<8
		if odd3(v) && (v != 0x80e2 || s[i+2]&^1 == 0xa8) {
			break
		}
		i += 3
	}
	return i
}

// odd3 reports whether a three-byte character that begins with the two bytes of
// v needs a closer look: it is too long for its value, a surrogate, or may be
// U+2028 or U+2029.
func odd3(v uint16) bool {
	x := v & 0x200f
	return x == 0 || x == 0x200d || v == 0x80e2
}
