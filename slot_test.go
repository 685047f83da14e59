package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/plural"
)

// checkSlot fails if the account of the slot does not balance, or differs from the expected one.
func checkSlot(t *testing.T, s *Slot, want string) {
	t.Helper()
	a := s.s.Account()
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	if got := a.String(); got != want {
		t.Errorf("account %s, want %s", got, want)
	}
}

// Stored records are passed on first and in order, with their Meta. Later records go directly to
// the destination.
func TestSlotPassesStoredRecordsFirst(t *testing.T) {
	for _, kind := range []string{"direct", "buffered"} {
		t.Run(kind, func(t *testing.T) {
			s := NewSlot(0)
			r := newRouter(t, Route(plain(), Writer(s, Level(slog.LevelDebug))))
			log := r.Logger()
			var want []string
			for i := range 10 {
				log.Info(fmt.Sprint(i))
				want = append(want, msg(fmt.Sprint(i)))
			}
			checkSlot(t, s, "accepted=10 delivered=0 pending=10{slab=10 spill=0 inflight=0}")
			if err := r.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "no destination yet for 10 records") {
				t.Errorf("Flush without destination: %v", err)
			}
			var d lines
			k := &memOutput{}
			got := d.all
			var w io.Writer = &d
			if kind == "buffered" {
				w, got = k, k.all
			}
			if err := s.Set(w); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got(), want) {
				t.Errorf("after Set: %q", got())
			}
			log.Log(slog.LevelDebug, "after")
			if n := len(got()); n != 11 {
				t.Errorf("%d records, want 11", n)
			}
			if kind == "buffered" && (k.metas[3].Level != slog.LevelInfo || k.metas[3].Time == 0 || k.metas[10].Level != slog.LevelDebug) {
				t.Errorf("wrong Meta: %+v", k.metas)
			}
			if err := r.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			checkSlot(t, s, "accepted=11 delivered=11")
			if err := s.Set(&d); !errors.Is(err, errSlotSet) {
				t.Errorf("second Set: %v", err)
			}
		})
	}
}

// Records that exceed the limit are dropped and counted. A smaller record may still fit.
func TestSlotDropsRecordsBeyondLimit(t *testing.T) {
	s := NewSlot(3*(slotRecordBytes+10), Name("early"))
	if s.s.Name() != "early" {
		t.Error(s.s.Name())
	}
	rec := []byte("0123456789")
	for i := range 5 {
		if err := s.WriteRecord(rec, batch.Meta{}); (err != nil) != (i > 2) || err != nil && !errors.Is(err, errFull) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	if n, err := s.Write(rec); n != 10 || err != nil {
		t.Errorf("Write: %d, %v", n, err)
	}
	checkSlot(t, s, "accepted=6 delivered=0 dropped=3{full=3} pending=3{slab=3 spill=0 inflight=0}")
	var d lines
	if err := s.Set(&d); err != nil {
		t.Error(err)
	}
	if d.len() != 3 {
		t.Errorf("%d records, want 3", d.len())
	}
	checkSlot(t, s, "accepted=6 delivered=3 dropped=3{full=3}")
}

// If the destination fails during Set, no record is lost: Set returns the error, and another
// destination continues at the same record.
func TestFailedSetKeepsRecords(t *testing.T) {
	ten := func() (*Slot, string) {
		s, want := NewSlot(0, quiet()), ""
		for i := range 10 {
			p := fmt.Sprintf("record %d\n", i)
			if err := s.WriteRecord([]byte(p), batch.Meta{}); err != nil {
				t.Fatal(err)
			}
			want += p
		}
		return s, want
	}
	for name, fault := range map[string]func([]byte) (int, error){
		"error": answer2(0, errTest),
		"panic": func([]byte) (int, error) { panic("oops") },
	} {
		for _, at := range []int{0, 4, 9} {
			t.Run(fmt.Sprint(name, at), func(t *testing.T) {
				s, want := ten()
				bad := &script{}
				for range at {
					bad.steps = append(bad.steps, func(p []byte) (int, error) { return len(p), nil })
				}
				bad.steps = append(bad.steps, fault)
				err := s.Set(bad)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("failed, %s left", plural.Of(10-at, "record"))) {
					t.Errorf("Set: %v", err)
				}
				newer := "newer\n"
				if _, err := s.Write([]byte(newer)); err != nil {
					t.Error(err)
				}
				a := s.s.Account()
				if a.Check() != nil || a.Delivered != uint64(at) || a.Pending.Slab != uint64(11-at) {
					t.Errorf("%s", a)
				}
				good := &script{}
				if err := s.Set(good); err != nil {
					t.Error(err)
				}
				if got := bad.got.String() + good.got.String(); got != want+newer {
					t.Errorf("%q", got)
				}
				checkSlot(t, s, "accepted=11 delivered=11")
			})
		}
	}
	t.Run("buffered", func(t *testing.T) {
		// The writer is closed during Set and opened again. The second Set with it continues, and
		// its account is counted once.
		s, want := ten()
		k := &closingMemOutput{after: 5}
		if err := s.Set(k); !errors.Is(err, batch.ErrClosed) {
			t.Errorf("Set: %v", err)
		}
		checkSlot(t, s, "accepted=10 delivered=5 pending=5{slab=5 spill=0 inflight=0}")
		k.after = 100
		if err := s.Set(k); err != nil {
			t.Error(err)
		}
		if got := strings.Join(k.all(), ""); got != want {
			t.Errorf("%q", got)
		}
		checkSlot(t, s, "accepted=10 delivered=10")
	})
	t.Run("buffered that drops", func(t *testing.T) {
		s, _ := ten()
		k := &droppingMemOutput{}
		if err := s.Set(k); err != nil {
			t.Error(err)
		}
		checkSlot(t, s, "accepted=10 delivered=0 dropped=10{full=10}")
	})
	t.Run("goexit", func(t *testing.T) {
		s, want := ten()
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = s.Set(writerFunc(func([]byte) (int, error) { runtime.Goexit(); return 0, nil }))
		})
		wg.Wait()
		good := &script{}
		if err := s.Set(good); err != nil || good.got.String() != want {
			t.Errorf("%q, %v", good.got.String(), err)
		}
		checkSlot(t, s, "accepted=10 delivered=10")
	})
}

