package fluent

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
)

// Sizes of memory, in bytes, and the condition for returning to a smaller size.
const (
	// ownScratchBytes is the size of the buffer that each valuer owns. Most records fit. Post
	// borrows memory from scratch for larger records.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the size of the largest record that uses borrowed memory: the default of
	// MaxRecord, 1 MiB, and space for the beginning of the entry. maxSendBytes is the size of the
	// largest write from borrowed memory. Larger memory is allocated and left to the garbage
	// collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after which a
	// valuer stops borrowing.
	shrinkAfter = 1 << 10
)

// scratch is the pool of memory for large records and for frames. All Drivers of the process share
// it.
var scratch = newScratch(false)

// newScratch returns a pool. With debug, the pool detects memory that is used after it was
// returned. Only tests set debug.
func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// The sizes are powers of four, frames of the default size, and windows of such frames.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only written bytes are read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // the configuration is constant
	}
	return p
}

// buffer returns an empty slice with memory for a record of Post. It is ownBuf of s or, if recent
// records were larger, borrowed memory of their size. The caller must call releaseBuffer.
func (s *valuer) buffer() []byte {
	if s.borrowSize > 0 {
		s.borrowed, _ = scratch.Get(s.borrowSize)
		return s.borrowed[:0]
	}
	return s.ownBuf[:0]
}

// releaseBuffer returns the memory of buffer, and adapts the size of the next borrowed memory to
// the size of rec, the encoded record. If rec did not fit, append has moved it to memory that the
// garbage collector frees. For the next record, buffer then borrows enough memory for a record of
// that size.
func (s *valuer) releaseBuffer(rec []byte) {
	if s.borrowSize == 0 && s.borrowed == nil && len(rec) <= ownScratchBytes {
		return
	}
	if s.borrowed != nil {
		scratch.Put(s.borrowed)
		s.borrowed = nil
	}
	switch n := len(rec) - s.insertedBytes; { // spliced strings use no memory of the valuer if a slab has space for them
	case n > maxScratchBytes:
	case n > ownScratchBytes:
		s.borrowSize, s.smallRecords = max(s.borrowSize, n), 0
	default:
		if s.smallRecords++; s.smallRecords >= shrinkAfter {
			s.borrowSize, s.smallRecords = 0, 0
		}
	}
}

// maxSize returns an upper bound of the encoded size of frames, in bytes.
func (w *framer) maxSize(frames []frame) int {
	n := 0
	for i := range frames {
		f := &frames[i]
		n += headBytes + len(f.tag) + w.bound(f.bytes)
	}
	return n
}

// bound returns an upper bound of the size of n bytes of payload after compression. For
// incompressible data, gzip and zstd write the data unchanged, with a header of a few bytes per
// block and a frame header.
func (w *framer) bound(n int) int {
	if w.zip == nil {
		return n
	}
	return n + n>>8 + 64
}

// writeCopies encodes frames of l into one buffer and passes it to one call of write. The buffer is
// valid until write returns.
func (w *framer) writeCopies(l *layout, frames []frame, b *batch.Batch, write func([]byte) (int, error)) (int, error) {
	buf, _ := scratch.Get(w.maxSize(frames))
	defer scratch.Put(buf)
	out := buf[:0]
	for i := range frames {
		out = w.append(out, l, b, &frames[i])
	}
	return write(out)
}
