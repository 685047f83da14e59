// Package msgpack reads and writes MessagePack. It has append functions and a reader of byte
// slices. The reader limits the depth, never panics and distinguishes truncated from invalid input.
//
// The append functions return dst with the value after it, like append. Functions that read return
// the rest of their input; strings and binary data share its memory.
//
// The format is specified in https://github.com/msgpack/msgpack/blob/master/spec.md.
package msgpack

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
	"unsafe"
)

// First bytes of the formats that always begin with the same byte. In the other formats, the first
// byte also contains a small number or length: positive fixint (from 0x00), fixmap (0x80), fixarray
// (0x90), fixstr (0xa0) and negative fixint (0xe0).
const (
	cNil      = 0xc0
	cFalse    = 0xc2
	cTrue     = 0xc3
	cBin8     = 0xc4
	cBin16    = 0xc5
	cBin32    = 0xc6
	cExt8     = 0xc7
	cExt16    = 0xc8
	cExt32    = 0xc9
	cFloat32  = 0xca
	cFloat64  = 0xcb
	cUint8    = 0xcc
	cUint16   = 0xcd
	cUint32   = 0xce
	cUint64   = 0xcf
	cInt8     = 0xd0
	cInt16    = 0xd1
	cInt32    = 0xd2
	cInt64    = 0xd3
	cFixext1  = 0xd4
	cFixext2  = 0xd5
	cFixext4  = 0xd6
	cFixext8  = 0xd7
	cFixext16 = 0xd8
	cStr8     = 0xd9
	cStr16    = 0xda
	cStr32    = 0xdb
	cArray16  = 0xdc
	cArray32  = 0xdd
	cMap16    = 0xde
	cMap32    = 0xdf
)

// First bytes of values, for callers that replace one value with another.
const (
	CodeNil      = cNil
	CodeEmptyMap = 0x80
	CodeFixStr   = 0xa0   // plus the length of a string of less than 32 bytes
	CodeMap16    = cMap16 // a size of two bytes follows
	CodeMap32    = cMap32 // a size of four bytes follows
)

// IsMap reports whether c is the first byte of a map.
func IsMap(c byte) bool { return c&0xf0 == 0x80 || c == cMap16 || c == cMap32 }

// AppendNil appends nil.
func AppendNil(dst []byte) []byte { return append(dst, cNil) }

// AppendBool appends v.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, cTrue)
	}
	return append(dst, cFalse)
}

// AppendInt appends v in the shortest form.
func AppendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return AppendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	case v >= math.MinInt8:
		return append(dst, cInt8, byte(v))
	case v >= math.MinInt16:
		return append(dst, cInt16, byte(v>>8), byte(v))
	case v >= math.MinInt32:
		return append(dst, cInt32, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, cInt64), uint64(v))
}

// AppendUint appends v in the shortest form.
func AppendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, cUint8, byte(v))
	case v <= math.MaxUint16:
		return append(dst, cUint16, byte(v>>8), byte(v))
	case v <= math.MaxUint32:
		return append(dst, cUint32, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, cUint64), v)
}

// AppendFloat64 appends v in 9 bytes, even if it is an integer.
func AppendFloat64(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, cFloat64), math.Float64bits(v))
}

// AppendFloat32 appends v in 5 bytes, even if it is an integer.
func AppendFloat32(dst []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, cFloat32), math.Float32bits(v))
}