// A closingMemOutput returns batch.ErrClosed after some records.
type closingMemOutput struct {
	memOutput
	after int
}

func (k *closingMemOutput) WriteRecord(p []byte, m batch.Meta) error {
	if k.len() >= k.after {
		return fmt.Errorf("memOutput: %w", batch.ErrClosed)
	}
	return k.memOutput.WriteRecord(p, m)
}

// A droppingMemOutput accepts every record into its account and drops it.
type droppingMemOutput struct {
	memOutput
	n uint64
}

func (k *droppingMemOutput) WriteRecord([]byte, batch.Meta) error { k.n++; return errTest }
func (k *droppingMemOutput) Account() batch.Account {
	return batch.Account{Accepted: k.n, Dropped: batch.Drops{batch.Full: k.n}}
}

func TestSetRefusesInvalidWriters(t *testing.T) {
	s := NewSlot(0)
	var f *os.File
	for _, w := range []io.Writer{nil, f, s} {
		if err := s.Set(w); err == nil {
			t.Errorf("Set(%v) is accepted", w)
		}
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.Set(&lines{}); err != nil {
		t.Error(err)
	}
}

// If the destination fails after Set, the failure is counted and reported, and callers are not
// affected.
func TestSlotReportsFailingDestination(t *testing.T) {
	s := NewSlot(0, quiet())
	w := &script{}
	if err := s.Set(w); err != nil {
		t.Fatal(err)
	}
	r := newRouter(t, quiet(), Route(plain(), Writer(s)))
	w.steps = append(w.steps, answer2(0, errTest), func([]byte) (int, error) { panic("oops") },
		func([]byte) (int, error) { runtime.Goexit(); return 0, nil })
	for range 4 {
		var wg sync.WaitGroup
		wg.Go(func() { r.Logger().Info("m") })
		wg.Wait()
	}
	checkSlot(t, s, "accepted=4 delivered=1 dropped=3{failed=3}")
}

// A destination that hangs after Set is skipped like any stuck direct output, and does not delay
// other outputs.
func TestSlotSkipsHangingDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := NewSlot(0, quiet())
		if err := s.Set(writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil })); err != nil {
			t.Fatal(err)
		}
		k := &memOutput{}
		r := newRouter(t, Route(plain(), Writer(s), Writer(k)))
		var wg sync.WaitGroup
		wg.Go(func() { r.Logger().Info("m") })
		synctest.Wait()
		if k.len() != 1 {
			t.Errorf("the buffered output has %d records", k.len())
		}
		begun := time.Now()
		for range 100 {
			r.Logger().Info("m")
		}
		if d := time.Since(begun); d > defaultBusyTimeout {
			t.Errorf("100 calls took %v", d)
		}
		close(release)
		wg.Wait()
		checkSlot(t, s, "accepted=101 delivered=1 dropped=100{busy=100}")
	})
}

