package forebay

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/forebay-log/forebay/batch"
)

// Optional methods of the writer of an output. A [deliver.Output] has all of them.
type (
	// A recorder accepts records one by one, with their Meta, and returns without
	// waiting for their destination: it is a buffered output. It must be safe for
	// concurrent use.
	recorder interface {
		WriteRecord(p []byte, m batch.Meta) error
	}

	// A shutdowner can be closed with a deadline.
	shutdowner interface {
		Shutdown(ctx context.Context) (batch.Report, error)
	}

	// A coded writer accepts records of one wire form only.
	coded interface{ Codec() batch.Codec }

	// A titled writer has a default name for its output.
	titled interface{ Name() string }

	// A lateRecorder is a recorder that may write in the calling goroutine. It is
	// served with the direct outputs.
	lateRecorder interface{ writesInCaller() }
)

// output is one output of a route.
type output struct {
	name   string
	level  threshold
	w      io.Writer // the writer given by the user, or made by NewRouter
	closes bool      // Router.Close closes w; set for at most one output with this writer
	opened bool      // NewRouter has created w
	first  bool      // the first output with this writer
	events *reporter

	rec     recorder  // w of a buffered output, or nil
	account accounter // w, if it keeps an account, or nil

	dir    *direct // a direct output, or nil
	shared bool    // other outputs have the same dir

	tally
}

// buffered reports whether the writer of o has memory of its own, so that a write does not wait for the
// destination.
func (o *output) buffered() bool { return o.rec != nil }

// admits reports whether o accepts records of level l from a logger whose level is own.
func (o *output) admits(l, own slog.Level) bool { return o.level.admits(l, own) }

// writeBuffered passes a record to a buffered output. If the output keeps no account, the result is
// counted here.
func (o *output) writeBuffered(p []byte, m batch.Meta) error {
	err := o.rec.WriteRecord(p, m)
	if err != nil {
		o.fail(err)
	}
	if o.account != nil {
		return err
	}
	switch {
	case err == nil:
		o.accepted.Add(1)
		o.delivered.Add(1)
	case errors.Is(err, batch.ErrClosed):
		o.refused.Add(1)
	default:
		o.accepted.Add(1)
		o.failed.Add(1)
	}
	return err
}

// writeDirect writes a record to a direct output. If several outputs share the writer, the record is
// counted for o, because the gate counts the writes of all of them.
func (o *output) writeDirect(p []byte) error {
	if !o.shared {
		return o.dir.write(p, &o.tally)
	}
	o.accepted.Add(1)
	err := o.dir.write(p, &o.tally)
	if err == nil {
		o.delivered.Add(1)
	}
	return err
}

// abandon counts a write that panicked or called runtime.Goexit. recovered is the result of recover.
func (o *output) abandon(p []byte, recovered any) error {
	if o.dir != nil {
		return o.dir.abandon(p, &o.tally, recovered)
	}
	err := unwound(recovered)
	if o.account == nil {
		o.accepted.Add(1)
		o.failed.Add(1)
	}
	o.fail(err)
	if o.panics.Add(1) == 1 {
		o.events.post(batch.Event{Output: o.name, Op: "panic", Err: err, Count: 1})
	}
	return err
}
