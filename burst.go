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

// burstTick is the interval between checks of bursts. A burst has ended if its message did not
// occur between two checks.
const burstTick = time.Second

// A burst counts the records with the same message that a Sample omits. Their number is logged with
// the next record or, at the end of the burst, in a separate record.
type burst struct {
	slot      *sampleSlot
	key       uint64
	name, msg string // name of the logger and message of the first omitted record
	level     slog.Level
	omitted   uint64 // number of omitted records that were moved here from slot.omitted

	sec int64  // slot.sec at the last tick
	n   uint64 // slot.n at the last tick
}

// bursts holds the bursts in progress. While there are any, a timer looks for bursts that have
// ended.
type bursts struct {
	mu      sync.Mutex // acquired once per burst and tick; no other lock is acquired under it
	list    []*burst
	ticking bool // the timer is set, or tick is running

	writing chan struct{} // contains an element while a goroutine logs ended bursts; capacity 1
}

// begin adds a burst for the message of an omitted record, if there is none.
func (c *core) begin(slot *sampleSlot, key uint64, name string, rec *encode.Record) {
	t := &c.bursts
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := slot.burst.Load(); b == nil || b.key != key {
		b = &burst{slot: slot, key: key, name: name, msg: strings.Clone(rec.Message), level: rec.Level}
		t.list = append(t.list, b)
		slot.burst.Store(b)
	}
	if !t.ticking && !c.closed.Load() {
		t.ticking = true
		time.AfterFunc(burstTick, c.tick)
	}
}

// addOmitted adds a number of omitted records to the burst of the message with the given key. It is
// called when another message has replaced that message in the slot.
func (t *bursts) addOmitted(slot *sampleSlot, key, omitted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := slot.burst.Load(); b != nil && b.key == key {
		b.omitted += omitted
	} else {
		slot.omitted.Add(omitted) // the burst has just ended: the number is logged with the slot's next record
	}
}

// removeEnded removes the bursts that have ended, or every burst if all is set. It returns the
// removed bursts with omitted records, which the caller logs.
func (t *bursts) removeEnded(all bool) (ended []*burst) {
	t.mu.Lock()
	defer t.mu.Unlock()
	running := t.list[:0]
	for _, b := range t.list {
		sec, n := b.slot.sec.Load(), b.slot.n.Load()
		over := sec == b.sec && n == b.n || b.slot.key.Load() != b.key
		b.sec, b.n = sec, n
		if !all && !over {
			running = append(running, b)
			continue
		}
		// The pointer is removed before the count is read. A record that is omitted after the
		// removal begins a new burst, so that no count is lost.
		if b.slot.burst.CompareAndSwap(b, nil) {
			b.omitted += b.slot.omitted.Swap(0)
		}
		if b.omitted > 0 {
			ended = append(ended, b)
		}
	}
	clear(t.list[len(running):])
	t.list = running
	return ended
}

// tick logs the bursts that have ended. It runs in the timer's goroutine and sets the timer again
// only after everything is logged, so that a hanging destination blocks at most one such goroutine.
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
	c.logBursts(t.removeEnded(false))
}

// endBursts ends and logs all bursts. It returns when they are logged or when ctx ends. A hanging
// write continues in the background.
func (c *core) endBursts(ctx context.Context) {
	if len(c.samples) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.bursts.writing <- struct{}{}
		defer func() { <-c.bursts.writing }()
		c.logBursts(c.bursts.removeEnded(true))
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// logBursts logs a record for each burst, with the logger name of the burst.
func (c *core) logBursts(ended []*burst) {
	for _, b := range ended {
		h := &c.router.Logger().Named(b.name).h
		if b.level < h.levels.least.Level() {
			continue
		}
		s := c.pool.get()
		s.rec.Time, s.rec.Level, s.rec.Message, s.rec.PC = wallclock.Now(), b.level, b.msg, 0
		s.attrs = append(append(s.attrs, h.top...), slog.Uint64("repeated", b.omitted))
		h.send(s, len(s.attrs))
		c.pool.put(s)
	}
}
