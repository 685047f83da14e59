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

// quietAfter is the interval between checks of bursts. A burst whose message did not occur
// between two checks has ended.
const quietAfter = time.Second

// A burst is a message of which records are left out. Their number is logged with the next
// record or, at the end of the burst, in a separate record.
type burst struct {
	slot      *sampleSlot
	key       uint64
	name, msg string // of the logger and of the first record that was left out
	level     slog.Level
	left      uint64 // records left out when another message took the slot

	sec int64 // what slot had when it was looked at
	n   uint64
}

// bursts are those in progress. A timer checks them; there is none while the list is empty.
type bursts struct {
	mu    sync.Mutex // a leaf, taken once for each burst and at each look
	list  []*burst
	looks bool // the timer is set, or tick runs

	turn chan struct{} // capacity 1: who has put something in writes records
}

// begin adds the message of a record that was left out, unless it is present.
func (c *core) begin(slot *sampleSlot, key uint64, name string, rec *encode.Record) {
	t := &c.bursts
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := slot.told.Load(); st == nil || st.key != key {
		st = &burst{slot: slot, key: key, name: name, msg: strings.Clone(rec.Message), level: rec.Level}
		t.list = append(t.list, st)
		slot.told.Store(st)
	}
	if !t.looks && !c.closed.Load() {
		t.looks = true
		time.AfterFunc(quietAfter, c.tick)
	}
}

// keep adds the records left out of a message whose slot another message has taken over.
func (t *bursts) keep(slot *sampleSlot, key, left uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := slot.told.Load(); st != nil && st.key == key {
		st.left += left
	} else {
		slot.left.Add(left) // its end was told at this very moment; the next one tells it
	}
}

// end removes the bursts that have ended, or all of them, and returns those with records to
// report.
func (t *bursts) end(all bool) (ended []*burst) {
	t.mu.Lock()
	defer t.mu.Unlock()
	under := t.list[:0]
	for _, st := range t.list {
		sec, n := st.slot.sec.Load(), st.slot.n.Load()
		quiet := sec == st.sec && n == st.n || st.slot.key.Load() != st.key
		st.sec, st.n = sec, n
		if !all && !quiet {
			under = append(under, st)
			continue
		}
		// In this order: whoever counts after the swap finds that the message is not there.
		if st.slot.told.CompareAndSwap(st, nil) {
			st.left += st.slot.left.Swap(0)
		}
		if st.left > 0 {
			ended = append(ended, st)
		}
	}
	clear(t.list[len(under):])
	t.list = under
	return ended
}

// tick reports the bursts that have ended. It runs on the goroutine of the timer, which is
// reset after everything is written, so a hanging destination blocks only one such goroutine.
func (c *core) tick() {
	t := &c.bursts
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.looks = len(t.list) > 0 && !c.closed.Load(); t.looks {
			time.AfterFunc(quietAfter, c.tick)
		}
	}()
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	c.tell(t.end(false))
}

// tellAll reports all bursts within ctx. A hanging write continues in the background.
func (c *core) tellAll(ctx context.Context) {
	if len(c.samples) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.bursts.turn <- struct{}{}
		defer func() { <-c.bursts.turn }()
		c.tell(c.bursts.end(true))
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// tell writes a record for each burst, as the logger of its name would.
func (c *core) tell(ended []*burst) {
	for _, st := range ended {
		h := &c.router.Logger().Named(st.name).h
		if st.level < h.named.least.Level() {
			continue
		}
		s := c.pool.get()
		s.rec.Time, s.rec.Level, s.rec.Message, s.rec.PC = wallclock.Now(), st.level, st.msg, 0
		s.attrs = append(append(s.attrs, h.top...), slog.Uint64("repeated", st.left))
		h.send(s, len(s.attrs))
		c.pool.put(s)
	}
}
