package fluent

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
)

const (
	// ownScratchBytes is what a valuer has for a record of Post. Larger ones go
	// through borrowed memory.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the largest record that memory is borrowed for, and
	// maxSendBytes the most that is borrowed to put frames together: what is
	// larger is left to the garbage collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of records in a row that would have fitted
	// ownScratchBytes after which a valuer no longer borrows.
	shrinkAfter = 1 << 10
)

// scratch lends the memory of large records and of frames while they are written.
var scratch = newScratch(false)

func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// Beside powers of four, frames of the default size and windows of them.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only what was written is read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // nothing a caller could have caused
	}
	return p
}

// room returns memory for the record of a Post.
func (s *valuer) room() []byte {
	if s.want > 0 {
		s.lent, _ = scratch.Get(s.want)
		return s.lent[:0]
	}
	return s.own[:0]
}

// done gives back what room has returned, as rec is now, and learns what to
// borrow next time. Where the record outgrew its memory, append has moved it to
// some of its own, which is dropped.
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

// most is more bytes than frames take on the wire.
func (w *framer) most(frames []frame) int {
	n := 0
	for i := range frames {
		f := &frames[i]
		n += headBytes + len(f.tag) + w.bound(f.bytes)
	}
	return n
}

// bound is what n bytes of payload become at most: deflate has blocks that hold
// bytes as they are, and a few more for each.
func (w *framer) bound(n int) int {
	if w.zip == nil {
		return n
	}
	return n + n>>8 + 64
}

// whole puts frames of l together and calls write with them.
func (w *framer) whole(l *layout, frames []frame, b *batch.Batch, write func([]byte) (int, error)) (int, error) {
	buf, _ := scratch.Get(w.most(frames))
	defer scratch.Put(buf)
	out := buf[:0]
	for i := range frames {
		out = w.append(out, l, b, &frames[i])
	}
	return write(out)
}
