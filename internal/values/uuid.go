package values

import (
	"encoding/binary"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// hexPairs holds the two hexadecimal digits of each byte.
var hexPairs = func() (t [256]uint16) {
	const hex = "0123456789abcdef"
	for i := range t {
		t[i] = uint16(hex[i>>4]) | uint16(hex[i&15])<<8
	}
	return t
}()

// uuidOf returns the bytes of x if it is a UUID, or nil.
func uuidOf(x any) *[16]byte {
	if x == nil || shapeOf(x).Kind != UUID {
		return nil
	}
	// The second word of an interface value points to the array. Reading each byte by reflection
	// would take most of the time.
	return (*[16]byte)((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
}

// appendUUID appends u in the form of RFC 9562, section 4.
func appendUUID(dst []byte, u *[16]byte) []byte {
	n := len(dst)
	dst = jsontext.Spare(dst, 36)[:n+36]
	b := (*[36]byte)(dst[n:])
	put := func(at int, c byte) { binary.LittleEndian.PutUint16(b[at:], hexPairs[c]) }
	put(0, u[0])
	put(2, u[1])
	put(4, u[2])
	put(6, u[3])
	put(9, u[4])
	put(11, u[5])
	put(14, u[6])
	put(16, u[7])
	put(19, u[8])
	put(21, u[9])
	put(24, u[10])
	put(26, u[11])
	put(28, u[12])
	put(30, u[13])
	put(32, u[14])
	put(34, u[15])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return dst
}
