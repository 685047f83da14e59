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

// A scratchWriter collects its input in a buffer from Scratch.
type scratchWriter struct{ buf []byte }

func (w *scratchWriter) Write(p []byte) (int, error) {
	w.buf = append(Scratch.Grow(w.buf, len(p)), p...)
	return len(p), nil
}

// free returns the buffer.
func (w *scratchWriter) free() {
	if w.buf != nil {
		Scratch.Put(w.buf)
		w.buf = nil
	}
}

// textOf is text for a byte slice, which is not retained.
func (l Leaf) textOf(dst, b []byte) []byte {
	return l.text(dst, unsafe.String(unsafe.SliceData(b), len(b)))
}
