package slablog

import (
	"errors"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// pages is a destination that stores the time and size of each write.
type pages struct {
	start time.Time
	sizes []int
	last  time.Duration
}

func (p *pages) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	p.last = time.Since(p.start)
	return len(b), nil
}

// With FlushIdle, slabs are filled while records arrive. A thousand records of 256 B per second are
// written in pieces of 25 KB without FlushIdle, and in whole slabs with it.
func TestFlushIdle(t *testing.T) {
	for _, tt := range []struct {
		name           string
		interval, idle time.Duration
		least, most    int           // bounds of the number of writes for 3000 records; a slab holds 227
		late           time.Duration // delay between the last record and the last write
	}{
		{"the age of the oldest alone", 0, 0, 30, 46, 100 * time.Millisecond},
		{"idle alone", 0, 100 * time.Millisecond, 14, 14, 200 * time.Millisecond},
		{"idle, without a bound", -1, 100 * time.Millisecond, 14, 14, 200 * time.Millisecond},
		{"idle, and a bound that is never reached", time.Second, 100 * time.Millisecond, 14, 14, 200 * time.Millisecond},
		{"idle, and a bound that is", 150 * time.Millisecond, 100 * time.Millisecond, 20, 34, 150 * time.Millisecond},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := &pages{start: time.Now()}
			w := mustNew(t, p, &slab.Options{FlushInterval: tt.interval, FlushIdle: tt.idle})
			for i := range 3000 {
				mustWrite(t, w, i, 256)
				time.Sleep(time.Millisecond)
			}
			came := time.Since(p.start)
			time.Sleep(time.Hour)
			closeNow(t, w)
			if n := len(p.sizes); n < tt.least || n > tt.most || p.last-came > tt.late {
				t.Errorf("%s: %d writes, the last %s behind the last record", tt.name, n, p.last-came)
			}
		})
	}
	if _, err := Resolve(slab.Options{FlushIdle: -1}); err == nil {
		t.Error("a negative FlushIdle")
	}
}

// Stats counts waiting writes and their waiting time, even if their records are then dropped.
func TestWaitsAreCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := mustNew(t, writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil }),
			&slab.Options{SlabBytes: 512, SlabCount: 2, FlushInterval: -1, WhenFull: slab.BlockFor(300 * time.Millisecond)})
		line := make([]byte, 400)
		n := 0
		for ; w.Stats().Waits == 0; n++ {
			if n > 10 {
				t.Fatal("no write waits")
			}
			if _, err := w.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.Stats(); s.Waits != 1 || s.WaitTime != 300*time.Millisecond || s.Dropped.Total() != 1 {
			t.Errorf("%d waits, %s, %s", s.Waits, s.WaitTime, s.Account)
		}
		if err := w.WriteRecord(line, batch.Meta{}); !errors.Is(err, slab.ErrDropped) || errors.Is(err, slab.ErrOversize) {
			t.Error(err)
		}
		if s := w.Stats(); s.Waits != 1 { // after one failed wait, writes do not wait
			t.Errorf("%d waits", s.Waits)
		}
		close(release)
		closeNow(t, w)
	})
}

// While the consumer is busy, the age of records is no reason for a lease, even if the records were
// old enough before: later records may fill the batch.
func TestBusyConsumerGetsFullBatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		busy := false
		w, l, err := New(&slab.Options{OnError: quiet}, Consumer{Limits: batch.Limits{Records: 2}, Busy: func() bool { return busy }})
		if err != nil {
			t.Fatal(err)
		}
		write := func(n int) {
			for range n {
				if err := w.WriteRecord([]byte("record"), batch.Meta{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		next := func() int {
			lease, _ := l.Next()
			if lease == nil {
				time.Sleep(time.Second)
				lease, _ = l.Next()
			}
			if lease == nil {
				return 0
			}
			n := lease.Batch().Len()
			lease.Settle(n)
			lease.Release()
			return n
		}
		write(3)
		first := next()
		busy = true
		second := next()
		busy = false
		third := next()
		write(1)
		busy = true
		fourth := next()
		l.Flush()
		fifth := next()
		if got := [...]int{first, second, third, fourth, fifth}; got != [...]int{2, 0, 1, 0, 1} {
			t.Errorf("sizes of the batches: %d", got)
		}
		l.Close()
		l.End(t.Context(), true)
		l.Leave()
	})
}
