package slablog

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// unwinds contains the ways in which a callback may end without returning.
var unwinds = map[string]func(){
	"panic":  func() { panic("a mistake of the user's") },
	"Goexit": runtime.Goexit,
}

// events collects the events that OnError receives.
type events struct {
	mu  sync.Mutex
	all []batch.Event
}

func (e *events) add(ev batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) count(op, text string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Op == op && ev.Err != nil && strings.Contains(ev.Err.Error(), text) {
			n++
		}
	}
	return n
}

type badMarkers struct {
	lines
	unwind func()
}

func (c badMarkers) AppendMarker([]byte, batch.Drops, time.Time) []byte {
	c.unwind()
	return nil
}

// If encoding a gap marker panics or ends the goroutine, one event reports that, and later records
// are delivered.
func TestMarkerUnwinds(t *testing.T) {
	for name, unwind := range unwinds {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var ev events
				release := make(chan struct{})
				r := &recorder{}
				w := mustSink(t, sendFunc(func(ctx context.Context, b *batch.Batch) batch.Outcome {
					<-release
					return r.Send(ctx, b)
				}), &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), Codec: badMarkers{unwind: unwind}, OnError: ev.add})
				const n = 100
				for i := range n {
					mustWrite(t, w, i, 50)
				}
				close(release)
				for i := range 5 { // each record may cause another attempt to encode the marker
					time.Sleep(2 * time.Second)
					mustWrite(t, w, n+i, 50)
				}
				closeNow(t, w)
				a := w.Account()
				if lost := a.Dropped[batch.Full]; lost == 0 || a.Delivered != n+5-lost || a.Check() != nil || len(r.markers) != 0 {
					t.Errorf("%v, markers %q", a, r.markers)
				}
				if got := ev.count("panic", "AppendMarker"); got != 1 {
					t.Errorf("reported %d times: %v", got, ev.all)
				}
			})
		})
	}
}

// If OnError or LastResort panics or ends its goroutine, callers and delivery continue.
func TestReportsUnwind(t *testing.T) {
	for name, unwind := range unwinds {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(),
					OnError:    func(batch.Event) { unwind() },
					LastResort: writerFunc(func(p []byte) (int, error) { unwind(); return 0, nil })})
				const n = 50
				for i := range n {
					_ = w.WriteRecord(line(i, 50), batch.Meta{Level: 8})
				}
				synctest.Wait()
				g.open()
				closeNow(t, w)
				if a := w.Account(); a.Check() != nil || a.Delivered == 0 || a.Dropped[batch.Full] != n-a.Delivered {
					t.Error(a)
				}
			})
		})
	}
}
