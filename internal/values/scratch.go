package values

import (
	"unsafe"

	"github.com/forebay-log/forebay/bufpool"
)

// Scratch lends the memory in which values are put together that cannot be
// written straight behind the record. What exceeds its largest class is left to
// the garbage collector.
var Scratch = NewScratch(false)

func NewScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		SizeClasses:      []int{256, 1 << 10, 4 << 10, 16 << 10, maxPooled},
		MaxRetainedBytes: 1 << 20,
		NoZero:           true, // only what was written is read
		Debug:            debug,
	})
	if err != nil {
		panic(err) // nothing a caller could have caused
	}
	return p
}

// maxPooled is the size above which buffers are left to the garbage collector.
const maxPooled = 64 << 10

// A scratchWriter keeps what is written to it in a buffer of scratch.
type scratchWriter struct{ buf []byte }

func (w *scratchWriter) Write(p []byte) (int, error) {
	w.buf = append(Scratch.Grow(w.buf, len(p)), p...)
	return len(p), nil
}

// free gives the buffer back.
func (w *scratchWriter) free() {
	if w.buf != nil {
		Scratch.Put(w.buf)
		w.buf = nil
	}
}

// textOf is text of b. Nothing keeps b.
func (l Leaf) textOf(dst, b []byte) []byte {
	return l.text(dst, unsafe.String(unsafe.SliceData(b), len(b)))
}
