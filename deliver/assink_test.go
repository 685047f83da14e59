package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A scripted destination does what the test says, and notes what happened.
type scripted struct {
	send func(l Life, b *batch.Batch) error
	open error
	log  []string
}

func (d *scripted) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}
func (d *scripted) Traits() Traits { return Traits{Limits: batch.Limits{Records: 7}} }
func (d *scripted) Open(l Life) (Session, error) {
	d.note("open")
	if d.open != nil {
		return nil, d.open
	}
	return &scriptedSession{d, l}, nil
}
func (d *scripted) Close(context.Context) error { d.note("closed"); return errors.New("the end") }

type scriptedSession struct {
	d *scripted
	l Life
}

func (s *scriptedSession) Send(b *batch.Batch) error {
	s.d.note("send %d", b.Len())
	return s.d.send(s.l, b)
}

func (s *scriptedSession) Close() { s.d.note("close: %v", context.Cause(s.l.Context())) }

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
		if err := s.(batch.Closer).Close(t.Context()); err == nil || err.Error() != "the end" {
			t.Errorf("Close: %v", err)
		}
		if want := []string{"open", "send 3", "close: " + errFinished.Error(), "closed"}; !slices.Equal(d.log, want) {
			t.Errorf("%+v: %q", tt.o, d.log)
		}
		if err := s.Send(t.Context(), lines(1)); !errors.Is(err, batch.ErrClosed) {
			t.Error(err)
		}
	}
}

// Sessions are kept, left, lost and given up as an outlet would.
func TestAsSinkSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, leaves := errors.New("lost"), errors.New("leaves")
		d := &scripted{}
		s := AsSink(d)
		settle := func(l Life, b *batch.Batch) error { l.Answer(b, batch.Outcome{}); return nil }
		step := func(name string, ctx context.Context, send func(l Life, b *batch.Batch) error, want error, log ...string) {
			t.Helper()
			d.log, d.send = nil, send
			if err := s.Send(ctx, lines(2)); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !slices.Equal(d.log, log) {
				t.Errorf("%s: %q", name, d.log)
			}
		}
		d.open = lost
		step("no session", t.Context(), settle, lost, "open")
		d.open = nil
		step("first", t.Context(), settle, nil, "open", "send 2")
		step("kept", t.Context(), settle, nil, "send 2")
		step("later", t.Context(), func(l Life, b *batch.Batch) error {
			time.AfterFunc(time.Second, func() { l.Answer(b, batch.Outcome{}) })
			return nil
		}, nil, "send 2")
		calls := 0
		step("leaves", t.Context(), func(l Life, b *batch.Batch) error {
			if calls++; calls == 1 {
				return leaves
			}
			return settle(l, b)
		}, nil, "send 2", "close: the session takes no more: leaves", "open", "send 2")
		step("takes nothing", t.Context(), func(Life, *batch.Batch) error { return leaves }, leaves,
			"send 2", "close: the session takes no more: leaves", "open", "send 2", "close: the session takes no more: leaves")
		step("lost", t.Context(), func(l Life, b *batch.Batch) error { l.End(lost); l.Answer(b, batch.Outcome{}); return nil }, lost,
			"open", "send 2", "close: lost")
		step("answered, then lost", t.Context(), func(l Life, b *batch.Batch) error { settle(l, b); l.End(lost); return nil }, nil, "open", "send 2")
		step("over", t.Context(), settle, nil, "close: "+errFinished.Error(), "open", "send 2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		step("hangs", ctx, func(Life, *batch.Batch) error { return nil }, context.DeadlineExceeded, "send 2", "close: context deadline exceeded")
		step("again", t.Context(), settle, nil, "open", "send 2")
		s.(batch.Closer).Close(t.Context())
	})
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
