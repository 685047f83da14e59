package forebay

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/forebay-log/forebay/batch"
)

// Interfaces of the optional methods of an output's writer. A [deliver.Output] has all of them.
type (
	// A recorder accepts records one by one, with their Meta, and returns without
	// waiting for their destination: it is a buffered output. It must be safe for
	// concurrent use.
	recorder interface {
		WriteRecord(p []byte, m batch.Meta) error
	}

	// A shutdowner can be closed with a context that limits the time.
	shutdowner interface {
		Shutdown(ctx context.Context) (batch.Report, error)
	}

	// A coded writer accepts only records in the wire format of its codec.
	coded interface{ Codec() batch.Codec }

	// A namer provides the default name of its output.
	namer interface{ Name() string }
)

// output is one output of a route.
type output struct {
	name  string
	level threshold
	w     io.Writer // the writer given by the user, or made by NewRouter
	// closes reports that Router.Close closes w. It is set for at most one of the outputs with
	// this writer.
	closes bool
	opened bool // NewRouter has created w
	first  bool // this is the first output with this writer
	events *reporter

	rec     recorder  // w, if the output is buffered; otherwise nil
	account accounter // w, if it keeps an account; otherwise nil

	direct *direct // the writer of a direct output; otherwise nil
	shared bool    // several outputs share direct, so tally.records counts the records of this one

	tally
}

// buffered reports whether the writer of o has its own memory, so that a write does not wait for
// the destination.
func (o *output) buffered() bool { return o.rec != nil }

// admits reports whether o accepts records of level l from a logger whose level is loggerLevel.
func (o *output) admits(l, loggerLevel slog.Level) bool { return o.level.admits(l, loggerLevel) }

// writeBuffered passes a record to a buffered output.
func (o *output) writeBuffered(p []byte, m batch.Meta) error {
	if o.account != nil {
		err := o.rec.WriteRecord(p, m)
		if err != nil {
			o.fail(err)
		}
		return err
	}
	o.accept()
	err := o.rec.WriteRecord(p, m)
	if err != nil {
		o.fail(err)
	}
	result := err
	if errors.Is(err, batch.ErrClosed) {
		o.refused.Add(1)
		result = errClosed
	}
	o.settle(result)
	return err
}

// writeDirect writes a record to a direct output.
func (o *output) writeDirect(p []byte) error {
	if !o.shared {
		return o.direct.write(p, &o.tally)
	}
	o.accept()
	err := o.direct.write(p, &o.tally)
	o.settle(err)
	return err
}

// abandon counts a write of p that panicked or called runtime.Goexit, and unlocks a direct output.
// recovered is the result of recover.
func (o *output) abandon(p []byte, recovered any) error {
	if o.direct != nil {
		err := o.direct.abandon(p, &o.tally, recovered)
		if o.shared {
			o.settle(err)
		}
		return err
	}
	err := unwound(recovered)
	o.fail(err)
	if o.account == nil {
		o.settle(err)
	}
	if o.panics.Add(1) == 1 {
		o.events.post(batch.Event{Output: o.name, Op: "panic", Err: err, Count: 1})
	}
	return err
}

// An accounter is a writer that keeps an account of its records.
type accounter interface{ Account() batch.Account }

// ownAccount returns the account that w keeps, or an empty one if w.Account panics.
func ownAccount(w accounter) (a batch.Account) {
	defer func() {
		if recover() != nil {
			a = batch.Account{}
		}
	}()
	return w.Account()
}
