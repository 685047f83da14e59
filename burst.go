package forebay

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/wallclock"
)

// begin adds a burst, a series of records with the message of rec, because Sample omits rec. It
// does nothing if the slot already has a burst with the same key.
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

// tick logs the bursts that have ended. It runs in the goroutine of a timer. It restarts the timer
// only after all bursts are logged, so a hanging destination blocks at most one such goroutine.
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

// endBursts ends all bursts and logs them. It returns when the bursts are logged or when ctx ends.
// A write that hangs continues in the background.
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
