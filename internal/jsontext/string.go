package jsontext

import (
	"encoding/binary"
	"unsafe"
)

// Key returns the quoted key with the colon.
func Key(key string) string {
	return string(append(AppendString(nil, key), ':'))
}

// AppendString appends s as a JSON string.
func AppendString(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n > short || cap(dst)-j < short+2 {
		return appendAnyString(dst, s)
	}
	// This is copyShort, inlined because short strings are the most frequent values.
	b := (*[short + 2]byte)(dst[j : j+short+2])
	b[0] = '"'
	var m uint64
	switch {
	case n > 16:
		w0, w1, w2, w3 := load64(s), load64(s[8:]), load64(s[n-16:]), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[1:], w0)
		binary.LittleEndian.PutUint64(b[9:], w1)
		binary.LittleEndian.PutUint64(b[n-15:], w2)
		binary.LittleEndian.PutUint64(b[n-7:], w3)
		m = unsafeBits(w0) | unsafeBits(w1) | unsafeBits(w2) | unsafeBits(w3)
	case n >= 8:
		v, w := load64(s), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[1:], v)
		binary.LittleEndian.PutUint64(b[n-7:], w)
		m = unsafeBits(v) | unsafeBits(w)
	case n >= 4:
		v, w := uint32(load32(s)), uint32(load32(s[n-4:]))
		binary.LittleEndian.PutUint32(b[1:], v)
		binary.LittleEndian.PutUint32(b[n-3:], w)
		m = unsafeBits(uint64(v) | uint64(w)<<32)
	case n > 0:
		v, w, x := s[0], s[n>>1], s[n-1]
		b[1], b[1+n>>1], b[n] = v, w, x
		m = unsafeBits(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyString(dst, s)
	}
	b[n+1] = '"'
	return dst[:j+n+2]
}

// appendAnyString implements AppendString for strings that are long or need escapes.
func appendAnyString(dst []byte, s string) []byte {
	dst = append(Spare(dst, len(s)+64), '"')
	dst = AppendEscaped(dst, s)
	return append(dst, '"')
}

// Comma appends a comma, unless dst ends in a comma or in the opening brace or bracket of an object
// or array. A value never ends in ',', '{' or '['.
func Comma(dst []byte) []byte {
	if last := dst[len(dst)-1]; last == ',' || last|0x20 == '{' { // setting 0x20 turns '[' into '{'
		return dst
	}
	return append(dst, ',')
}

// AppendKey appends a comma if needed, the key and the colon.
func AppendKey(dst []byte, key string) []byte {
	n, j := len(key), len(dst)
	if n == 0 || n > 16 || cap(dst)-j < 24 {
		return appendAnyKey(dst, key)
	}
	sep := byte(',')
	if last := dst[j-1]; last == ',' || last|0x20 == '{' { // this is Comma, inlined
		sep = last
		j--
	}
	// This is copyShort, inlined because it is the most frequent step.
	b := (*[24]byte)(dst[j : j+24])
	b[0], b[1] = sep, '"'
	var m uint64
	switch {
	case n >= 8:
		v, w := load64(key), load64(key[n-8:])
		binary.LittleEndian.PutUint64(b[2:], v)
		binary.LittleEndian.PutUint64(b[n-6:], w)
		m = unsafeBits(v) | unsafeBits(w)
	case n >= 4:
		v, w := uint32(load32(key)), uint32(load32(key[n-4:]))
		binary.LittleEndian.PutUint32(b[2:], v)
		binary.LittleEndian.PutUint32(b[n-2:], w)
		m = unsafeBits(uint64(v) | uint64(w)<<32)
	default:
		v, w, x := key[0], key[n>>1], key[n-1]
		b[2], b[2+n>>1], b[1+n] = v, w, x
		m = unsafeBits(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyKey(dst, key)
	}
	b[n+2], b[n+3] = '"', ':'
	return dst[:j+n+4]
}

// appendAnyKey implements AppendKey for keys that are long or need escapes.
func appendAnyKey(dst []byte, key string) []byte {
	dst = append(Comma(dst), '"')
	dst = AppendEscaped(Spare(dst, 64), key)
	return append(dst, '"', ':')
}

// AppendEscapedBytes is like [AppendEscaped], for a byte slice, which must not change during the
// call.
func AppendEscapedBytes(dst, b []byte) []byte {
	return AppendEscaped(dst, unsafe.String(unsafe.SliceData(b), len(b))) // AppendEscaped does not retain the string
}
