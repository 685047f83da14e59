package forebay

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A failingDest is a destination whose calls panic or call runtime.Goexit until the field well is
// set. If the field how is "open", opening a session panics.
type failingDest struct {
	how  string // "panic", "goexit" or "open"
	well atomic.Bool
}

func (b *failingDest) call() {
	switch {
	case b.well.Load():
	case b.how == "goexit":
		runtime.Goexit()
	default:
		panic("on purpose")
	}
}

func (b *failingDest) Write(p []byte) (int, error) { b.call(); return len(p), nil }

func (b *failingDest) send(context.Context, *batch.Batch) batch.Outcome {
	b.call()
	return batch.Outcome{}
}

// A badSession is a session whose Close calls b.call.
type badSession struct {
	deliver.Session
	b *failingDest
}

func (s badSession) Close() { s.b.call(); s.Session.Close() }

// A badOpen is a destination that opens badSessions. If b.how is "open", Open calls b.call.
type badOpen struct {
	deliver.Destination
	b *failingDest
}

func (d badOpen) Open(l deliver.Life) (deliver.Session, error) {
	s, err := d.Destination.Open(l)
	if d.b.how != "open" {
		return badSession{s, d.b}, err
	}
	d.b.call()
	return s, err
}

// Each panic of a destination is counted, but only the first panic since the last success is
// reported.
func TestPanicsAreReportedOnce(t *testing.T) {
	for _, how := range []string{"panic", "goexit", "open"} {
		for name, output := range map[string]func(*failingDest, ...OutputOption) OutputSpec{
			"writer": func(b *failingDest, o ...OutputOption) OutputSpec { return Writer(b, o...) },
			"send": func(b *failingDest, o ...OutputOption) OutputSpec {
				return To(badOpen{deliver.SendFunc(deliver.Traits{}, b.send), b}, o...)
			},
			"inline": func(b *failingDest, o ...OutputOption) OutputSpec {
				return To(badOpen{deliver.SendFunc(deliver.Traits{Inline: true}, b.send), b}, o...)
			},
			"direct": func(b *failingDest, o ...OutputOption) OutputSpec { return Writer(b, append(o, Direct())...) },
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					b := &failingDest{how: how}
					var mu sync.Mutex
					var reports []batch.Event
					l, err := New(output(b, OnError(func(e batch.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Op == "panic" {
							reports = append(reports, e)
						}
					})))
					if err != nil {
						t.Fatal(err)
					}
					log := func() {
						done := make(chan bool)
						go func() { // runtime.Goexit in a direct output ends the logging goroutine
							defer close(done)
							l.Info("m")
						}()
						<-done
						time.Sleep(300 * time.Millisecond)
					}
					for want := 1; want <= 2; want++ {
						for range 100 {
							log()
						}
						mu.Lock()
						if len(reports) != want {
							t.Fatalf("%d reports of panics, want %d: %v", len(reports), want, reports)
						}
						if text := reports[want-1].Err.Error(); name != "direct" && (!strings.Contains(text, "failingDest") || !strings.Contains(text, "destination ")) {
							t.Errorf("the report has no stack: %s", text)
						}
						mu.Unlock()
						st := l.Router().Stats().Outputs[0]
						if st.Panics < uint64(want*5) || st.Delivery != nil && st.Delivery.Deliver.Panics != st.Panics {
							t.Errorf("%d panics: %v", st.Panics, st)
						}
						b.well.Store(true)
						for range 300 { // the circuit breaker may be open for a minute
							log()
						}
						b.well.Store(false)
					}
					b.well.Store(true)
					l.Close()
				})
			})
		}
	}
}
