package deliver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// letters writes dead letters, on a goroutine of its own while there are any.
type letters struct {
	g      *guarded // nil: no dead letters
	events *events
	poke   func() // there is room again

	unburied atomic.Uint64

	mu      sync.Mutex // leaf; guards the rest
	queue   []letter
	working bool
	idle    chan struct{} // closed when the goroutine has ended
	failing episode
}

type letter struct {
	b     *copied
	cause error
}

// lettersMost is how many letters may wait before nothing more is sent.
const lettersMost = 64

func newLetters(h ErrorHandler, timeout time.Duration, ev *events, poke func()) *letters {
	l := &letters{events: ev, poke: poke}
	if h != nil {
		l.g = newGuarded(h, timeout)
	}
	return l
}

// bury has letters written about b, which it copies. A cause with a method NoLetter(k int)
// bool says of which records of b none is to be written, one with LetterCause(k int) error why
// record k was refused: those of one cause have a letter.
func (l *letters) bury(b *batch.Batch, cause error) {
	if l.g == nil {
		return
	}
	spares, _ := cause.(interface{ NoLetter(k int) bool })
	tells, _ := cause.(interface{ LetterCause(k int) error })
	if spares == nil && tells == nil {
		l.add(b, cause)
		return
	}
	var causes []error
	of := map[string][]int{} // by their texts
	for k := range b.Len() {
		if spares != nil && spares.NoLetter(k) {
			continue
		}
		why := cause
		if tells != nil {
			why = tells.LetterCause(k)
		}
		text := why.Error()
		if of[text] == nil {
			causes = append(causes, why)
		}
		of[text] = append(of[text], k)
	}
	for _, why := range causes {
		l.add(b.Select(nil, of[why.Error()]), why)
	}
}

// add has a letter written about b, which it copies.
func (l *letters) add(b *batch.Batch, cause error) {
	n := letter{new(copied), cause}
	n.b.set(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, n)
	if !l.working {
		l.working, l.idle = true, make(chan struct{})
		go l.work(l.idle)
	}
}

// full reports whether too many letters wait.
func (l *letters) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) >= lettersMost
}

// unwritten returns how many refused records have no letter: those whose letter failed, and
// those whose letter is not written yet.
func (l *letters) unwritten() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = l.unburied.Load()
	for i := range l.queue {
		n += countable(&l.queue[i].b.b)
	}
	return n
}

func (l *letters) work(idle chan struct{}) {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.working = false
			l.mu.Unlock()
			close(idle)
			l.poke()
			return
		}
		b, cause := &l.queue[0].b.b, l.queue[0].cause
		n := b.Len()
		l.mu.Unlock()
		out := l.g.call(context.Background(), cause, b)
		err := out.Err()
		l.mu.Lock()
		l.queue[0] = letter{}
		l.queue = l.queue[1:]
		l.unburied.Add(uint64(out.Open.Len(n) + out.Refused.Len(n) + out.Unnamed))
		var first bool
		if err == nil {
			l.failing.end()
		} else {
			first = l.failing.begin()
		}
		l.mu.Unlock()
		if first {
			l.events.post("dead-letter", err, uint64(n))
		}
		l.poke()
	}
}

// wait waits until all letters are written, or ctx ends.
func (l *letters) wait(ctx context.Context) {
	l.mu.Lock()
	idle := l.idle
	working := l.working
	l.mu.Unlock()
	if !working {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// letters returns the handler of dead letters that calls tell first, nil for none.
func (o *Options) letters(tell func(cause error, b *batch.Batch)) ErrorHandler {
	if tell == nil {
		return o.DeadLetter
	}
	next := o.DeadLetter
	return ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
		tell(cause, b)
		if next == nil {
			return batch.Outcome{}
		}
		return next.HandleError(cause, b)
	})
}
