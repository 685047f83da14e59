package deliver

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A Send says what the Outcome of its batch says.
func TestAsSinkAnswers(t *testing.T) {
	why, refusal := errors.New("why"), errors.New("refusal")
	for _, tt := range []struct {
		o    batch.Outcome
		want batch.SendError
	}{
		{batch.Outcome{}, batch.SendError{}},
		{batch.Outcome{Open: batch.From(1), Why: why, After: time.Second}, batch.SendError{Kind: batch.KindPartial, Records: []int{1, 2}, After: time.Second}},
		{batch.Outcome{Open: batch.All(), Why: why, After: time.Second}, batch.SendError{Kind: batch.KindRetry, After: time.Second}},
		{batch.Outcome{Open: batch.All(), Why: why, Advice: batch.Hold}, batch.SendError{Kind: batch.KindFatal}},
		{batch.Outcome{Open: batch.All(), Why: why, Advice: batch.Smaller}, batch.SendError{Kind: batch.KindTooLarge}},
		{batch.Outcome{Open: batch.All(), Why: why, Advice: batch.Search}, batch.SendError{Kind: batch.KindReject}},
		{batch.Outcome{Open: batch.All(), Why: why, Advice: batch.Gone}, batch.SendError{Kind: batch.KindReject}},
		{batch.Outcome{Refused: batch.Of(1), Refusal: refusal}, batch.SendError{Kind: batch.KindReject, Records: []int{1}}},
		{batch.Outcome{Open: batch.Of(2), Why: why, Refused: batch.Of(0), Refusal: refusal}, batch.SendError{Kind: batch.KindPartial, Records: []int{0, 2}}},
		{batch.Outcome{Open: batch.Of(5)}, batch.SendError{Kind: batch.KindRetry}}, // nonsense
	} {
		d := &scripted{send: func(l Life, b *batch.Batch) error { l.Answer(b, tt.o); return nil }}
		s := AsSink(d)
		err := s.Send(t.Context(), lines(3))
		got := batch.Inspect(err)
		if (err == nil) != (tt.o.Open.Empty() && tt.o.Refused.Empty()) || got.Kind != tt.want.Kind || !slices.Equal(got.Records, tt.want.Records) || got.After != tt.want.After {
			t.Errorf("%+v: %v, %+v", tt.o, err, got)
		}
	}
}

// An outlet behind both adapters has the driver itself.
func TestAsSinkAndBack(t *testing.T) {
	d := &scripted{}
	if got := FromSink(AsSink(d)); got != Destination(d) {
		t.Errorf("got %T", got)
	}
	if got := AsSink(d).(batch.Limiter).Limits(); got != d.Traits().Limits {
		t.Errorf("limits %+v", got)
	}
}

// A Sink whose error makes no sense has settled nothing.
func TestFromSinkNonsense(t *testing.T) {
	oops := errors.New("oops")
	for name, err := range map[string]error{
		"more than all":    batch.Prefix(99, oops),
		"fewer than none":  batch.Prefix(-1, oops),
		"no such records":  batch.Partial(oops, 3, 10),
		"not ascending":    batch.Partial(oops, 5, 2),
		"a nil *SendError": (*batch.SendError)(nil),
	} {
		send, _ := Direct(FromSink(batch.SinkFunc(func(context.Context, *batch.Batch) error { return err })))
		if o := send(t.Context(), lines(10)); o.Open.Len(10) != 10 || o.Why == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// An Outcome of FromSink says what the error of the Sink says.
func TestFromSinkAnswers(t *testing.T) {
	oops := errors.New("oops")
	for _, tt := range []struct {
		err  error
		want batch.Outcome
	}{
		{nil, batch.Outcome{}},
		{oops, batch.Outcome{Open: batch.All()}},
		{batch.RetryAfter(oops, time.Second), batch.Outcome{Open: batch.All(), After: time.Second}},
		{&batch.SendError{Err: oops, After: time.Second}, batch.Outcome{Open: batch.All(), After: time.Second}},
		{batch.TooLarge(oops), batch.Outcome{Open: batch.All(), Advice: batch.Smaller}},
		{batch.Fatal(oops), batch.Outcome{Open: batch.All(), Advice: batch.Hold}},
		{batch.Permanent(oops), batch.Outcome{Open: batch.All(), Advice: batch.Search}},
		{batch.Prefix(2, oops), batch.Outcome{Open: batch.From(2)}},
		{batch.Partial(oops, 0, 2), batch.Outcome{Open: batch.Of(0, 2)}},
		{batch.Reject(oops, 1), batch.Outcome{Refused: batch.Of(1)}},
	} {
		send, _ := Direct(FromSink(batch.SinkFunc(func(context.Context, *batch.Batch) error { return tt.err })))
		got := send(t.Context(), lines(3))
		if err := got.Err(); !errors.Is(err, tt.err) {
			t.Errorf("%v: %v", tt.err, err)
		}
		if got.Why, got.Refusal = nil, nil; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
}
