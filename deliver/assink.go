package deliver

import (
	"context"

	"github.com/forebay-log/forebay/batch"
)

// AsSink returns dest as a [batch.Sink], for callers that are no outlet and deal with
// failures themselves: each Send returns when its batch was answered, and says what
// became of it as the errors of package batch do. If some records are refused and others
// are open, Send reports all of them as open, and the former are refused again. Sessions
// and Close are those of [Direct].
func AsSink(dest Destination) batch.Sink {
	s := &destSink{dest: dest, traits: dest.Traits()}
	s.send, s.close = Direct(dest)
	return s
}

type destSink struct {
	dest   Destination
	traits Traits
	send   func(context.Context, *batch.Batch) batch.Outcome
	close  func(context.Context) error
}

func (s *destSink) Limits() batch.Limits            { return s.traits.Limits }
func (s *destSink) Dictionary() batch.Dictionary    { return s.traits.Dictionary }
func (s *destSink) Close(ctx context.Context) error { return s.close(ctx) }

func (s *destSink) Accepts(contentType string) bool {
	return s.traits.Accepts == nil || s.traits.Accepts(contentType)
}

func (s *destSink) Send(ctx context.Context, b *batch.Batch) error {
	o := s.send(ctx, b)
	return sendErrorOf(&o, b.Len())
}

// sendErrorOf returns the error that says the same as o of a batch of n records.
func sendErrorOf(o *batch.Outcome, n int) error {
	if o.Open.Empty() {
		if o.Refused.Empty() {
			return nil
		}
		return batch.Reject(o.Refusal, o.Refused.Append(nil, n)...)
	}
	e := batch.SendError{Err: o.Why, After: o.After}
	for i := range n {
		if o.Open.Has(i) || o.Refused.Has(i) {
			e.Records = append(e.Records, i)
		}
	}
	if len(e.Records) < n {
		e.Kind = batch.KindPartial
		return &e
	}
	e.Records = nil
	switch o.Advice {
	case batch.Smaller:
		e.Kind = batch.KindTooLarge
	case batch.Search, batch.Gone:
		e.Kind = batch.KindReject
	case batch.Hold:
		e.Kind = batch.KindFatal
	}
	return &e
}
