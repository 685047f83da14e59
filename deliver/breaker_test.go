package deliver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustBreaker(t *testing.T, sink batch.Sink, o *BreakerOptions) *Breaker {
	t.Helper()
	k, err := NewBreaker(sink, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// steps drives a breaker: each letter is a Send whose destination answers o (all
// taken), x (failed), r (refused), p (a part taken), f (fatal), or w: wait until
// it probes. The breaker's state after each is compared.
func TestBreakerTransitions(t *testing.T) {
	answers := map[rune]testkit.Answer{
		'o': testkit.Take, 'x': testkit.Fail(testkit.ErrDown),
		'r': testkit.Fail(batch.Permanent(errors.New("400"))), 'p': testkit.First(1),
		'f': testkit.Fail(batch.Fatal(errors.New("401"))),
	}
	tests := []struct{ name, steps, states string }{
		{"five in a row open", "xxxxx", "ccccO"},
		{"a success in between does not", "xxxxoxxxx", "ccccccccc"},
		{"ten of twenty open", "oooooooooo" + "xxxx" + "o" + "xxxx" + "o" + "xx", "cccccccccc" + "cccc" + "c" + "cccc" + "c" + "cO"},
		{"refusals are no failures", "rrrrrrrrrr", "cccccccccc"},
		{"parts count neither way", "xxxxppppx", "ccccccccO"},
		{"fatal opens at once", "f", "O"},
		{"probe fails", "xxxxxwx", "ccccOOO"},
		{"one success is not enough", "xxxxxwox", "ccccOOhO"},
		{"two are", "xxxxxwoo", "ccccOOhc"},
		{"refusals count", "xxxxxwrr", "ccccOOhc"},
		{"parts do not", "xxxxxwppoo", "ccccOOhhhc"},
		{"fatal in between", "xxxxxwof", "ccccOOhO"},
		{"the count begins anew", "xxxxxwooxxxx", "ccccOOhccccc"},
	}
	names := map[State]rune{Closed: 'c', Open: 'O', HalfOpen: 'h'}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := testkit.NewSink(nil)
				k := mustBreaker(t, sink, &BreakerOptions{ProbeRecords: 5})
				var got []rune
				for i, step := range tt.steps {
					if step == 'w' {
						time.Sleep(2 * time.Minute)
					} else {
						sink.Answer(answers[step])
						before := sink.Calls()
						_ = k.Send(t.Context(), lines(5))
						if sink.Calls() == before {
							t.Fatalf("step %d: nothing was sent", i)
						}
					}
					got = append(got, names[k.State()])
				}
				if string(got) != tt.states {
					t.Errorf("%s: states %s, want %s", tt.steps, string(got), tt.states)
				}
			})
		})
	}
}

// An open breaker sends nothing and says when to come again: after 1 s, doubling
// up to a minute, with the upper half as jitter.
func TestBreakerOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k := mustBreaker(t, sink, nil)
		for range 4 {
			_ = k.Send(t.Context(), lines(3))
		}
		err := k.Send(t.Context(), lines(3))
		if !errors.Is(err, ErrOpen) || !errors.Is(err, testkit.ErrDown) {
			t.Errorf("the Send that opens it: %v", err)
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			want *= time.Second
			calls := sink.Calls()
			err := k.Send(t.Context(), lines(3))
			e := batch.Inspect(err)
			if !errors.Is(err, ErrOpen) || !errors.Is(err, testkit.ErrDown) || e.Kind != batch.KindRetry {
				t.Fatalf("while open: %v", err)
			}
			if e.After < want/2 || e.After > want {
				t.Errorf("open for %s, want %s to %s", e.After, want/2, want)
			}
			if sink.Calls() != calls {
				t.Fatal("sent while open")
			}
			time.Sleep(e.After)
			_ = k.Send(t.Context(), lines(3)) // the probe
			if sink.Calls() != calls+1 {
				t.Fatal("no probe")
			}
		}
		if k.Trips() != 9 {
			t.Errorf("%d trips", k.Trips())
		}
	})
}

