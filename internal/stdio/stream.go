// Package stdio implements a destination for files that were open before the program started:
// standard output and standard error.
//
//	Output ─▶ Stream ─▶ pipe, terminal, socket, regular file
//
// It is used with an Output of package deliver:
//
//	w, err := deliver.NewOutput(stdio.New(os.Stdout, "stdout"), nil)
package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
)

// pipeBuf is the number of bytes that a pipe accepts atomically. It is PIPE_BUF on Linux. POSIX
// guarantees only 512 bytes. The same limit is used for terminals.
const pipeBuf = 4096

// Stream is the deliver.Destination of a file that was open before the program started and to
// which other processes may write as well: standard output, standard error.
//
//   - A regular file receives one write per run: consecutive records in one slab.
//   - A pipe, terminal or socket receives writes of at most 4096 bytes that end at the end of a
//     record, so that lines of several processes do not mix. Only a longer record is split
//     into several writes.
//   - The mode of the file is not changed. If it is non-blocking, or another process makes it
//     so later, a write waits until there is room instead of failing with EAGAIN.
//   - If the reader is gone (EPIPE, a terminal that was hung up), or if the file is not open
//     for writing, the current write and all later ones fail with an error that wraps
//     [ErrGone]. The records are dropped with [batch.Failed].
//
// On Unix, a write to a pipe or terminal returns soon after the time limit of Close expires. On
// other systems it waits for the operating system.
//
// A Stream does not close its file. Its methods are safe for concurrent use.
type Stream struct {
	f    *os.File
	name string
	max  int  // maximum size of a write in bytes; 0: no limit
	wait bool // the file is not regular: writes may block, and the reader may close it

	mu     sync.Mutex    // held during writes; guards the fields below
	gone   error         // wraps ErrGone; set once, when the reader is gone
	done   chan struct{} // closed when gone is set
	torn   int           // number of bytes written of the incomplete record; 0: there is none
	ticket uint64        // ticket of the incomplete record
}

// ErrGone is wrapped by the errors of a [Stream] whose reader is gone; see [Stream.Gone].
var ErrGone = errors.New("its reader is gone")

// errNotOpen is the error for a file that was closed or not open for writing when the program
// started.
var errNotOpen = errors.New("it is not open for writing")

// New returns the destination that writes to f, such as os.Stdout. name is the name of f in errors.
// The caller keeps ownership of f, which must remain open while the Stream is used.
func New(f *os.File, name string) *Stream {
	s := &Stream{f: f, name: name, max: pipeBuf, wait: true, done: make(chan struct{})}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		s.max, s.wait = 0, false
	}
	return s
}

// Check returns an error if no record can arrive. Either the file is not open for writing, or it is
// a standard stream that was closed when the program started. For such a stream, the Go runtime
// opens /dev/null for reading and writing, which Check rejects. A /dev/null that is open only for
// writing passes. On systems other than Unix, Check only detects closed files.
func (s *Stream) Check() error {
	if err := checkOpen(s.f); err != nil {
		return fmt.Errorf("file: cannot write %s: %w", s.name, err)
	}
	return nil
}

// Gone returns a channel that is closed when the reader is gone.
func (s *Stream) Gone() <-chan struct{} { return s.done }

// Traits implements deliver.Destination.
func (s *Stream) Traits() deliver.Traits { return deliver.Traits{Inline: true} }

// Open implements deliver.Destination.
func (s *Stream) Open(l deliver.Life) (deliver.Session, error) { return session{s, l}, nil }

// A session passes batches to the Stream, which answers them within Send. The Stream, not the
// session, stores the incomplete record, because the next session must continue it.
type session struct {
	s    *Stream
	life deliver.Life
}

// Close does nothing, because a Stream does not close its file. It implements deliver.Session.
func (x session) Close() {}

// Send writes b and answers it. It implements deliver.Session.
func (x session) Send(b *batch.Batch) error {
	x.life.Answer(b, x.s.send(x.life.Context(), b))
	return nil
}

// send writes b and returns its outcome. If the previous write left an incomplete record in the
// file, and b does not begin with this record, send first writes a newline.
func (s *Stream) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return gone(0, s.gone)
	}
	skip := 0
	if s.torn > 0 {
		if b.First() == s.ticket {
			skip = s.torn
		} else if _, err := s.write(ctx, []byte{'\n'}); err != nil { // the incomplete record is not sent again, so its line is ended
			return s.fail(b, 0, 0, err)
		}
		s.torn = 0
	}
	settled := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		for from := 0; from < r.Len(); {
			to := s.upTo(r, from)
			part := r.Slice(from, to)
			data := part.Data()
			n, err := s.write(ctx, data[skip:])
			if err != nil {
				k, rest := completeRecords(&part, skip+n)
				return s.fail(b, settled+k, rest, err)
			}
			settled += to - from
			from, skip = to, 0
		}
	}
	return batch.Outcome{}
}

// upTo returns the end index of the records that the next write may contain, if it begins with the
// record at index from. The write contains at least one record.
func (s *Stream) upTo(r *layout.Run, from int) int {
	if s.max == 0 {
		return r.Len()
	}
	n, to := 0, from
	for to < r.Len() {
		if n += int(r.Slot(to).Len); n > s.max && to > from {
			break
		}
		to++
	}
	return to
}

// completeRecords returns how many records of r are complete in its first n bytes. rest is the
// number of bytes after the last complete record.
func completeRecords(r *layout.Run, n int) (records, rest int) {
	for records < r.Len() && n >= int(r.Slot(records).Len) {
		n -= int(r.Slot(records).Len)
		records++
	}
	return records, n
}

// fail returns the outcome of b after the write of record k has failed with err. The records before
// k are delivered. torn is the number of bytes of record k that are written.
func (s *Stream) fail(b *batch.Batch, k, torn int, err error) batch.Outcome {
	err = fmt.Errorf("file: cannot write %s: %w", s.name, vfs.Cause(err))
	if s.wait && readerGone(err) || errors.Is(err, syscall.EBADF) || errors.Is(err, os.ErrClosed) { // EIO of a regular file is a disk error, not a closed reader
		s.gone = fmt.Errorf("%w: %w", err, ErrGone)
		close(s.done)
		return gone(k, s.gone)
	}
	if k >= b.Len() {
		return batch.Outcome{}
	}
	s.torn, s.ticket = torn, b.At(k).Ticket
	return batch.Outcome{Open: batch.From(k), Why: err}
}

// gone returns an outcome that drops the records from k on.
func gone(k int, err error) batch.Outcome {
	return batch.Outcome{Open: batch.From(k), Why: err, Advice: batch.Gone}
}

// Sync writes the data of a regular file to stable storage. For other files it does nothing.
func (s *Stream) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait {
		return nil
	}
	if err := s.f.Sync(); err != nil {
		return fmt.Errorf("file: cannot sync %s: %w", s.name, vfs.Cause(err))
	}
	return nil
}
