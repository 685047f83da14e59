package main

import (
	"context"
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/file"
)

// outlived is a sink behind a deliver.Outlet whose reader may go. Without an
// engine its lines are lost then; here they go where those of a destination that
// is down go or, if there is no such place, where refused ones go.
type outlived struct {
	batch.Sink
	hold bool // there is a fallback or a spool
}

func (s outlived) Send(ctx context.Context, b *batch.Batch) error {
	err := s.Sink.Send(ctx, b)
	if !errors.Is(err, file.ErrGone) {
		return err
	}
	done := b.Len() - int(b.Tally.Dropped[batch.Failed])
	b.Tally.Dropped[batch.Failed] = 0
	switch {
	case !s.hold:
		var rest []int
		for i := done; i < b.Len(); i++ {
			rest = append(rest, i)
		}
		return batch.Reject(err, rest...)
	case done > 0:
		return batch.Prefix(done, err)
	}
	return batch.Fatal(err)
}

// Sync puts what was sent on stable storage, if the sink can.
func (s outlived) Sync() error {
	if f, ok := s.Sink.(batch.Syncer); ok {
		return f.Sync()
	}
	return nil
}

// outlive wraps sink if its reader can go and there is another place for lines.
func (f *deliveryFlags) outlive(sink batch.Sink) batch.Sink {
	hold := f.fallback != "" || f.spool != ""
	if _, is := sink.(*file.Stdio); is && (hold || f.deadLetter != "") {
		return outlived{sink, hold}
	}
	return sink
}

// goneText says what becomes of an output whose reader is gone.
func (f *deliveryFlags) goneText() string {
	switch {
	case f.fallback != "":
		return "from now on its lines go to --fallback " + f.fallback
	case f.spool != "":
		return "from now on its lines go to --spool " + f.spool
	case f.deadLetter != "":
		return "from now on its lines go to --dead-letter " + f.deadLetter
	}
	return "this output ends here"
}