// During Set no record is lost, the records of each goroutine stay in order, and Set ends although
// goroutines keep writing.
func TestSetDuringWrites(t *testing.T) {
	s := NewSlot(64<<20, longBusyTimeout)
	w := &script{}
	const goroutines, per = 8, 2000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range per {
				if err := s.WriteRecord(fmt.Appendf(nil, "%d %d\n", g, i), batch.Meta{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		if err := s.Set(w); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	var last [goroutines]int
	n := 0
	for line := range strings.Lines(w.got.String()) {
		var g, i int
		if _, err := fmt.Sscan(line, &g, &i); err != nil {
			t.Fatal(err)
		}
		if i != last[g] {
			t.Fatalf("goroutine %d: record %d, want %d", g, i, last[g])
		}
		last[g]++
		n++
	}
	if n != goroutines*per {
		t.Errorf("%d records, want %d", n, goroutines*per)
	}
	checkSlot(t, s, fmt.Sprintf("accepted=%d delivered=%d", n, n))
}

// While Set hangs with the last stored records, writers wait at most BusyTimeout. Flush and
// Shutdown wait until their contexts end.
func TestHangingSetDelaysCallersByBusyTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := NewSlot(0)
		n := 0
		w := writerFunc(func(p []byte) (int, error) {
			switch n++; n {
			case 1: // Set passes these records on in its second pass, in which writers wait
				_, _ = s.Write([]byte("newer\n"))
				_, _ = s.Write([]byte("newest\n"))
			case 3:
				<-release
			}
			return len(p), nil
		})
		_, _ = s.Write([]byte("held\n"))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Set(w); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := s.Set(&lines{}); !errors.Is(err, errSlotSet) {
			t.Errorf("a second Set during Set: %v", err)
		}
		begun := time.Now()
		if err := s.WriteRecord([]byte("late\n"), batch.Meta{}); !errors.Is(err, errBusy) || time.Since(begun) != defaultBusyTimeout {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		if _, err := s.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		checkSlot(t, s, "accepted=4 delivered=2 dropped=1{busy=1} pending=1{slab=1 spill=0 inflight=0}")
		close(release)
		wg.Wait()
		checkSlot(t, s, "accepted=4 delivered=3 dropped=1{busy=1}")
	})
}

// The limit includes records that Set is passing on.
func TestSetCountsRecordsInLimit(t *testing.T) {
	s := NewSlot(2 * (slotRecordBytes + 2))
	n := 0
	w := writerFunc(func(p []byte) (int, error) {
		if n++; n == 1 {
			if err := s.WriteRecord([]byte("c\n"), batch.Meta{}); !errors.Is(err, errFull) {
				t.Errorf("during Set: %v", err)
			}
		}
		return len(p), nil
	})
	for _, p := range []string{"a\n", "b\n"} {
		if err := s.WriteRecord([]byte(p), batch.Meta{}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Set(w); err != nil {
		t.Error(err)
	}
	// A caller that found no destination just before the end of Set must try again.
	if wait, err := s.s.store([]byte("d\n"), batch.Meta{}); wait == nil || err != nil {
		t.Errorf("the record was stored although there is a destination: %v", err)
	}
	checkSlot(t, s, "accepted=3 delivered=2 dropped=1{full=1}")
}

// Slots receive a record before other direct outputs, which may hang.
func TestSlotPrecedesDirectOutputs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, k := NewSlot(0), &memOutput{}
		if err := s.Set(k); err != nil {
			t.Fatal(err)
		}
		hung := writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil })
		r := newRouter(t, Route(plain(), Writer(hung, Direct()), Writer(s)))
		var wg sync.WaitGroup
		wg.Go(func() { r.Logger().Info("m") })
		synctest.Wait()
		if k.len() != 1 {
			t.Errorf("%d records behind the slot, want 1", k.len())
		}
		close(release)
		wg.Wait()
	})
}

