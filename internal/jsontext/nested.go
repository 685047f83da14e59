package jsontext

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode/utf8"
	"unsafe"
)

// AppendKeyNested is like AppendKey, for an object inside a JSON string.
func AppendKeyNested(dst []byte, key string) []byte {
	n, j := len(key), len(dst)
	if n == 0 || n > 16 || cap(dst)-j < 24 {
		return appendAnyKeyNested(dst, key)
	}
	sep := byte(',')
	if last := dst[j-1]; last == ',' || last == '{' {
		sep = last
		j--
	}
	// This is copyShort, inlined because it is the most frequent step.
	b := (*[24]byte)(dst[j : j+24])
	b[0], b[1], b[2] = sep, '\\', '"'
	var m uint64
	switch {
	case n >= 8:
		v, w := load64(key), load64(key[n-8:])
		binary.LittleEndian.PutUint64(b[3:], v)
		binary.LittleEndian.PutUint64(b[n-5:], w)
		m = unsafeBits(v) | unsafeBits(w)
	case n >= 4:
		v, w := uint32(load32(key)), uint32(load32(key[n-4:]))
		binary.LittleEndian.PutUint32(b[3:], v)
		binary.LittleEndian.PutUint32(b[n-1:], w)
		m = unsafeBits(uint64(v) | uint64(w)<<32)
	default:
		v, w, x := key[0], key[n>>1], key[n-1]
		b[3], b[3+n>>1], b[2+n] = v, w, x
		m = unsafeBits(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyKeyNested(dst, key)
	}
	b[n+3], b[n+4], b[n+5] = '\\', '"', ':'
	return dst[:j+n+6]
}

// appendAnyKeyNested implements AppendKeyNested for all keys.
func appendAnyKeyNested(dst []byte, key string) []byte {
	start := len(dst)
	return EscapeTail(appendAnyKey(Spare(dst, 64), key), start)
}

// AppendStringNested is like AppendString, for a string inside a JSON string.
func AppendStringNested(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n <= short {
		dst = Spare(dst, short+4)
		b := (*[short + 4]byte)(dst[j : j+short+4])
		if copyShort((*[short]byte)(b[2:2+short]), s) == 0 {
			b[0], b[1], b[n+2], b[n+3] = '\\', '"', '\\', '"'
			return dst[:j+n+4]
		}
	}
	return append(AppendEscapedNested(append(dst, '\\', '"'), s), '\\', '"')
}

// AppendEscapedNested appends s as the inside of a JSON string that is itself in a JSON
// string.
func AppendEscapedNested(dst []byte, s string) []byte {
	start := len(dst)
	if len(s) > short {
		var k int
		if dst, k = appendASCII(dst, s); k == len(s) {
			return dst
		}
		dst = dst[:start]
	}
	return EscapeTail(AppendEscaped(dst, s), start)
}

// EscapeTail escapes dst[start:], which must be valid UTF-8, for use inside a JSON string.
func EscapeTail(dst []byte, start int) []byte {
	tail := dst[start:]
	n := bytes.Count(tail, quote) + bytes.Count(tail, backslash)
	if !spanned(tail) {
		// The text is escaped at the end of dst and then moved to start.
		end := len(dst)
		dst = AppendEscaped(dst, unsafe.String(unsafe.SliceData(tail), len(tail)))
		return dst[:start+copy(dst[start:], dst[end:])]
	}
	if n == 0 {
		return dst
	}
	// The text is moved back by n bytes. Then its parts are copied forward, with a backslash before
	// each quote and backslash.
	dst = slices.Grow(dst, n)[:len(dst)+n]
	src := dst[start+n:]
	copy(src, dst[start:])
	at, k := start, 0
	for q, b := next(src, 0, '"'), next(src, 0, '\\'); ; {
		special := min(q, b)
		at += copy(dst[at:], src[k:special])
		if special == len(src) {
			return dst
		}
		c := src[special]
		dst[at], dst[at+1] = '\\', c
		at, k = at+2, special+1
		if c == '"' {
			q = next(src, k, c)
		} else {
			b = next(src, k, c)
		}
	}
}

var quote, backslash = []byte{'"'}, []byte{'\\'}

// next returns the index of the first byte c in b at or after index k, or the length of b.
func next(b []byte, k int, c byte) int {
	if i := bytes.IndexByte(b[k:], c); i >= 0 {
		return k + i
	}
	return len(b)
}

// spanned reports whether the only bytes of b that must be escaped are quotes and backslashes.
func spanned(b []byte) bool {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if (w|(w-spaces)&^w)&highs != 0 {
			break
		}
	}
	for _, c := range b[i:] {
		if c < 0x20 || c >= 0x80 {
			return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < 0x20 || r == 0x2028 || r == 0x2029 })
		}
	}
	return true
}

const spaces = 0x2020202020202020
