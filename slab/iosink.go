package slab

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/written"
)

// ioSink delivers to an io.Writer. It remembers how far into a record a failed
// write came, and goes on from there, so that no line is torn.
type ioSink struct {
	w io.Writer

	vec  VecWriter // nil: one slab at a time
	bufs [][]byte

	torn   int    // bytes of the record below that are written already
	ticket uint64 // the torn record

	report func(error) // told the first time that the destination miscounts
	lied   bool
}

// maxNoProgress is how many times in a row a destination may take nothing and
// report no error.
const maxNoProgress = 8

func (s *ioSink) Send(_ context.Context, b *batch.Batch) error {
	skip := 0
	if s.torn > 0 {
		if b.First() == s.ticket {
			skip = s.torn
		} else if _, err := s.writeAll([]byte{'\n'}); err != nil { // it was given up: end its line
			if err = permanent(err); batch.Inspect(err).Kind == batch.KindReject {
				return batch.Lost(b, 0, err)
			}
			return err
		}
	}
	if s.vec != nil && len(b.Runs) > 1 {
		return s.sendVec(b, skip)
	}
	done := 0 // bytes of b that are written
	for i := range b.Runs {
		data := b.Runs[i].Data()
		n, err := s.writeAll(data[skip:])
		done += skip + n
		skip = 0
		if err != nil {
			return s.fail(b, done, err)
		}
	}
	s.torn = 0
	return nil
}

// sendVec writes several slabs in one call.
func (s *ioSink) sendVec(b *batch.Batch, skip int) error {
	s.bufs = s.bufs[:0]
	first := skip
	for i := range b.Runs {
		s.bufs = append(s.bufs, b.Runs[i].Data()[skip:])
		skip = 0
	}
	n, err := s.vec.Writev(s.bufs)
	clear(s.bufs)
	more, err := s.credible(n, b.Bytes()-first, err)
	done := first + more
	if err == nil && done < b.Bytes() {
		err = io.ErrShortWrite
	}
	if err != nil {
		return s.fail(b, done, err)
	}
	s.torn = 0
	return nil
}

// writeAll finishes short writes. It returns the number of bytes written.
func (s *ioSink) writeAll(p []byte) (done int, err error) {
	for idle := 0; done < len(p); {
		count, err := s.w.Write(p[done:])
		n, err := s.credible(int64(count), len(p)-done, err)
		done += n
		if err != nil {
			return done, err
		}
		if n > 0 {
			idle = 0
		} else if idle++; idle == maxNoProgress {
			return done, io.ErrNoProgress
		}
	}
	return done, nil
}

// credible returns what to believe of a destination that said it has written n of
// size bytes. The first lie is told.
func (s *ioSink) credible(n int64, size int, err error) (int, error) {
	done, lie, err := written.Count(n, size, err)
	if lie != nil && !s.lied && s.report != nil {
		s.lied = true
		s.report(lie)
	}
	return done, err
}

// fail finds the record at which byte done of b lies.
func (s *ioSink) fail(b *batch.Batch, done int, err error) error {
	k := 0
	for i, r := range b.All() {
		if done < len(r.Data) || len(r.Data) == 0 && done == 0 {
			s.ticket, k = r.Ticket, i
			break
		}
		done -= len(r.Data)
		k = i + 1
	}
	s.torn = done
	err = permanent(err)
	if batch.Inspect(err).Kind == batch.KindReject {
		return batch.Lost(b, k, err)
	}
	if k == 0 {
		return err
	}
	return batch.Prefix(k, err)
}

// permanent marks errors after which this destination never takes anything
// again: its file, pipe or connection is gone.
func permanent(err error) error {
	for _, gone := range []error{os.ErrClosed, net.ErrClosed, io.ErrClosedPipe, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return batch.Permanent(err)
		}
	}
	return err
}

// Flush flushes a destination that buffers, such as a bufio.Writer.
func (s *ioSink) Flush(context.Context) error {
	if f, ok := s.w.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// Sync puts what was written on stable storage, if the destination can.
func (s *ioSink) Sync() error {
	if f, ok := s.w.(batch.Syncer); ok {
		return f.Sync()
	}
	return nil
}

// Close closes the destination, if it can be closed. The Writer calls it only
// when it was told to.
func (s *ioSink) Close() error {
	if c, ok := s.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
