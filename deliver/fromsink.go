package deliver

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// FromSink returns sink as a Destination: one batch is under way at a time, and the
// error of its Send becomes an Outcome. A sink that is a Destination itself is returned
// as it is. For a sink of [AsSink], FromSink returns the Destination behind it.
func FromSink(sink batch.Sink) Destination {
	if s, ok := sink.(*destSink); ok {
		return s.dest
	}
	if d, ok := sink.(Destination); ok {
		return d
	}
	var t Traits
	if l, ok := sink.(batch.Limiter); ok {
		t.Limits = l.Limits()
	}
	if a, ok := sink.(interface{ Accepts(string) bool }); ok {
		t.Accepts = a.Accepts
	}
	switch d := sink.(type) {
	case batch.Dictionary:
		t.Dictionary = d
	case interface{ Dictionary() batch.Dictionary }:
		t.Dictionary = d.Dictionary()
	}
	d := SendFunc(t, func(ctx context.Context, b *batch.Batch) batch.Outcome {
		err := sink.Send(ctx, b)
		if n := b.Tally.Dropped[batch.Failed]; n > 0 && errors.As(err, new(*batch.SendError)) { // batch.Lost
			b.Tally.Dropped[batch.Failed] = 0
			return batch.Outcome{Open: batch.From(b.Len() - int(min(n, uint64(b.Len())))), Why: err, Advice: batch.Gone}
		}
		return outcomeOf(b.Len(), err)
	})
	if c, ok := sink.(batch.Closer); ok {
		return closingSink{d, c}
	}
	return d
}

// closingSink closes the sink with the outlet.
type closingSink struct {
	Destination
	batch.Closer
}

// outcomeOf returns the Outcome that the error of a Send of n records stands for.
func outcomeOf(n int, err error) batch.Outcome {
	if err == nil {
		return batch.Outcome{}
	}
	e := batch.Inspect(err)
	switch e.Kind {
	case batch.KindPrefix:
		if e.Acked < 0 || e.Acked > n {
			return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("the answer makes no sense: the first %d of %d records are settled: %w", e.Acked, n, cause(e.Err)), After: e.After}
		}
		return batch.Outcome{Open: batch.From(e.Acked), Why: err, After: e.After}
	case batch.KindPartial:
		return batch.Outcome{Open: batch.Of(e.Records...), Why: err, After: e.After}
	case batch.KindReject:
		if e.Records == nil || !batch.ValidIndexes(e.Records, n) {
			return batch.Outcome{Open: batch.All(), Why: err, Advice: batch.Search}
		}
		if len(e.Records) == 0 {
			return batch.Outcome{} // lost: the sink has told its tally
		}
		return batch.Outcome{Refused: batch.Of(e.Records...), Refusal: err}
	}
	o := batch.Outcome{Open: batch.All(), Why: err, After: e.After}
	switch e.Kind {
	case batch.KindTooLarge:
		o.Advice = batch.Smaller
	case batch.KindFatal:
		o.Advice = batch.Hold
	}
	return o
}
