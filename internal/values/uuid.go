package values

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// uuids is a direct-mapped cache of recent types. An entry consists of the address of a
// type, whose low bits are zero, and a bit that reports whether the type is a UUID: an
// array of 16 bytes with UUID in its name and a text method. All such types use the same
// text form. Types are never freed.
var uuids [64]atomic.Uintptr

func isUUID(x any) bool {
	typ := uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[0])
	known := &uuids[(typ>>5^typ>>11)%uintptr(len(uuids))]
	if k := known.Load(); k&^1 == typ {
		return k&1 != 0
	}
	is := uuidByType(x)
	if typ&1 == 0 {
		if is {
			typ |= 1
		}
		known.Store(typ)
	}
	return is
}

func uuidByType(x any) bool {
	t := reflect.TypeOf(x)
	return t != nil && uuidType(t)
}

func uuidType(t reflect.Type) bool {
	if t.Kind() != reflect.Array || t.Len() != 16 || t.Elem().Kind() != reflect.Uint8 {
		return false
	}
	name := strings.ToLower(t.Name())
	return (t.Implements(textType) || t.Implements(stringerType)) && (strings.Contains(name, "uuid") || strings.Contains(name, "guid"))
}

var stringerType = reflect.TypeFor[fmt.Stringer]()

// hexPairs holds the two hexadecimal digits of each byte.
var hexPairs = func() (t [256]uint16) {
	const hex = "0123456789abcdef"
	for i := range t {
		t[i] = uint16(hex[i>>4]) | uint16(hex[i&15])<<8
	}
	return t
}()

// appendUUID appends an array of 16 bytes in the form of RFC 9562, section 4.
func appendUUID(dst []byte, x any) []byte {
	// The second word of the interface points to the array. Reading each byte with
	// reflection would dominate the cost.
	u := (*[16]byte)((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
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
