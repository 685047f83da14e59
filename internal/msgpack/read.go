package msgpack

import (
	"encoding/binary"
	"errors"
	"math"
)

var (
	// ErrShort reports that the input ends within a value. More bytes can complete it.
	ErrShort = errors.New("msgpack: value is cut short")
	// ErrInvalid is returned if the input is not MessagePack.
	ErrInvalid = errors.New("msgpack: invalid bytes")
	// ErrDepth reports that values are nested more deeply than [MaxDepth].
	ErrDepth = errors.New("msgpack: nested too deeply")
)

// MaxDepth is the maximum nesting of arrays and maps in this package.
const MaxDepth = 256

// Kind is the kind of a [Token].
type Kind uint8

// The kinds.
const (
	Nil Kind = iota
	Bool
	Int  // negative; see Token.Int64
	Uint // not negative; the value is Token.Num
	Float32
	Float64
	Str
	Bin
	Array
	Map
	Ext
)

// kindNames has the name of each Kind, without size and sign.
var kindNames = [...]string{"nil", "bool", "int", "int", "float", "float", "str", "bin", "array", "map", "ext"}

// String returns the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// A Token is one value, or the header of an array or map. The fields that do not belong to its Kind
// are zero.
type Token struct {
	Kind  Kind
	Ext   int8   // type of an Ext
	Bool  bool   // of a Bool
	Len   int    // elements of an Array, pairs of a Map; at most math.MaxInt32
	Num   uint64 // value of an Int (two's complement) or Uint, or the bits of a float
	Bytes []byte // content of a Str, Bin or Ext; shares the memory of the input
}

// Int64 returns the value of an Int.
func (t *Token) Int64() int64 { return int64(t.Num) }

// Float returns the value of a Float32 or Float64.
func (t *Token) Float() float64 {
	if t.Kind == Float32 {
		return float64(math.Float32frombits(uint32(t.Num)))
	}
	return math.Float64frombits(t.Num)
}

// Text reports whether t is a str or a bin; some servers do not distinguish them.
func (t *Token) Text() bool { return t.Kind == Str || t.Kind == Bin }

// Next reads one token at the beginning of b and returns the rest of b. The error is [ErrShort] or
// [ErrInvalid].
func Next(b []byte) (t Token, rest []byte, err error) {
	if len(b) == 0 {
		return t, b, ErrShort
	}
	c := b[0]
	switch {
	case c < 0x80:
		return Token{Kind: Uint, Num: uint64(c)}, b[1:], nil
	case c < 0x90:
		return Token{Kind: Map, Len: int(c & 0x0f)}, b[1:], nil
	case c < 0xa0:
		return Token{Kind: Array, Len: int(c & 0x0f)}, b[1:], nil
	case c < 0xc0:
		return payload(Str, 0, b, 1, uint64(c&0x1f))
	case c >= 0xe0:
		return Token{Kind: Int, Num: uint64(int64(int8(c)))}, b[1:], nil
	}
	switch c {
	case cNil:
		return Token{Kind: Nil}, b[1:], nil
	case cFalse, cTrue:
		return Token{Kind: Bool, Bool: c == cTrue}, b[1:], nil
	case cFixext1, cFixext2, cFixext4, cFixext8, cFixext16:
		if len(b) < 2 {
			return t, b, ErrShort
		}
		return payload(Ext, int8(b[1]), b, 2, 1<<(c-cFixext1))
	}
	size := sizeOf(c)
	if size == 0 {
		return t, b, ErrInvalid
	}
	n, ok := number(b[1:], size)
	if !ok {
		return t, b, ErrShort
	}
	at := 1 + size
	switch c {
	case cBin8, cBin16, cBin32:
		return payload(Bin, 0, b, at, n)
	case cStr8, cStr16, cStr32:
		return payload(Str, 0, b, at, n)
	case cExt8, cExt16, cExt32:
		if len(b) <= at {
			return t, b, ErrShort
		}
		return payload(Ext, int8(b[at]), b, at+1, n)
	case cFloat32:
		t = Token{Kind: Float32, Num: n}
	case cFloat64:
		t = Token{Kind: Float64, Num: n}
	case cUint8, cUint16, cUint32, cUint64:
		t = Token{Kind: Uint, Num: n}
	case cInt8, cInt16, cInt32, cInt64:
		shift := 64 - 8*size
		v := int64(n<<shift) >> shift
		t = Token{Kind: Int, Num: uint64(v)}
		if v >= 0 {
			t.Kind = Uint
		}
	case cArray16, cArray32:
		t = Token{Kind: Array, Len: int(min(n, math.MaxInt32))}
	default:
		t = Token{Kind: Map, Len: int(min(n, math.MaxInt32))}
	}
	return t, b[at:], nil
}

