package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// A SlabWriter puts memory between a program and a slow [io.Writer]. A call copies its record into
// a slab and returns. One goroutine writes whole slabs to the writer.
//
//	Write ─▶ slab, slab, slab ─▶ goroutine ─▶ io.Writer
//
// It is for loggers that write encoded lines to an io.Writer, such as zap, zerolog and the
// standard log package:
//
//	sw, err := forebay.NewSlabWriter(conn, nil)
//	if err != nil {
//		…
//	}
//	defer sw.Close()
//	log.SetOutput(sw)
//
// Each Write is one record. Records are written in the order of the calls and never split
// between two slabs. A failed write is retried and resumes at the byte where it stopped. A
// SlabWriter is also an output of a [Router]. All methods are safe for concurrent use, including
// during and after Close.
type SlabWriter struct{ out *deliver.Output }

// NewSlabWriter returns a SlabWriter in front of w. The fields of o are the size and the number of
// slabs, the flush interval, the policy for full memory and other options. A nil o means the
// default of each. w is used by one goroutine at a time and is not closed. The error names all
// invalid options. Close ends the goroutine.
func NewSlabWriter(w io.Writer, o *slab.Options) (*SlabWriter, error) {
	var setup Setup
	if o != nil {
		setup.Slab = *o
	}
	setup.Name, setup.Codec, setup.CloseTimeout, setup.OnError = setup.Slab.Name, setup.Slab.Codec, setup.Slab.CloseTimeout, setup.Slab.OnError
	dest, err := openStream(&stream{w: w, name: "slab"}, &setup)
	if err == nil && (setup.Slab.WhenFull == slab.Spill() || setup.Slab.ImportantWhenFull == slab.Spill()) {
		err = errors.New(`WhenFull is "spill", but a SlabWriter has no spool; use Writer with the option Spool`)
	}
	if err == nil {
		var out *deliver.Output
		if out, err = deliver.NewOutput(dest, &setup.OutputOptions); err == nil {
			return &SlabWriter{out}, nil
		}
	}
	return nil, fmt.Errorf("forebay: cannot make slab writer: %w", err)
}

// Write copies p, one record, into a slab. If memory is full, it waits or drops the record, see
// WhenFull of [slab.Options]. If a record is dropped, it is counted, and the error is nil. For
// a record larger than MaxRecord the error wraps slab.ErrOversize; after Close it wraps
// [batch.ErrClosed].
func (s *SlabWriter) Write(p []byte) (int, error) { return s.out.Write(p) }

// WriteRecord is like Write for a record with known time and level. The error wraps
// slab.ErrDropped if the record was dropped.
func (s *SlabWriter) WriteRecord(p []byte, m batch.Meta) error { return s.out.WriteRecord(p, m) }

// Flush waits until all records accepted earlier are written or dropped, or until ctx ends.
func (s *SlabWriter) Flush(ctx context.Context) error { return s.out.Flush(ctx) }

// Sync flushes within CloseTimeout, and then calls the method Sync of the writer if it has one.
func (s *SlabWriter) Sync() error { return s.out.Sync() }

// Close refuses new records and writes the accepted ones, within CloseTimeout (default 5 s). The
// error is nil if no record was lost. Close may be called more than once.
func (s *SlabWriter) Close() error { return s.out.Close() }

// Stats returns a snapshot of the counters. It does not wait for the writer.
func (s *SlabWriter) Stats() deliver.OutputStats { return s.out.Stats() }

// unwrapWriter returns the output inside a SlabWriter, because the Router needs methods that a
// SlabWriter does not export. It returns any other w unchanged.
func unwrapWriter(w io.Writer) io.Writer {
	if s, ok := w.(*SlabWriter); ok && s != nil {
		return s.out
	}
	return w
}
