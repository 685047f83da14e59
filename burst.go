package forebay

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/wallclock"
)

// burstTick is the interval between checks of bursts. A burst whose message did not occur
// between two checks has ended.
const burstTick = time.Second

// A burst is a message whose records are partly omitted. The number of omitted records is logged
// with the next record or, at the end of the burst, in a separate record.
type burst struct {
	slot      *sampleSlot
	key       uint64
	name, msg string // name of the logger and message of the first omitted record
	level     slog.Level
	omitted   uint64 // number of records omitted before another message used the slot

	sec int64  // slot.sec at the last tick
	n   uint64 // slot.n at the last tick
}

// bursts holds the bursts in progress. A timer checks them while the list is not empty.
type bursts struct {
	mu      sync.Mutex // leaf lock, acquired once per burst and tick
	list    []*burst
	ticking bool // the timer is set, or tick is running

	writing chan struct{} // semaphore of capacity 1: held while records are written
}

// begin adds the message of an omitted record, unless it is present.
func (c *core) begin(slot *sampleSlot, key uint64, name string, rec *encode.Record) {
	t := &c.bursts
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := slot.burst.Load(); st == nil || st.key != key {
		st = &burst{slot: slot, key: key, name: name, msg: strings.Clone(rec.Message), level: rec.Level}
		t.list = append(t.list, st)
		slot.burst.Store(st)
	}
	if !t.ticking && !c.closed.Load() {
		t.ticking = true
		time.AfterFunc(burstTick, c.tick)
	}
}

// keep stores the number of omitted records of a message whose slot is now used by another message.
func (t *bursts) keep(slot *sampleSlot, key, omitted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := slot.burst.Load(); st != nil && st.key == key {
		st.omitted += omitted
	} else {
		slot.omitted.Add(omitted) // the burst has just been reported; the next one reports these records
	}
}

// end removes the bursts that have ended, or all bursts if all is set. It returns those with omitted
// records, which the caller reports.
func (t *bursts) end(all bool) (ended []*burst) {
	t.mu.Lock()
	defer t.mu.Unlock()
	under := t.list[:0]
	for _, st := range t.list {
		sec, n := st.slot.sec.Load(), st.slot.n.Load()
		over := sec == st.sec && n == st.n || st.slot.key.Load() != st.key
		st.sec, st.n = sec, n
		if !all && !over {
			under = append(under, st)
			continue
		}
		// The order matters: callers that count after the swap begin a new burst.
		if st.slot.burst.CompareAndSwap(st, nil) {
			st.omitted += st.slot.omitted.Swap(0)
		}
		if st.omitted > 0 {
			ended = append(ended, st)
		}
	}
	clear(t.list[len(under):])
	t.list = under
	return ended
}

// tick reports the bursts that have ended. It runs in the goroutine of the timer, which is set again
// after everything is written. Therefore a hanging destination blocks only one such goroutine.
func (c *core) tick() {
	t := &c.bursts
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ticking = len(t.list) > 0 && !c.closed.Load(); t.ticking {
			time.AfterFunc(burstTick, c.tick)
		}
	}()
	t.writing <- struct{}{}
	defer func() { <-t.writing }()
	c.logBursts(t.end(false))
}

// endBursts logs all bursts within ctx. A hanging write continues in the background.
func (c *core) endBursts(ctx context.Context) {
	if len(c.samples) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.bursts.writing <- struct{}{}
		defer func() { <-c.bursts.writing }()
		c.logBursts(c.bursts.end(true))
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// logBursts writes a record for each burst with the logger of the same name.
func (c *core) logBursts(ended []*burst) {
	for _, st := range ended {
		h := &c.router.Logger().Named(st.name).h
		if st.level < h.named.least.Level() {
			continue
		}
		s := c.pool.get()
		s.rec.Time, s.rec.Level, s.rec.Message, s.rec.PC = wallclock.Now(), st.level, st.msg, 0
		s.attrs = append(append(s.attrs, h.top...), slog.Uint64("repeated", st.omitted))
		h.send(s, len(s.attrs))
		c.pool.put(s)
	}
}