// sizeOf returns the size in bytes of the number after the first byte c, or 0 if there is no
// number.
func sizeOf(c byte) int {
	switch c {
	case cBin8, cExt8, cUint8, cInt8, cStr8:
		return 1
	case cBin16, cExt16, cUint16, cInt16, cStr16, cArray16, cMap16:
		return 2
	case cBin32, cExt32, cFloat32, cUint32, cInt32, cStr32, cArray32, cMap32:
		return 4
	case cFloat64, cUint64, cInt64:
		return 8
	}
	return 0
}

// number returns the big-endian number of size bytes at the beginning of b, or false if b is too
// short.
func number(b []byte, size int) (uint64, bool) {
	if len(b) < size {
		return 0, false
	}
	switch size {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), true
	}
	return binary.BigEndian.Uint64(b), true
}

// payload returns a token with n bytes of data, which begin at b[at].
func payload(k Kind, ext int8, b []byte, at int, n uint64) (Token, []byte, error) {
	if uint64(len(b)-at) < n {
		return Token{}, b, ErrShort
	}
	end := at + int(n)
	return Token{Kind: k, Ext: ext, Bytes: b[at:end:end]}, b[end:], nil
}

// Skip returns the bytes after the value at the beginning of b. The error is [ErrShort],
// [ErrInvalid] or [ErrDepth].
func Skip(b []byte) (rest []byte, err error) { return skip(b, 0) }

// skip implements Skip at the given nesting depth.
func skip(b []byte, depth int) ([]byte, error) {
	t, b, err := Next(b)
	if err != nil || t.Kind != Array && t.Kind != Map {
		return b, err
	}
	n := t.Len
	if t.Kind == Map {
		n *= 2
	}
	if n < 0 || n > len(b) {
		return b, ErrShort // each value needs at least one byte
	}
	if depth++; depth == MaxDepth {
		return b, ErrDepth
	}
	for range n {
		if size := Scalar(b); size > 0 { // most values; avoids a call
			b = b[size:]
		} else if b, err = skip(b, depth); err != nil {
			return b, err
		}
	}
	return b, nil
}

// Scalar returns the length of the value at the beginning of b, if the first two bytes determine
// the length. It returns 0 for all other values, including incomplete values, arrays and maps.
func Scalar(b []byte) int {
	if len(b) < 2 {
		if len(b) == 1 && scalars[b[0]] == 1 {
			return 1
		}
		return 0
	}
	n := int(scalars[b[0]])
	if n == sized {
		n = 2 + int(b[1])
	}
	if n > len(b) {
		return 0
	}
	return n
}

// scalars maps the first byte of a value to the encoded length of the value. The length is 0 if the
// first byte does not determine it, or if the value is an array or map. The constant sized means
// that the second byte is the length of the data.
var scalars = func() (sizes [256]uint8) {
	for c := range sizes {
		switch c := byte(c); {
		case c < 0x80 || c >= 0xe0 || c == cNil || c == cFalse || c == cTrue:
			sizes[c] = 1
		case c >= 0xa0 && c < 0xc0:
			sizes[c] = 1 + c&0x1f
		case c == cStr8 || c == cBin8:
			sizes[c] = sized
		case c >= cFixext1 && c <= cFixext16:
			sizes[c] = 2 + 1<<(c-cFixext1)
		case c >= cFloat32 && c <= cInt64:
			sizes[c] = 1 + uint8(sizeOf(c))
		}
	}
	return sizes
}()

// sized is greater than all lengths that a first byte determines.
const sized = 255
