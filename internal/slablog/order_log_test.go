package slablog

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// mustLog returns a Writer and its Log, which the test reads itself.
func mustLog(t *testing.T, o *slab.Options, c Consumer) (*Writer, *Log) {
	t.Helper()
	w, log, err := New(o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close()
		log.End(t.Context(), true)
		log.Leave()
	})
	return w, log
}

// readTickets leases, settles and releases all records that are due, and returns their tickets.
func readTickets(log *Log) (tickets []uint64) {
	for {
		l, _ := log.Next()
		if at := log.Due(); l == nil && !at.IsZero() && !at.After(time.Now()) {
			l, _ = log.Next()
		}
		if l == nil {
			return tickets
		}
		for _, r := range l.Batch().All() {
			tickets = append(tickets, r.Ticket)
		}
		l.Settle(l.Open())
		l.Release()
	}
}

// If a partial slab has waited long enough, or is flushed, the full slabs before it are read first.
func TestPartialSlabFollowsFullSlabs(t *testing.T) {
	for _, limits := range []batch.Limits{{}, {Records: 7}} {
		for _, flush := range []bool{false, true} {
			bubble.Test(t, func(t *testing.T) {
				w, log := mustLog(t, &slab.Options{SlabBytes: 1024, SlabCount: 8, FlushInterval: time.Second}, Consumer{Limits: limits})
				write := func(from, to int) {
					for i := from; i < to; i++ {
						if err := w.WriteRecord(line(i, 50), batch.Meta{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				write(0, 1)
				if got := readTickets(log); len(got) > 0 {
					t.Errorf("%v: a partial slab is read at once", limits)
				}
				write(1, 30) // until two slabs are full, and a third partly
				if flush {
					log.Flush()
				} else {
					time.Sleep(time.Second)
				}
				if got := readTickets(log); len(got) != 30 || !slices.IsSorted(got) {
					t.Errorf("%v, flush=%v: tickets %d", limits, flush, got)
				}
			})
		}
	}
}

// Calls that wait for the lock at the same time get their tickets in the order in which they store
// their records.
func TestTicketsHaveTheOrderOfTheRecords(t *testing.T) {
	const callers = 16
	w, log := mustLog(t, &slab.Options{SlabBytes: 4096, SlabCount: 4, FlushInterval: -1}, Consumer{})
	for round := range 50 {
		var begun atomic.Int64
		var wg sync.WaitGroup
		w.front.mu.Lock()
		for g := range callers {
			wg.Go(func() {
				begun.Add(1)
				if err := w.WriteRecord(line(g, 50), batch.Meta{}); err != nil {
					t.Error(err)
				}
			})
		}
		for begun.Load() < callers {
			runtime.Gosched()
		}
		time.Sleep(time.Duration(round%10) * 10 * time.Microsecond) // the calls spin or wait
		w.front.mu.Unlock()
		wg.Wait()
		log.Flush()
		if got := readTickets(log); len(got) != callers || !slices.IsSorted(got) {
			t.Fatalf("round %d: tickets %d", round, got)
		}
	}
}
