package fluent

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
)

const (
	// ownScratchBytes is the size of the buffer in a valuer. Larger records of Post use
	// memory borrowed from scratch.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the size of the largest record that uses borrowed memory, and
	// maxSendBytes of the largest write. Above it, memory is allocated and left to the
	// garbage collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after
	// which a valuer stops borrowing.
	shrinkAfter = 1 << 10
)

// scratch is the pool of memory for large records and for frames.
var scratch = newScratch(false)

func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// Powers of four, frames of the default size, and windows of such frames.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only written bytes are read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // independent of the caller
	}
	return p
}

// room returns empty memory for a record of Post.
func (s *valuer) room() []byte {
	if s.want > 0 {
		s.lent, _ = scratch.Get(s.want)
		return s.lent[:0]
	}
	return s.own[:0]
}

// done returns the memory of room after rec was encoded, and adjusts the size to borrow next time. If
// the record outgrew the memory, append has moved it; the garbage collector frees that copy.
func (s *valuer) done(rec []byte) {
	if s.want == 0 && s.lent == nil && len(rec) <= ownScratchBytes {
		return
	}
	if s.lent != nil {
		scratch.Put(s.lent)
		s.lent = nil
	}
	switch n := len(rec) - s.joined; {
	case n > maxScratchBytes:
	case n > ownScratchBytes:
		s.want, s.small = max(s.want, n), 0
	default:
		if s.small++; s.small >= shrinkAfter {
			s.want, s.small = 0, 0
		}
	}
}

// most returns an upper bound of the encoded size of frames.
func (w *framer) most(frames []frame) int {
	n := 0
	for i := range frames {
		f := &frames[i]
		n += headBytes + len(f.tag) + w.bound(f.bytes)
	}
	return n
}

// bound returns an upper bound of the size of n bytes of payload after compression: deflate stores
// incompressible blocks with a few bytes of overhead.
func (w *framer) bound(n int) int {
	if w.zip == nil {
		return n
	}
	return n + n>>8 + 64
}

// whole encodes frames of l into one buffer and passes it to write.
func (w *framer) whole(l *layout, frames []frame, b *batch.Batch, write func([]byte) (int, error)) (int, error) {
	buf, _ := scratch.Get(w.most(frames))
	defer scratch.Put(buf)
	out := buf[:0]
	for i := range frames {
		out = w.append(out, l, b, &frames[i])
	}
	return write(out)
}