// What the destination asks for is a floor, and so is FatalDelay.
func TestBreakerOpensForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			err  error
			want time.Duration
		}{
			{batch.RetryAfter(errors.New("503"), 5*time.Minute), 5 * time.Minute},
			{batch.Fatal(errors.New("403")), time.Minute},
		} {
			k := mustBreaker(t, testkit.NewSink(testkit.Fail(tt.err)), &BreakerOptions{Failures: 1})
			e := batch.Inspect(k.Send(t.Context(), lines(1)))
			if e.After != tt.want {
				t.Errorf("%v: After %s, want %s", tt.err, e.After, tt.want)
			}
			time.Sleep(tt.want - 1)
			if err := k.Send(t.Context(), lines(1)); batch.Inspect(err).After != 1 {
				t.Errorf("%v: probed before its time: %v", tt.err, err)
			}
		}
	})
}

// Half-open, a small probe is sent; after two the rest follows in growing parts.
func TestBreakerProbeAndRampUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k := mustBreaker(t, sink, &BreakerOptions{Failures: 1})
		b := lines(1000)
		_ = k.Send(t.Context(), b)
		sink.Answer(nil)
		time.Sleep(time.Second)
		if err := k.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got, want := sink.Sizes(), []int{1000, 10, 10, 20, 40, 80, 160, 320, 360}; !slices.Equal(got, want) {
			t.Errorf("sizes %v, want %v", got, want)
		}
		if err := k.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := k.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got, want := sink.Sizes()[9:], []int{1000, 1000}; !slices.Equal(got, want) {
			t.Errorf("sizes of the next %v, want %v", got, want)
		}
		got := sink.Got()
		for i, ticket := range got[:1000] {
			if ticket != uint64(i+1) {
				t.Fatalf("record %d came as number %d", ticket, i+1)
			}
		}
	})
}

// A failure in the middle of a probe or ramp-up is told as a prefix; refusals in
// it are told when all else is settled, and not lost otherwise.
func TestBreakerMiddle(t *testing.T) {
	refused := errors.New("400")
	tests := []struct {
		name    string
		answers []testkit.Answer
		kind    batch.Kind
		acked   int
		records []int
	}{
		{"fails", []testkit.Answer{testkit.Take, testkit.Take, testkit.Fail(testkit.ErrDown)}, batch.KindPrefix, 4, nil},
		{"first fails", []testkit.Answer{testkit.Fail(testkit.ErrDown)}, batch.KindRetry, 0, nil},
		{"takes a part", []testkit.Answer{testkit.Take, testkit.Take, testkit.First(3)}, batch.KindPrefix, 7, nil},
		{"takes some", []testkit.Answer{testkit.Take, testkit.Take, testkit.Some(1)}, batch.KindPartial, 0, []int{5, 8, 9}},
		{"refuses the probe", []testkit.Answer{testkit.Fail(batch.Permanent(refused)), testkit.Take}, batch.KindReject, 0, []int{0, 1}},
		{"refuses some", []testkit.Answer{testkit.Take, testkit.Take, testkit.Fail(batch.Reject(refused, 0, 3)), testkit.Take}, batch.KindReject, 0, []int{4, 7}},
		{"refuses, then fails", []testkit.Answer{testkit.Fail(batch.Permanent(refused)), testkit.Take, testkit.Fail(testkit.ErrDown)},
			batch.KindPartial, 0, []int{0, 1, 4, 5, 6, 7, 8, 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := testkit.NewSink(testkit.Script(append([]testkit.Answer{testkit.Fail(testkit.ErrDown)}, tt.answers...)...))
				k := mustBreaker(t, sink, &BreakerOptions{Failures: 1, ProbeRecords: 2})
				b := lines(10)
				_ = k.Send(t.Context(), b)
				time.Sleep(time.Second)
				err := k.Send(t.Context(), b)
				e := batch.Inspect(err)
				if err == nil || e.Kind != tt.kind || e.Acked != tt.acked || !slices.Equal(e.Records, tt.records) {
					t.Errorf("%v: %s acked %d records %v", err, e.Kind, e.Acked, e.Records)
				}
			})
		})
	}
}

// One probe at a time, also from several producers, and also if the destination
// panics or ends the goroutine in it.
func TestBreakerOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k := mustBreaker(t, sink, &BreakerOptions{Failures: 1})
		_ = k.Send(t.Context(), lines(1))
		time.Sleep(time.Second)
		release := make(chan struct{})
		sink.Answer(testkit.Deaf(release))
		done := make(chan error)
		go func() { done <- k.Send(t.Context(), lines(1)) }()
		synctest.Wait()
		if err := k.Send(t.Context(), lines(1)); !errors.Is(err, ErrOpen) || batch.Inspect(err).After <= 0 {
			t.Errorf("beside a probe: %v", err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, a := range []testkit.Answer{testkit.Panic, testkit.Goexit} {
			sink.Answer(a)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				defer func() { _ = recover() }()
				_ = k.Send(t.Context(), lines(1))
			}()
			<-gone
			if k.State() != Open {
				t.Errorf("state %s after a probe that did not return", k.State())
			}
			time.Sleep(time.Minute)
		}
		sink.Answer(nil)
		if err := k.Send(t.Context(), lines(1)); err != nil {
			t.Errorf("a probe after one that did not return: %v", err)
		}
	})
}

