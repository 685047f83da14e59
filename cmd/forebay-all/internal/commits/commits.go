// Package commits tells servers how far an input is delivered, while the input is read.
package commits

import (
	"context"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
)

// A Sink takes the records of an input: a [input.Sink], or that of a test.
type Sink interface {
	Put(*input.Record) error
	Commit(context.Context) error
	Say(format string, args ...any)
}

// A Loop waits for news, has the sink commit, and tells. It is one goroutine, from [Begin]
// to End.
type Loop struct {
	wake chan struct{}
	soon chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// Begin begins a loop, which rests so long after each time. take returns what was put up to now, and whether there is anything;
// tell is given that once the sink has committed it. If the sink fails, it is told of nothing,
// and what take returns next includes it.
func Begin[T any](sink Sink, rest time.Duration, take func() (T, bool), report func(context.Context, T)) *Loop {
	ctx, stop := context.WithCancel(context.Background())
	l := &Loop{wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.wake:
			}
			if all, ok := take(); ok && sink.Commit(ctx) == nil {
				report(ctx, all)
			} else if ok {
				l.News()
			}
			select {
			case <-ctx.Done():
				return
			case <-l.soon:
			case <-time.After(rest):
			}
		}
	}()
	return l
}

// News says that there is something to take. It never waits.
func (l *Loop) News() { signal(l.wake) }

// Hurry is News, and ends a rest.
func (l *Loop) Hurry() {
	signal(l.soon)
	l.News()
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// End ends the loop, and waits for it.
func (l *Loop) End() {
	l.stop()
	<-l.done
}

// A Trouble tells an operator of an error that stays, once, and of its end.
type Trouble struct {
	Sink Sink

	mu       sync.Mutex
	reported string
}

// Is says that there is trouble. what is the sentence, which ends with err.
func (t *Trouble) Is(what string, err error) {
	t.mu.Lock()
	text := what + ": " + err.Error()
	isNew := text != t.reported
	t.reported = text
	t.mu.Unlock()
	if isNew {
		t.Sink.Say("%s; retrying", text)
	}
}

// Over says that all is well.
func (t *Trouble) Over() {
	t.mu.Lock()
	was := t.reported != ""
	t.reported = ""
	t.mu.Unlock()
	if was {
		t.Sink.Say("works again")
	}
}
