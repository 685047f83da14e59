package slablog

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// levelFunc is a slog.Leveler with code of the user.
type levelFunc func() slog.Level

func (f levelFunc) Level() slog.Level { return f() }

// Only New calls a Leveler. The Leveler may log to the Writer. If it does not return, New returns
// an error that names the option.
func TestLevelersAreNotCalledByWrites(t *testing.T) {
	g := newGate()
	var w *pump
	calls := 0
	l := levelFunc(func() slog.Level {
		if calls++; w != nil { // with the lock held, this call would never return
			_, _ = w.Write([]byte("log\n"))
		}
		return slog.LevelWarn
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w = mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), Reserve: 1,
			FlushLevel: l, ReserveLevel: l, ImportantLevel: l})
		for i := range 50 {
			_ = w.WriteRecord(line(i, 50), batch.Meta{Level: slog.LevelError})
		}
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("a write waits for itself")
	}
	g.open()
	closeNow(t, w)
	if a := w.Account(); calls != 3 || a.Accepted != 50 || a.Dropped[batch.Full] == 0 || a.Check() != nil {
		t.Errorf("%d calls, %v", calls, a)
	}

	for name, unwind := range unwinds {
		l := levelFunc(func() slog.Level { unwind(); return 0 })
		for field, o := range map[string]slab.Options{"FlushLevel": {FlushLevel: l}, "ReserveLevel": {ReserveLevel: l}, "ImportantLevel": {ImportantLevel: l}} {
			if _, err := newPump(consumerFor(&memory{}), &o); err == nil || !strings.Contains(err.Error(), "Options."+field) {
				t.Errorf("%s in %s: %v", name, field, err)
			}
		}
	}
	if _, err := newPump(consumerFor(&memory{}), &slab.Options{FlushLevel: (*slog.LevelVar)(nil)}); err == nil || !strings.Contains(err.Error(), "Options.FlushLevel") {
		t.Error(err)
	}
}

// A change of a slog.LevelVar takes effect immediately.
func TestLevelVarsAreLive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var m memory
		var flush slog.LevelVar
		flush.Set(slog.LevelError)
		w := mustNew(t, &m, &slab.Options{FlushInterval: -1, FlushLevel: &flush})
		for i, set := range []slog.Level{slog.LevelError, slog.LevelInfo, slog.LevelError, slog.LevelDebug} {
			flush.Set(set)
			mustWrite(t, w, i, 10)
			synctest.Wait()
			if got, want := len(numbers(t, m.String())), []int{0, 2, 2, 4}[i]; got != want {
				t.Errorf("%d records arrived after the one at FlushLevel %v, want %d", got, set, want)
			}
		}
		closeNow(t, w)
	})
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		var reserve, important slog.LevelVar
		important.Set(slog.LevelError)
		var last memory
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.DropNewest(), Reserve: 2,
			ReserveLevel: &reserve, ImportantLevel: &important, LastResort: &last})
		n := 0
		fill := func() (took int) {
			for w.WriteRecord(line(n, 100), batch.Meta{}) == nil && took < 50 {
				n++
				took++
			}
			return took
		}
		reserve.Set(slog.LevelError)
		half := fill()
		reserve.Set(slog.LevelInfo)
		if all := fill(); half == 0 || all == 0 {
			t.Errorf("%d records above the reserve, %d in it", half, all)
		}
		important.Set(slog.LevelInfo)
		if fill() != 50 {
			t.Error("the last resort does not take records that are important now")
		}
		g.open()
		closeNow(t, w)
	})
}
