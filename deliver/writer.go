package deliver

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vectors"
	"github.com/forebay-log/forebay/internal/written"
)

// ToWriter returns a Destination that writes records to w unchanged. Every Write ends at the end of
// a record. A short write is continued; after an error the next attempt resumes at the byte where w
// stopped, so that no line is torn or duplicated. Errors are retried as for any destination, except
// errors that mean that w is gone (a closed file or pipe, EPIPE): then records are dropped with
// [batch.Failed].
//
// Each Write passes at most one slab. If other programs write to the same pipe or terminal, lines can
// mix: for standard output and error use forebay.Console or forebay.Writer.
//
// If w has a method Writev(bufs [][]byte) (int64, error), like writev(2), it receives several slabs
// at once when they have queued up; it must not keep bufs. A regular *os.File also gets several
// slabs at once. If w has a method Room() int64, it must return the number of bytes for which w has
// room, such as the rest of a file.File before rotation. If more bytes are pending, they are
// written in parts of whole records that fit, each of at least one record. If w has a method
// Flush() error or Sync() error, [Output.Flush] and [Output.Sync] call it, and [Output.Close] calls
// both. w is used by one goroutine at a time. It is not closed; to close it use [ToWriteCloser].
// For a nil w, or a nil pointer, the result is a nil Destination, which [NewOutput] refuses.
func ToWriter(w io.Writer) Destination {
	if w == nil || isNilPointer(w) {
		return nil
	}
	d := &writer{w: w, writev: writevOf(w)}
	d.room, _ = w.(interface{ Room() int64 })
	return d
}

// ToWriteCloser is [ToWriter] for a w that is closed with the Output.
func ToWriteCloser(w io.WriteCloser) Destination {
	d, _ := ToWriter(w).(*writer)
	if d == nil {
		return nil
	}
	return &writeCloser{d, w}
}

