package fluent

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
)

const (
	// ownScratchBytes is the size of the buffer in a valuer, in bytes. Most records fit. Larger
	// records of Post use memory borrowed from scratch.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the size of the largest record that uses borrowed memory: the default
	// of MaxRecord, 1 MiB, and room for the beginning of the entry. maxSendBytes is the size of
	// the largest write from borrowed memory. Larger memory is allocated and left to the garbage
	// collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after
	// which a valuer stops borrowing.
	shrinkAfter = 1 << 10
)

// scratch is the pool of memory for large records and for frames. All Drivers of the process share it.
var scratch = newScratch(false)

// newScratch returns a pool. debug makes the pool detect memory that is used after its return; only
// tests set it.
func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// Powers of four, frames of the default size, and windows of such frames.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only written bytes are read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // the configuration is constant
	}
	return p
}

// room returns an empty slice with memory for a record of Post: the buffer of s or, if recent records
// were larger, borrowed memory of their size. The caller returns it with done.
func (s *valuer) room() []byte {
	if s.want > 0 {
		s.lent, _ = scratch.Get(s.want)
		return s.lent[:0]
	}
	return s.own[:0]
}

// done returns the memory of room, and adjusts the size to borrow next time from the size of rec, the
// encoded record. If rec outgrew the memory, append has moved it, and the garbage collector frees the
// copy; the next record of that size then borrows enough.
func (s *valuer) done(rec []byte) {
	if s.want == 0 && s.lent == nil && len(rec) <= ownScratchBytes {
		return
	}
	if s.lent != nil {
		scratch.Put(s.lent)
		s.lent = nil
	}
	switch n := len(rec) - s.joined; { // joined strings need no memory if a slab has room for them
	case n > maxScratchBytes:
	case n > ownScratchBytes:
		s.want, s.small = max(s.want, n), 0
	default:
		if s.small++; s.small >= shrinkAfter {
			s.want, s.small = 0, 0
		}
	}
}

// most returns an upper bound of the encoded size of frames, in bytes.
func (w *framer) most(frames []frame) int {
	n := 0
	for i := range frames {
		f := &frames[i]
		n += headBytes + len(f.tag) + w.bound(f.bytes)
	}
	return n
}

// bound returns an upper bound of the size of n bytes of payload after compression. gzip and zstd store
// incompressible blocks as they are, with a header of a few bytes per block, and add a frame header.
func (w *framer) bound(n int) int {
	if w.zip == nil {
		return n
	}
	return n + n>>8 + 64
}

// whole encodes frames of l into one buffer, which it passes to write in one call. The buffer is valid
// until write returns.
func (w *framer) whole(l *layout, frames []frame, b *batch.Batch, write func([]byte) (int, error)) (int, error) {
	buf, _ := scratch.Get(w.most(frames))
	defer scratch.Put(buf)
	out := buf[:0]
	for i := range frames {
		out = w.append(out, l, b, &frames[i])
	}
	return write(out)
}
