package values

import (
	"unsafe"

	"github.com/forebay-log/forebay/bufpool"
)

// Scratch provides memory for values that cannot be written directly after the record.
// Buffers above its largest class are left to the garbage collector.
var Scratch = NewScratch(false)

func NewScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		SizeClasses:      []int{256, 1 << 10, 4 << 10, 16 << 10, maxPooled},
		MaxRetainedBytes: 1 << 20,
		NoZero:           true, // only written bytes are read
		Debug:            debug,
	})
	if err != nil {
		panic(err) // not caused by a caller
	}
	return p
}

// maxPooled is the size above which buffers are left to the garbage collector.
const maxPooled = 64 << 10

// textOf is text for a byte slice, which is not retained.
func (l Leaf) textOf(dst, b []byte) []byte {
	return l.text(dst, unsafe.String(unsafe.SliceData(b), len(b)))
}
