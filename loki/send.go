package loki

import (
	"context"
	"errors"

	"github.com/forebay-log/forebay/batch"
)

// Send is one session of one batch, for callers that are no outlet: it says in the
// words of [batch.Sink] what became of the records. It allows no concurrent calls.
//
//	nil              everything is stored
//	Reject           the named records were refused; all others are stored
//	Permanent        Loki refused, and does not say which record it means
//	TooLarge         Loki takes such records, but fewer at once
//	Partial          the named records are open or refused; all others are stored
//	RetryAfter       nothing was stored, or nobody knows
//	Fatal            Loki refuses all until somebody changes something
func (s *Pusher) Send(ctx context.Context, b *batch.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	o, known := s.push.send(ctx, b)
	if !known {
		return batch.RetryAfter(context.Cause(ctx), 0)
	}
	return sendError(&o, b.Len())
}

// sendError returns what says the same as o of a batch of n records. Where records are
// both open and refused, all of them are said to be open: the refused ones are refused
// again.
func sendError(o *batch.Outcome, n int) error {
	if o.Open.Empty() {
		if o.Refused.Empty() {
			return nil
		}
		return batch.Reject(o.Refusal, o.Refused.Append(nil, n)...)
	}
	e := batch.SendError{Err: o.Why, After: o.After}
	var pe *PushError
	if errors.As(o.Why, &pe) {
		e.Status = pe.Status
	}
	if open := o.Open.Len(n) + o.Refused.Len(n); open < n {
		e.Kind = batch.KindPartial
		for i := range n {
			if o.Open.Has(i) || o.Refused.Has(i) {
				e.Records = append(e.Records, i)
			}
		}
		return &e
	}
	switch o.Advice {
	case batch.Smaller:
		e.Kind = batch.KindTooLarge
	case batch.Search:
		e.Kind = batch.KindReject
	case batch.Hold:
		e.Kind = batch.KindFatal
	}
	return &e
}

// Close ends idle connections of a client that the Pusher has made. It may be called
// more than once.
func (s *Pusher) Close(context.Context) error {
	s.push.close()
	return nil
}
