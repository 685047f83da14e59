package slab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/written"
)

// ioSink delivers to an io.Writer. It remembers how far a write came that failed,
// panicked or ended its goroutine, and goes on from there, so that no line is torn and
// none comes twice.
type ioSink struct {
	w io.Writer

	vec  vecWriter // nil: one slab at a time
	bufs [][]byte

	done   int    // bytes of the batch under way that are written
	torn   int    // bytes of the record below that are written already
	ticket uint64 // the torn record
	again  bool   // a Send did not return: what it wrote before that record comes again
	owed   []byte // what is missing of a marker, which nobody sends again

	report func(error) // told the first time that the destination miscounts
	lied   bool
}

func (s *ioSink) Send(_ context.Context, b *batch.Batch) error {
	skip, whole := s.written(b)
	if s.torn > 0 && whole {
		if err := s.endLine(); err != nil {
			if err = permanent(err); batch.Inspect(err).Kind == batch.KindReject {
				return batch.Lost(b, 0, err)
			}
			return err
		}
	}
	s.done, s.torn, s.again = skip, 0, false
	returned := false
	defer func() {
		if !returned {
			s.note(b)
			s.again = s.owed == nil
		}
	}()
	err := s.write(b)
	returned = true
	if err != nil {
		return s.fail(b, err)
	}
	return nil
}

// written returns how much of b is written already, and whether that is whole records.
func (s *ioSink) written(b *batch.Batch) (n int, whole bool) {
	if !s.again {
		if s.torn > 0 && s.owed == nil && b.First() == s.ticket {
			return s.torn, false
		}
		return 0, true
	}
	for _, r := range b.All() {
		if r.Ticket == s.ticket {
			return n + s.torn, s.torn == 0
		}
		if r.Ticket > s.ticket {
			break
		}
		n += len(r.Data)
	}
	return n, true
}

// endLine ends the line of a record that was given up, or of a marker.
func (s *ioSink) endLine() error {
	rest := s.owed
	if rest == nil {
		rest = []byte{'\n'}
	}
	n := 0
	defer func() {
		if s.owed = rest[n:]; len(s.owed) == 0 {
			s.owed, s.torn = nil, 0
		}
	}()
	return written.All(s.w, rest, &n, s.tell)
}

// write writes what is missing of b.
func (s *ioSink) write(b *batch.Batch) error {
	if s.vec != nil && len(b.Runs) > 1 {
		return s.writeVec(b)
	}
	skip := s.done
	for i := range b.Runs {
		data := b.Runs[i].Data()
		from := min(skip, len(data))
		skip -= from
		if err := written.All(s.w, data[from:], &s.done, s.tell); err != nil {
			return err
		}
	}
	return nil
}

// writeVec writes several slabs in one call.
func (s *ioSink) writeVec(b *batch.Batch) error {
	s.bufs = s.bufs[:0]
	skip := s.done
	for i := range b.Runs {
		data := b.Runs[i].Data()
		from := min(skip, len(data))
		skip -= from
		if from < len(data) {
			s.bufs = append(s.bufs, data[from:])
		}
	}
	n, err := s.vec.Writev(s.bufs)
	clear(s.bufs)
	more, lie, err := written.Count(n, b.Bytes()-s.done, err)
	s.tell(lie)
	s.done += more
	if err == nil && s.done < b.Bytes() {
		err = io.ErrShortWrite
	}
	return err
}

// tell reports the first lie.
func (s *ioSink) tell(lie error) {
	if lie != nil && !s.lied && s.report != nil {
		s.lied = true
		s.report(lie)
	}
}

// note finds the record at which the first byte of b lies that is not written, notes
// it, and returns its index.
func (s *ioSink) note(b *batch.Batch) (k int) {
	done := s.done
	for i, r := range b.All() {
		k = i
		if done < len(r.Data) || len(r.Data) == 0 && done == 0 {
			s.ticket, s.torn = r.Ticket, done
			if r.Ticket == 0 && done > 0 {
				s.owed = bytes.Clone(r.Data[done:])
			}
			return k
		}
		done -= len(r.Data)
	}
	s.torn = done
	return k + 1
}

// fail is the answer to a write that failed.
func (s *ioSink) fail(b *batch.Batch, err error) error {
	k := s.note(b)
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
