package experiments

import (
	"io"
	"sync"
)

// A ladder is what the variants of this file share: the steps by which the writer of the
// page on experiments became mutexWriter, and what came on top of it.
type ladder struct {
	*pipe
	mu      sync.Mutex
	cur     *buffer
	records int64
	bytes   int64
	drops   bool // the policy is to drop: only then is anything counted by record
}

func newLadder(dst io.Writer, size, count int) ladder {
	p := newPipe(dst, size, count)
	return ladder{pipe: p, cur: <-p.free}
}

func (w *ladder) Drain() error { return w.end(w.cur) }

// swap passes the current buffer on.
func (w *ladder) swap() *buffer {
	w.full <- w.cur
	w.cur = <-w.free
	return w.cur
}

// tornWriter fills each buffer to its last byte: a record may stand in two of them.
type tornWriter struct{ ladder }

func (w *tornWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	for rest := p; len(rest) > 0; {
		b := w.cur
		if b.n == len(b.p) {
			b = w.swap()
		}
		n := copy(b.p[b.n:], rest)
		b.n += n
		rest = rest[n:]
	}
	w.records++
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

// loopWriter swaps early, so that no record is torn, and keeps the loop.
type loopWriter struct{ ladder }

func (w *loopWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	if len(w.cur.p)-w.cur.n < len(p) {
		w.swap()
	}
	for rest := p; len(rest) > 0; {
		b := w.cur
		if b.n == len(b.p) {
			b = w.swap()
		}
		n := copy(b.p[b.n:], rest)
		b.n += n
		rest = rest[n:]
	}
	w.records++
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

// sometimesWriter is mutexWriter that counts records only where the policy is to drop.
type sometimesWriter struct{ ladder }

func (w *sometimesWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	b := w.cur
	if len(b.p)-b.n < len(p) {
		b = w.swap()
	}
	b.n += copy(b.p[b.n:], p)
	if w.drops {
		w.records++
	}
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

// oversizeWriter is mutexWriter that takes records larger than a buffer in memory of
// their own.
type oversizeWriter struct{ ladder }

func (w *oversizeWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	b := w.cur
	if len(b.p)-b.n < len(p) {
		b = w.swap()
		if len(p) > len(b.p) {
			w.full <- &buffer{p: append([]byte(nil), p...), n: len(p), own: true}
			w.mu.Unlock()
			return len(p), nil
		}
	}
	b.n += copy(b.p[b.n:], p)
	w.records++
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

// contained is a destination whose panics end nothing.
type contained struct{ io.Writer }

func (c contained) Write(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			n, err = 0, io.ErrClosedPipe
		}
	}()
	return c.Writer.Write(p)
}