// AppendStrHeader appends the header of a string of n bytes. n must be less than 1<<32.
func AppendStrHeader(dst []byte, n int) []byte {
	switch {
	case n < 32:
		return append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		return append(dst, cStr8, byte(n))
	case n <= math.MaxUint16:
		return append(dst, cStr16, byte(n>>8), byte(n))
	}
	return append(dst, cStr32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendStr appends s. The format requires UTF-8: each invalid byte becomes U+FFFD.
func AppendStr(dst []byte, s string) []byte {
	// Most keys and many values are short and ASCII. They are copied and checked as two words,
	// which may overlap.
	if n, at := len(s), len(dst); n <= 16 && cap(dst)-at > 16 {
		d := (*[17]byte)(dst[at : at+17])
		p := unsafe.StringData(s)
		d[0] = 0xa0 | byte(n)
		switch {
		case n >= 8:
			lo, hi := binary.LittleEndian.Uint64(word64(p, 0)[:]), binary.LittleEndian.Uint64(word64(p, n-8)[:])
			if (lo|hi)&ascii64 == 0 {
				binary.LittleEndian.PutUint64(word64(&d[0], 1)[:], lo)
				binary.LittleEndian.PutUint64(word64(&d[0], n-7)[:], hi)
				return dst[:at+1+n]
			}
		case n >= 4:
			lo, hi := binary.LittleEndian.Uint32(word32(p, 0)[:]), binary.LittleEndian.Uint32(word32(p, n-4)[:])
			if (lo|hi)&ascii32 == 0 {
				binary.LittleEndian.PutUint32(word32(&d[0], 1)[:], lo)
				binary.LittleEndian.PutUint32(word32(&d[0], n-3)[:], hi)
				return dst[:at+1+n]
			}
		case n > 0:
			a, b, c := s[0], s[n>>1], s[n-1]
			if a|b|c < utf8.RuneSelf {
				d[1], d[1+n>>1], d[n] = a, b, c
				return dst[:at+1+n]
			}
		default:
			return dst[:at+1]
		}
	}
	return appendLongStr(dst, s)
}

// AppendStrs appends the key k and the value v of a map, like two calls of [AppendStr].
func AppendStrs(dst []byte, k, v string) []byte {
	at := len(dst)
	if len(k) <= 16 && len(v) <= 16 && cap(dst)-at >= 2*17 {
		s := k
		for d, second := unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), at), false; ; second = true {
			n := len(s)
			p := unsafe.StringData(s)
			*(*byte)(d) = 0xa0 | byte(n)
			switch {
			case n >= 8:
				lo, hi := binary.LittleEndian.Uint64(word64(p, 0)[:]), binary.LittleEndian.Uint64(word64(p, n-8)[:])
				if (lo|hi)&ascii64 != 0 {
					goto slow
				}
				binary.LittleEndian.PutUint64(word64((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint64(word64((*byte)(d), n-7)[:], hi)
			case n >= 4:
				lo, hi := binary.LittleEndian.Uint32(word32(p, 0)[:]), binary.LittleEndian.Uint32(word32(p, n-4)[:])
				if (lo|hi)&ascii32 != 0 {
					goto slow
				}
				binary.LittleEndian.PutUint32(word32((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint32(word32((*byte)(d), n-3)[:], hi)
			case n > 0:
				a, b, c := s[0], s[n>>1], s[n-1]
				if a|b|c >= utf8.RuneSelf {
					goto slow
				}
				*(*byte)(unsafe.Add(d, 1)), *(*byte)(unsafe.Add(d, 1+n>>1)), *(*byte)(unsafe.Add(d, n)) = a, b, c
			}
			at += 1 + n
			if second {
				return dst[:at]
			}
			d = unsafe.Add(d, 1+n)
			s = v
		}
	}
slow:
	return AppendStr(AppendStr(dst, k), v)
}

// A Pairer appends the pairs that [AppendMap] cannot append.
type Pairer interface {
	// AppendPair appends the key k and the value v of a map.
	AppendPair(dst []byte, k string, v any) ([]byte, error)
}

// AppendMap appends m in no particular order. It appends pairs with integers and, if dst has enough
// capacity, short ASCII strings. The Pairer p appends all other pairs, and an error of p ends the
// call.
//
// Most records contain only integers and short ASCII strings. AppendMap appends them without calls
// of AppendStr, and checks the bytes of a key and its value together.
//
// If m gains or loses pairs during the call, the header has the wrong count, and the error wraps
// [ErrChanged].
func AppendMap(dst []byte, m map[string]any, p Pairer) ([]byte, error) {
	remaining := len(m)
	dst = AppendMapHeader(dst, remaining)
	at := len(dst)
	for k, v := range m {
		remaining--
		s, ok := v.(string)
		if !ok {
			if i, ok := v.(int); ok {
				dst = AppendInt(AppendStr(dst[:at], k), int64(i))
				at = len(dst)
				continue
			}
		} else if len(k) <= short && len(s) <= short && cap(dst)-at >= 2*(1+short) {
			// As in AppendStr, the words may overlap.
			d := unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), at)
			n, from := len(k), unsafe.StringData(k)
			*(*byte)(d) = 0xa0 | byte(n)
			var seen uint64
			switch {
			case n >= 8:
				lo, hi := binary.LittleEndian.Uint64(word64(from, 0)[:]), binary.LittleEndian.Uint64(word64(from, n-8)[:])
				binary.LittleEndian.PutUint64(word64((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint64(word64((*byte)(d), n-7)[:], hi)
				seen = lo | hi
			case n >= 4:
				lo, hi := binary.LittleEndian.Uint32(word32(from, 0)[:]), binary.LittleEndian.Uint32(word32(from, n-4)[:])
				binary.LittleEndian.PutUint32(word32((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint32(word32((*byte)(d), n-3)[:], hi)
				seen = uint64(lo | hi)
			case n > 0:
				a, b, c := k[0], k[n>>1], k[n-1]
				*(*byte)(unsafe.Add(d, 1)), *(*byte)(unsafe.Add(d, 1+n>>1)), *(*byte)(unsafe.Add(d, n)) = a, b, c
				seen = uint64(a | b | c)
			}
			end := at + 1 + n
			d = unsafe.Add(d, 1+n)
			n, from = len(s), unsafe.StringData(s)
			*(*byte)(d) = 0xa0 | byte(n)
			switch {
			case n >= 8:
				lo, hi := binary.LittleEndian.Uint64(word64(from, 0)[:]), binary.LittleEndian.Uint64(word64(from, n-8)[:])
				binary.LittleEndian.PutUint64(word64((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint64(word64((*byte)(d), n-7)[:], hi)
				seen |= lo | hi
			case n >= 4:
				lo, hi := binary.LittleEndian.Uint32(word32(from, 0)[:]), binary.LittleEndian.Uint32(word32(from, n-4)[:])
				binary.LittleEndian.PutUint32(word32((*byte)(d), 1)[:], lo)
				binary.LittleEndian.PutUint32(word32((*byte)(d), n-3)[:], hi)
				seen |= uint64(lo | hi)
			case n > 0:
				a, b, c := s[0], s[n>>1], s[n-1]
				*(*byte)(unsafe.Add(d, 1)), *(*byte)(unsafe.Add(d, 1+n>>1)), *(*byte)(unsafe.Add(d, n)) = a, b, c
				seen |= uint64(a | b | c)
			}
			if seen&ascii64 == 0 {
				at = end + 1 + n
				continue
			}
		}
		var err error
		if dst, err = p.AppendPair(dst[:at], k, v); err != nil {
			return dst, err
		}
		at = len(dst)
	}
	if remaining != 0 {
		return dst, ErrChanged
	}
	return dst[:at], nil
}

// ErrChanged reports that a map has changed during [AppendMap].
var ErrChanged = errors.New("map changed while it was written")

// short is the maximum length in bytes of strings that are copied as words.
const short = 16

const (
	ascii64 = 0x8080808080808080 // these bits are zero in ASCII text
	ascii32 = 0x80808080
)

// word64 and word32 return the words at p+i, which need not be aligned: the compiler handles
// unaligned access. Each word must be within one string or slice.
func word64(p *byte, i int) *[8]byte { return (*[8]byte)(unsafe.Add(unsafe.Pointer(p), i)) }
func word32(p *byte, i int) *[4]byte { return (*[4]byte)(unsafe.Add(unsafe.Pointer(p), i)) }

// appendLongStr implements AppendStr for strings that are not copied as words.
func appendLongStr(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return appendRepaired(dst, s)
	}
	return append(AppendStrHeader(dst, len(s)), s...)
}

// AppendStrBytes is [AppendStr] for bytes.
func AppendStrBytes(dst, s []byte) []byte {
	if !utf8.Valid(s) {
		return appendRepaired(dst, string(s))
	}
	return append(AppendStrHeader(dst, len(s)), s...)
}

// appendRepaired appends s with U+FFFD for each byte of invalid UTF-8, like encoding/json.
func appendRepaired(dst []byte, s string) []byte {
	n := 0
	for _, r := range s { // U+FFFD itself also has three bytes
		n += utf8.RuneLen(r)
	}
	dst = AppendStrHeader(dst, n)
	for _, r := range s {
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// AppendBinHeader appends the header of n bytes of binary data. n must be less than 1<<32.
func AppendBinHeader(dst []byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(dst, cBin8, byte(n))
	case n <= math.MaxUint16:
		return append(dst, cBin16, byte(n>>8), byte(n))
	}
	return append(dst, cBin32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendBin appends b as binary data.
func AppendBin(dst, b []byte) []byte { return append(AppendBinHeader(dst, len(b)), b...) }

// AppendArrayHeader appends the header of an array of n elements. n must be less than 1<<32.
func AppendArrayHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return append(dst, cArray16, byte(n>>8), byte(n))
	}
	return append(dst, cArray32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendMapHeader appends the header of a map of n pairs. n must be less than 1<<32.
func AppendMapHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x80|byte(n))
	case n <= math.MaxUint16:
		return append(dst, cMap16, byte(n>>8), byte(n))
	}
	return append(dst, cMap32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendOpenMap appends the header of a map of unknown size. [CloseMap] sets the size once the
// pairs are appended.
func AppendOpenMap(dst []byte) []byte { return append(dst, cMap32, 0, 0, 0, 0) }

// CloseMap sets the number of pairs of the map whose header [AppendOpenMap] has appended at
// dst[at]. A small map gets the short header, so its pairs are moved.
func CloseMap(dst []byte, at, n int) []byte {
	if n < 16 && len(dst)-at <= 256 {
		dst[at] = 0x80 | byte(n)
		return append(dst[:at+1], dst[at+5:]...)
	}
	binary.BigEndian.PutUint32(dst[at+1:], uint32(n))
	return dst
}