// A Send that is given up says nothing of the destination.
func TestBreakerGivenUp(t *testing.T) {
	k := mustBreaker(t, testkit.NewSink(testkit.Hang(nil)), &BreakerOptions{Failures: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Send(ctx, lines(1)); err == nil || k.State() != Closed {
		t.Errorf("%v, state %s", err, k.State())
	}
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k := mustBreaker(t, sink, &BreakerOptions{Failures: 1})
		ch, cancel := k.Subscribe()
		gone, cancelGone := k.Subscribe()
		cancelGone()
		cancelGone()
		if _, ok := <-gone; ok {
			t.Error("cancel does not close the channel")
		}
		defer cancel()
		_ = k.Send(t.Context(), lines(1))
		sink.Answer(nil)
		time.Sleep(time.Second)
		_ = k.Send(t.Context(), lines(1))
		_ = k.Send(t.Context(), lines(1))
		want := []struct{ from, to State }{{Closed, Open}, {Open, HalfOpen}, {HalfOpen, Closed}}
		for i, w := range want {
			tr := <-ch
			if tr.From != w.from || tr.To != w.to || tr.Lost != 0 || tr.Time.IsZero() {
				t.Errorf("transition %d: %+v", i, tr)
			}
			if open := tr.To == Open; errors.Is(tr.Err, testkit.ErrDown) != open {
				t.Errorf("transition %d: error %v", i, tr.Err)
			}
		}
	})
}

// A subscriber that does not read loses the oldest transitions, which are
// counted, and holds up nobody. Close closes its channel.
func TestSubscribeSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		k := mustBreaker(t, sink, &BreakerOptions{Failures: 1})
		slow, _ := k.Subscribe()
		var total uint64
		for range 20 { // three transitions each
			sink.Answer(testkit.Fail(testkit.ErrDown))
			_ = k.Send(t.Context(), lines(1))
			sink.Answer(nil)
			time.Sleep(time.Minute)
			_ = k.Send(t.Context(), lines(1))
			_ = k.Send(t.Context(), lines(1))
			total += 3
		}
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = k.Close(t.Context())
		var got []Transition
		for tr := range slow {
			got = append(got, tr)
		}
		if len(got) != transitionsKept || k.Lost() != total-transitionsKept {
			t.Errorf("got %d transitions, lost %d of %d", len(got), k.Lost(), total)
		}
		last := got[len(got)-1]
		if last.To != Closed || last.Lost != total-transitionsKept {
			t.Errorf("the newest is %+v", last)
		}
		if late, _ := k.Subscribe(); late != nil {
			if _, ok := <-late; ok {
				t.Error("Subscribe after Close returns an open channel")
			}
		}
		if err := k.Send(t.Context(), lines(1)); err != nil {
			t.Errorf("Send after Close: %v", err)
		}
		if sink.Closes() != 2 {
			t.Errorf("the sink was closed %d times", sink.Closes())
		}
	})
}

// An empty batch is no probe.
func TestBreakerEmptyBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k := mustBreaker(t, sink, &BreakerOptions{Failures: 1})
		_ = k.Send(t.Context(), lines(1))
		time.Sleep(time.Minute)
		if err := k.Send(t.Context(), new(batch.Batch)); err != nil || k.State() != Open {
			t.Errorf("%v, state %s", err, k.State())
		}
	})
}

func TestBreakerOptions(t *testing.T) {
	for _, o := range []*BreakerOptions{{Failures: -1}, {OpenMin: -1}, {OpenMin: time.Hour, OpenMax: time.Minute}, {OpenMax: -1}, {FatalDelay: -1}, {ProbeRecords: -1}, {Successes: -1}} {
		if _, err := NewBreaker(testkit.NewSink(nil), o); err == nil {
			t.Errorf("%+v: no error", *o)
		}
	}
}
