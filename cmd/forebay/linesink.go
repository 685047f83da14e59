package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/written"
)

// A lineDest is a destination that writes lines. It remembers how far into a record a
// failed write came: if that record is the next one it goes on from there, else it ends
// the torn line.
type lineDest struct {
	deliver.Destination
	w io.WriteCloser

	mu   sync.Mutex // held during writes; guards the rest
	torn []byte     // the bytes of a record that were written
}

func newLineDest(w io.WriteCloser) *lineDest {
	s := &lineDest{w: w}
	s.Destination = deliver.SendFunc(deliver.Traits{}, s.send)
	return s
}

func (s *lineDest) send(_ context.Context, b *batch.Batch) batch.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip := 0
	if len(s.torn) > 0 && b.Len() > 0 {
		if bytes.HasPrefix(b.At(0).Data, s.torn) {
			skip = len(s.torn)
		} else if _, err := s.w.Write([]byte{'\n'}); err != nil {
			return failed(0, err)
		}
	}
	settled := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		data := r.Data()
		n, err := s.write(data[skip:])
		n += skip
		skip = 0
		if err != nil {
			return s.fail(r, settled, n, err)
		}
		settled += r.Len()
	}
	s.torn = s.torn[:0]
	return batch.Outcome{}
}

// write writes p, in several calls if the writer takes only parts. It returns the
// number of bytes written.
func (s *lineDest) write(p []byte) (done int, err error) {
	err = written.All(s.w, p, &done, nil)
	return done, err
}

// fail says that a batch is settled up to its record number settled, plus what the first
// n bytes of its run r complete.
func (s *lineDest) fail(r *batch.Run, settled, n int, err error) batch.Outcome {
	s.torn = s.torn[:0]
	for i := range r.Len() {
		rec := r.Record(i)
		if n < len(rec) {
			s.torn = append(s.torn, rec[:n]...)
			break
		}
		n -= len(rec)
		settled++
	}
	return failed(settled, err)
}

// failed is the answer to a batch after its first n records were written.
func failed(n int, err error) batch.Outcome {
	o := batch.Outcome{Open: batch.From(n), Why: err}
	if ended(err) {
		o.Advice = batch.Gone
	}
	return o
}

// ended reports whether err means that the writer never takes anything again.
func ended(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE)
}

// Close closes the writer.
func (s *lineDest) Close(context.Context) error { return s.w.Close() }
