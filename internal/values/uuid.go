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

// uuidOf returns the bytes of x if it is a UUID, otherwise nil.
func uuidOf(x any) *[16]byte {
	if x == nil || shapeOf(x).Kind != UUID {
		return nil
	}
	// The second word of an interface value points to the array. Reading each byte by reflection
	// would take most of the time.
	return (*[16]byte)((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
}

// uuidDigits are the offsets of the digits of each byte of a UUID in its text.
var uuidDigits = [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// appendUUID appends u in the form of RFC 9562, section 4.
func appendUUID(dst []byte, u *[16]byte) []byte {
	n := len(dst)
	dst = jsontext.Spare(dst, 36)[:n+36]
	b := (*[36]byte)(dst[n:])
	for i, at := range uuidDigits {
		binary.LittleEndian.PutUint16(b[at:at+2], hexPairs[u[i]])
	}
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return dst
}
