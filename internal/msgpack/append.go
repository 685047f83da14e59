// Package msgpack writes and reads MessagePack: appending functions, and a reader
// over a byte slice that is bounded in depth, never panics and tells "cut short"
// from "wrong".
//
// The format is that of https://github.com/msgpack/msgpack/blob/master/spec.md.
package msgpack

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// First bytes of the formats that are not a range.
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

// AppendNil appends nil.
func AppendNil(dst []byte) []byte { return append(dst, cNil) }

// AppendBool appends v.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, cTrue)
	}
	return append(dst, cFalse)
}

// AppendInt appends v in as few bytes as hold it.
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

// AppendUint appends v in as few bytes as hold it.
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

// AppendFloat64 appends v.
func AppendFloat64(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, cFloat64), math.Float64bits(v))
}

// AppendFloat32 appends v.
func AppendFloat32(dst []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, cFloat32), math.Float32bits(v))
}

// AppendStrHeader appends the header of a string of n bytes.
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

// AppendStr appends s. The format wants UTF-8: each run of invalid bytes becomes
// U+FFFD.
func AppendStr(dst []byte, s string) []byte {
	if n, at := len(s), len(dst); n <= 16 && cap(dst)-at > n {
		// Most keys and many values are this short, and ASCII: copied and checked
		// in one go.
		d := dst[at : at+n+1]
		d[0] = 0xa0 | byte(n)
		d = d[1:]
		var all byte
		for i := range len(s) {
			c := s[i]
			d[i] = c
			all |= c
		}
		if all < utf8.RuneSelf {
			return dst[:at+n+1]
		}
	}
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

func appendRepaired(dst []byte, s string) []byte {
	n, bad := 0, false
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				if !bad {
					n += 3
				}
				bad = true
				continue
			}
		}
		n += utf8.RuneLen(r)
		bad = false
	}
	dst = AppendStrHeader(dst, n)
	bad = false
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				if !bad {
					dst = append(dst, "\ufffd"...)
				}
				bad = true
				continue
			}
		}
		dst = utf8.AppendRune(dst, r)
		bad = false
	}
	return dst
}

// AppendBinHeader appends the header of n bytes of binary data.
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

// AppendArrayHeader appends the header of an array of n elements.
func AppendArrayHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return append(dst, cArray16, byte(n>>8), byte(n))
	}
	return append(dst, cArray32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendMapHeader appends the header of a map of n pairs.
func AppendMapHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x80|byte(n))
	case n <= math.MaxUint16:
		return append(dst, cMap16, byte(n>>8), byte(n))
	}
	return append(dst, cMap32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendOpenMap appends the header of a map whose size is not known yet:
// [CloseMap] sets it.
func AppendOpenMap(dst []byte) []byte { return append(dst, cMap32, 0, 0, 0, 0) }

// CloseMap sets the number of pairs of the map that [AppendOpenMap] began at
// dst[at]. A small map gets the short header, by moving what is inside.
func CloseMap(dst []byte, at, n int) []byte {
	if n < 16 && len(dst)-at <= 256 {
		dst[at] = 0x80 | byte(n)
		return append(dst[:at+1], dst[at+5:]...)
	}
	binary.BigEndian.PutUint32(dst[at+1:], uint32(n))
	return dst
}
