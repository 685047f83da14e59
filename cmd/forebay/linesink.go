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
	"github.com/forebay-log/forebay/internal/written"
)

// A lineSink is a batch.Sink for a writer of lines, for use behind a
// deliver.Outlet. It remembers how far into a record a failed write came: if that
// record is the next one it goes on from there, else it ends the torn line. Send
// may be called from several goroutines at once.
type lineSink struct {
	mu   sync.Mutex // guards the rest; held during writes
	w    io.WriteCloser
	torn []byte // the bytes of a record that were written
}

func (s *lineSink) Send(_ context.Context, b *batch.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip := 0
	if len(s.torn) > 0 && b.Len() > 0 {
		if bytes.HasPrefix(b.At(0).Data, s.torn) {
			skip = len(s.torn)
		} else if _, err := s.w.Write([]byte{'\n'}); err != nil {
			if ended(err) {
				return batch.Lost(b, 0, err)
			}
			return err
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
			return s.fail(b, r, settled, n, err)
		}
		settled += r.Len()
	}
	s.torn = s.torn[:0]
	return nil
}

// write writes p, in several calls if the writer takes only parts. It returns the
// number of bytes written.
func (s *lineSink) write(p []byte) (done int, err error) {
	err = written.All(s.w, p, &done, nil)
	return done, err
}

// fail says that b is settled up to its record number settled, plus what the
// first n bytes of r complete.
func (s *lineSink) fail(b *batch.Batch, r *batch.Run, settled, n int, err error) error {
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
	switch {
	case ended(err):
		return batch.Lost(b, settled, err)
	case settled == 0:
		return err
	}
	return batch.Prefix(settled, err)
}

// ended reports whether err means that the writer never takes anything again.
func ended(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE)
}

// Sync puts what was written on stable storage, if the writer can.
func (s *lineSink) Sync() error {
	if f, ok := s.w.(batch.Syncer); ok {
		return f.Sync()
	}
	return nil
}

// Close closes the writer.
func (s *lineSink) Close(context.Context) error { return s.w.Close() }
