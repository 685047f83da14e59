package deliver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A scripted is a destination that calls functions of the test and logs the calls that it gets.
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

// The function that Direct returns sends a batch and returns its Outcome.
func TestDirectAnswers(t *testing.T) {
	why, refusal := errors.New("why"), errors.New("refusal")
	for _, want := range []batch.Outcome{
		{},
		{Open: batch.From(1), Why: why, After: time.Second},
		{Open: batch.All(), Why: why, Advice: batch.Hold},
		{Open: batch.Of(2), Why: why, Refused: batch.Of(0), Refusal: refusal},
	} {
		d := &scripted{send: func(l Life, b *batch.Batch) error { l.Answer(b, want); return nil }}
		send, closeDest := newDirect(d)
		if got := send(t.Context(), lines(3)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if o := send(t.Context(), new(batch.Batch)); o.Err() != nil {
			t.Errorf("an empty batch: %+v", o)
		}
		if err := closeDest(t.Context()); err == nil || err.Error() != "the end" {
			t.Errorf("close: %v", err)
		}
		if want := []string{"open", "send 3", "close: " + errFinished.Error(), "closed"}; !slices.Equal(d.log, want) {
			t.Errorf("%q", d.log)
		}
		if o := send(t.Context(), lines(1)); !errors.Is(o.Err(), batch.ErrClosed) {
			t.Errorf("after close: %+v", o)
		}
		if err := closeDest(t.Context()); err != nil {
			t.Errorf("the second close: %v", err)
		}
	}
	d := &scripted{send: func(l Life, b *batch.Batch) error { l.Answer(b, batch.Outcome{Open: batch.Of(5)}); return nil }}
	send, _ := newDirect(d)
	if o := send(t.Context(), lines(3)); o.Open.Len(3) != 3 || o.Why == nil {
		t.Errorf("nonsense: %+v", o)
	}
}

// Direct uses one session for consecutive sends. It opens a new session if the previous one refuses
// records, was lost, or did not answer before the context ended.
func TestDirectSessions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		lost, leaves := errors.New("lost"), errors.New("leaves")
		d := &scripted{}
		sendTo, closeDest := newDirect(d)
		settle := func(l Life, b *batch.Batch) error { l.Answer(b, batch.Outcome{}); return nil }
		step := func(name string, ctx context.Context, send func(l Life, b *batch.Batch) error, want error, log ...string) {
			t.Helper()
			d.log, d.send = nil, send
			if o := sendTo(ctx, lines(2)); !errors.Is(o.Err(), want) || want != nil && o.Open.Len(2) != 2 {
				t.Errorf("%s: %+v", name, o)
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
		}, nil, "send 2", "close: the session accepts no more records: leaves", "open", "send 2")
		step("takes nothing", t.Context(), func(Life, *batch.Batch) error { return leaves }, leaves,
			"send 2", "close: the session accepts no more records: leaves", "open", "send 2", "close: the session accepts no more records: leaves")
		step("lost", t.Context(), func(l Life, b *batch.Batch) error { l.End(lost); l.Answer(b, batch.Outcome{}); return nil }, lost,
			"open", "send 2", "close: lost")
		step("answered, then lost", t.Context(), func(l Life, b *batch.Batch) error { settle(l, b); l.End(lost); return nil }, nil, "open", "send 2")
		step("over", t.Context(), settle, nil, "close: "+errFinished.Error(), "open", "send 2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		step("hangs", ctx, func(Life, *batch.Batch) error { return nil }, context.DeadlineExceeded, "send 2", "close: context deadline exceeded")
		step("again", t.Context(), settle, nil, "open", "send 2")
		d.open = batch.Fatal(lost)
		d.log = nil
		step("session ends", t.Context(), func(l Life, b *batch.Batch) error { l.End(lost); return nil }, lost, "send 2", "close: lost")
		if o := sendTo(t.Context(), lines(2)); o.Advice != batch.Hold || !errors.Is(o.Why, lost) {
			t.Errorf("an error of Open: %+v", o)
		}
		_ = closeDest(t.Context())
	})
}