// isNilPointer reports whether w is a nil pointer in an interface, such as the *os.File of a failed
// Open.
func isNilPointer(w io.Writer) bool {
	v := reflect.ValueOf(w)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// writer is the driver of an io.Writer. Its sessions have no state. The driver stores where an
// incomplete write stopped, so that the next session resumes there. One goroutine at a time calls
// the driver, so it needs no lock.
type writer struct {
	w      io.Writer
	writev func(bufs [][]byte) (int64, error) // nil: w accepts one slab at a time only
	room   interface{ Room() int64 }          // returns the number of bytes that fit into the current file; nil: no limit
	bufs   [][]byte

	done       int // number of written bytes of the batch in flight
	at         stop
	miscounted bool
	report     func(error) // called when w first returns a wrong count
}

// A stop is the position at which an incomplete Send ended. It names a record instead of an offset
// in the batch: the next batch may begin at another record, or the record may have been dropped.
type stop struct {
	origin [16]byte
	ticket uint64 // ticket of the record in which the Send ended
	torn   int    // number of written bytes of that record
	again  bool   // the Send did not return, so the records before this one are sent again
}

// reportTo sets the function that is called when w first returns a wrong count.
func (d *writer) reportTo(report func(error)) { d.report = report }

func (d *writer) Traits() Traits { return Traits{Inline: true, Vectors: d.writev != nil} }

// Open begins a session, which has no state.
func (d *writer) Open(l Life) (Session, error) { return sendSession{d.send, l}, nil }

// send writes b from the position at which the last Send stopped. If the partly written record is
// not in b, send first appends a newline, so that the next record begins on a new line.
func (d *writer) send(_ context.Context, b *batch.Batch) batch.Outcome {
	skip, over := d.resume(b)
	if over {
		if err := d.endLine(); err != nil {
			return outcomeOfWrite(b, 0, err)
		}
	}
	d.done = skip
	// If w panics or calls runtime.Goexit, the number of written bytes is unknown, and the deferred
	// function stores the last known position.
	returned := false
	defer func() {
		if !returned {
			d.note(b)
			d.at.again = true
		}
	}()
	err := d.write(b)
	returned = true
	if err != nil {
		k := d.note(b)
		return outcomeOfWrite(b, k, err)
	}
	if !d.at.again || b.Last() >= d.at.ticket {
		d.at = stop{}
	}
	return batch.Outcome{}
}

// outcomeOfWrite returns the outcome of b if k of its records were written before err occurred. A
// closed file or pipe never accepts anything again.
func outcomeOfWrite(b *batch.Batch, k int, err error) batch.Outcome {
	if k >= b.Len() {
		return batch.Outcome{}
	}
	o := batch.FailedOutcome(err)
	o.Open = batch.From(k)
	for _, gone := range []error{os.ErrClosed, net.ErrClosed, io.ErrClosedPipe, syscall.EPIPE} {
		if errors.Is(err, gone) {
			o.Advice = batch.Gone
		}
	}
	return o
}

// resume returns the number of bytes of b that are already written. The result over is true if a
// partly written record will not be sent again.
func (d *writer) resume(b *batch.Batch) (skip int, over bool) {
	s := &d.at
	if s.torn == 0 && !s.again {
		return 0, false
	}
	// A batch of another process or output cannot contain the partly written record.
	if b.Origin != s.origin {
		return 0, s.torn > 0
	}
	for _, r := range b.All() {
		switch {
		case r.Ticket == s.ticket:
			return skip + s.torn, false
		case r.Ticket > s.ticket || !s.again:
			return skip, s.torn > 0
		}
		skip += len(r.Data)
	}
	return skip, false // a later batch has the partly written record
}

// endLine ends the partial line of a record that is not sent again.
func (d *writer) endLine() error {
	n := 0
	err := written.All(d.w, []byte{'\n'}, &n, d.miscount)
	if n > 0 {
		d.at.torn = 0
	}
	return err
}

// write writes the missing bytes of b. If w has too little room, write passes whole records in
// several parts, so that a rotation divides no record between two files.
func (d *writer) write(b *batch.Batch) error {
	if d.room == nil || int64(b.Bytes()-d.done) <= d.room.Room() {
		return d.writeTo(b, b.Bytes())
	}
	room, end, next := d.room.Room(), d.done, 0
	for _, r := range b.All() {
		next += len(r.Data)
		if next <= d.done {
			continue
		}
		// The next record does not fit into the current file. The records before it are written
		// now, so that w can rotate.
		if end > d.done && int64(next-d.done) > room {
			if err := d.writeTo(b, end); err != nil {
				return err
			}
			room = d.room.Room()
		}
		end = next
	}
	return d.writeTo(b, end)
}

// writeTo writes the missing bytes of the first end bytes of b.
func (d *writer) writeTo(b *batch.Batch, end int) error {
	d.bufs = d.bufs[:0]
	at, want := 0, end-d.done
	for i := range b.Runs {
		data := b.Runs[i].Data()
		from, to := max(d.done-at, 0), min(end-at, len(data))
		at += len(data)
		if from < to {
			d.bufs = append(d.bufs, data[from:to])
		}
	}
	// The buffers refer to slabs, which may be reused after this call.
	defer func() { clear(d.bufs) }()
	if d.writev == nil || len(d.bufs) < 2 {
		for _, data := range d.bufs {
			if err := written.All(d.w, data, &d.done, d.miscount); err != nil {
				return err
			}
		}
		return nil
	}
	n, err := d.writev(d.bufs)
	more, wrong, err := written.Count(n, want, err)
	if wrong != nil {
		d.miscount(wrong)
	}
	d.done += more
	if err == nil && more < want {
		err = io.ErrShortWrite
	}
	return err
}

// miscount reports the first wrong count that w returned.
func (d *writer) miscount(err error) {
	if !d.miscounted && d.report != nil {
		d.miscounted = true
		d.report(err)
	}
}

// note stores the position at which the write stopped: the record of b with the first unwritten
// byte. It returns the index of that record.
func (d *writer) note(b *batch.Batch) (k int) {
	left := d.done
	for i, r := range b.All() {
		if left < len(r.Data) || len(r.Data) == 0 && left == 0 {
			d.at = stop{origin: b.Origin, ticket: r.Ticket, torn: left}
			return i
		}
		left -= len(r.Data)
	}
	d.at = stop{origin: b.Origin, ticket: b.Last() + 1}
	return b.Len()
}

// Flush flushes a writer that buffers, such as a bufio.Writer. It makes a file.File check its path.
func (d *writer) Flush(context.Context) error {
	switch w := d.w.(type) {
	case interface{ Flush() error }:
		return w.Flush()
	case interface{ Check() error }:
		return w.Check()
	}
	return nil
}

// buffers reports whether the writer may keep accepted bytes until it is flushed.
func (d *writer) buffers() bool {
	_, ok := d.w.(interface{ Flush() error })
	return ok
}

// Sync syncs the writer to stable storage, if it supports that.
func (d *writer) Sync() error {
	if f, ok := d.w.(syncer); ok {
		if err := f.Sync(); !written.CannotSync(err) {
			return err
		}
	}
	return nil
}

// writeCloser is a writer that is closed with the outlet.
type writeCloser struct {
	*writer
	c io.Closer
}

func (d *writeCloser) Close(context.Context) error { return d.c.Close() }

// writevOf returns the function that writes several slabs to w in one system call, like writev(2).
// It returns nil if w accepts one slab at a time only, such as a pipe or a terminal. For a file one
// call takes a third less time than one write for each slab. The function returns the number of
// bytes written, with an error if that is not all of them. It does not keep the buffers.
func writevOf(w io.Writer) func(bufs [][]byte) (int64, error) {
	switch d := w.(type) {
	case interface {
		Writev(bufs [][]byte) (int64, error)
	}:
		return d.Writev
	case *os.File:
		if st, err := d.Stat(); err == nil && st.Mode().IsRegular() && vectors.Have {
			return func(bufs [][]byte) (int64, error) { return vectors.Write(d, bufs) }
		}
	}
	return nil
}