// Close closes the destination. If the slot has no destination, the stored records are dropped and
// counted. Later writes are refused.
func TestSlotCloseDropsStoredRecords(t *testing.T) {
	d := &device{}
	s := NewSlot(0)
	_, _ = s.Write([]byte("x\n"))
	if err := s.Set(devFile{d}); err != nil {
		t.Fatal(err)
	}
	if err := s.s.Sync(); err != nil || d.called() != "sync" {
		t.Errorf("%q, %v", d.called(), err)
	}
	r := newRouter(t, Route(plain(), Writer(s, CloseWriter())))
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil || d.called() != "sync sync close" {
		t.Errorf("%q, %v", d.called(), err)
	}
	if _, err := s.Write([]byte("x\n")); !errors.Is(err, errClosed) {
		t.Error(err)
	}

	s = NewSlot(0)
	_, _ = s.Write([]byte("x\n"))
	if err := s.s.Sync(); err != nil {
		t.Error(err)
	}
	rep, err := s.s.Shutdown(t.Context())
	if err == nil || !strings.Contains(err.Error(), "1 record lost") || rep.Dropped[batch.Shutdown] != 1 {
		t.Errorf("%v, %v", rep, err)
	}
	if err := s.WriteRecord([]byte("x\n"), batch.Meta{}); !errors.Is(err, batch.ErrClosed) {
		t.Error(err)
	}
	if err := s.Set(&lines{}); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if again := s.Close(); again == nil || again.Error() != err.Error() {
		t.Errorf("again: %v", again)
	}
	checkSlot(t, s, "accepted=1 delivered=0 dropped=1{shutdown=1}")
}

// After Set and Flush, a SlabWriter as the destination has written all records.
func TestSlotWithSlabWriter(t *testing.T) {
	s := NewSlot(0)
	r := newRouter(t, Route(plain(), Writer(s, CloseWriter())))
	for range 100 {
		r.Logger().Info("m")
	}
	var dst lines
	sw, err := deliver.NewOutput(deliver.ToWriter(&dst), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(sw); err != nil {
		t.Error(err)
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if got := strings.Count(strings.Join(dst.all(), ""), "\n"); got != 100 {
		t.Errorf("%d records, want 100", got)
	}
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := sw.Write([]byte("x")); err == nil {
		t.Error("the slab writer is not closed")
	}
}

// A second Set with the same writer first ends the line that a failed write of the first Set tore.
func TestSetAgainCompletesTornLine(t *testing.T) {
	s := NewSlot(1<<16, OnError(func(batch.Event) {}))
	for range 5 {
		if _, err := s.Write([]byte("0123456789\n")); err != nil {
			t.Fatal(err)
		}
	}
	w := &tearing{at: 3}
	if err := s.Set(w); err == nil {
		t.Fatal("the first Set did not fail")
	}
	if err := s.Set(w); err != nil {
		t.Fatal(err)
	}
	whole := 0
	for l := range strings.Lines(w.got.String()) {
		switch {
		case l == "0123456789\n":
			whole++
		case !strings.HasPrefix("0123456789\n", strings.TrimSuffix(l, "\n")):
			t.Errorf("two records in one line: %q", l)
		}
	}
	if whole != 5 {
		t.Errorf("%d whole records of 5: %q", whole, w.got.String())
	}
}

// A tearing is a writer whose write number at accepts four bytes and fails. The next write fails,
// too.
type tearing struct {
	got   strings.Builder
	calls int
	at    int
}

func (w *tearing) Write(p []byte) (int, error) {
	w.calls++
	switch w.calls {
	case w.at:
		w.got.Write(p[:4])
		return 4, errors.New("torn")
	case w.at + 1:
		return 0, errors.New("still down")
	}
	return w.got.Write(p)
}

// If a slot is closed while Set hangs, the end of Set completes the Shutdown: it closes the
// destination, or drops the records that the destination has not accepted.
func TestShutdownDuringHangingSet(t *testing.T) {
	for _, tt := range []struct {
		fails         bool
		calls, counts string
	}{
		{false, "close", "accepted=3 delivered=3"},
		{true, "", "accepted=3 delivered=0 dropped=3{shutdown=3}"},
	} {
		bubble.Test(t, func(t *testing.T) {
			release, closed := make(chan struct{}), ""
			w := struct {
				io.Writer
				io.Closer
			}{writerFunc(func(p []byte) (int, error) {
				<-release
				if tt.fails {
					return 0, errors.New("gone")
				}
				return len(p), nil
			}), closerFunc(func() error { closed += "close"; return nil })}
			s := NewSlot(0, quiet())
			for range 3 {
				_, _ = s.Write([]byte("held\n"))
			}
			go func() { _ = s.Set(&w) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			close(release)
			synctest.Wait()
			checkSlot(t, s, tt.counts)
			if closed != tt.calls {
				t.Errorf("%q, want %q", closed, tt.calls)
			}
		})
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }
