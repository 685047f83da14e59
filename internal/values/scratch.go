package values

import (
	"unsafe"

	"github.com/forebay-log/forebay/bufpool"
)

// Scratch provides temporary memory for values that cannot be appended to the record directly.
// Buffers larger than its largest class are left to the garbage collector.
var Scratch = NewScratch(false)

func NewScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		SizeClasses:      []int{256, 1 << 10, 4 << 10, 16 << 10, maxPooled},
		MaxRetainedBytes: 1 << 20,
		NoZero:           true, // nothing reads beyond the written bytes
		Debug:            debug,
	})
	if err != nil {
		panic(err) // the constants of this file are invalid
	}
	return p
}

// maxPooled is the size above which buffers are left to the garbage collector.
const maxPooled = 64 << 10

// textOf is like text for a byte slice, which it does not retain.
func (l Leaf) textOf(dst, b []byte) []byte {
	return l.text(dst, unsafe.String(unsafe.SliceData(b), len(b)))
}
