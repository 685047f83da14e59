package deliver_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// FailingSince is the time of the first failure until the next success, regardless of the circuit.
// OldestWait is the time that the oldest batch has waited.
func TestStatsOfAnOutage(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		traits deliver.Traits
		spool  string
	}{"session": {}, "inline": {traits: deliver.Traits{Inline: true}}, "spool": {spool: dir}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var down atomic.Bool
				dest := deliver.SendFunc(tt.traits, func(context.Context, *batch.Batch) batch.Outcome {
					if down.Load() {
						return batch.FailedOutcome(testkit.ErrDown)
					}
					return batch.Outcome{}
				})
				out := mustOutput(t, dest, &deliver.OutputOptions{SpoolDir: tt.spool})
				write := func() {
					if err := out.WriteRecord([]byte("record\n"), batch.Meta{}); err != nil {
						t.Error(err)
					}
				}
				wantStats := func(since time.Time, err string) {
					t.Helper()
					synctest.Wait()
					s := out.Stats()
					if !s.Deliver.FailingSince.Equal(since) || s.Deliver.LastError != err || s.Deliver.Gone {
						t.Errorf("failing since %v because of %q, want %v, %q", s.Deliver.FailingSince, s.Deliver.LastError, since, err)
					}
					if s.Pending.Total() == 0 && s.Deliver.OldestWait != 0 {
						t.Errorf("nothing is pending, but OldestWait is %v", s.Deliver.OldestWait)
					}
				}
				wantStats(time.Time{}, "")
				write()
				time.Sleep(time.Second)
				wantStats(time.Time{}, "")
				for range 2 {
					down.Store(true)
					write()
					time.Sleep(100 * time.Millisecond) // the default FlushInterval
					began := time.Now()
					wantStats(began, testkit.ErrDown.Error())
					time.Sleep(20 * time.Second)
					wantStats(began, testkit.ErrDown.Error())
					s := out.Stats().Deliver
					if s.Breaker == deliver.Closed {
						t.Error("the circuit is closed")
					}
					if tt.spool == "" && s.OldestWait != time.Since(began) {
						t.Errorf("OldestWait is %v, want %v", s.OldestWait, time.Since(began))
					}
					down.Store(false)
					time.Sleep(2 * time.Minute)
					wantStats(time.Time{}, "")
				}
				if err := out.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The wait of a batch in flight counts from its arrival, even after the batch was moved to the
// spool.
func TestOldestOfAHang(t *testing.T) {
	dir := t.TempDir()
	for name, spool := range map[string]string{"memory": "", "spool": dir} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				step := make(chan struct{})
				out := mustOutput(t, sendTo(func(*batch.Batch) batch.Outcome { <-step; return batch.Outcome{} }), &deliver.OutputOptions{SpoolDir: spool})
				came := make([]time.Time, 3)
				for i := range came {
					if err := out.WriteRecord([]byte("record\n"), batch.Meta{Time: 1}); err != nil {
						t.Error(err)
					}
					time.Sleep(100 * time.Millisecond) // the default FlushInterval
					came[i] = time.Now()
					time.Sleep(time.Minute)
				}
				for i, want := range came {
					synctest.Wait()
					got := out.Stats().Deliver.OldestWait
					if want := time.Since(want); i < 2 && got != want || got > want {
						t.Errorf("batch %d: OldestWait is %v, want %v", i, got, want)
					}
					step <- struct{}{}
				}
				synctest.Wait()
				if got := out.Stats().Deliver.OldestWait; got != 0 {
					t.Errorf("nothing is pending, but OldestWait is %v", got)
				}
				if err := out.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// For a destination that has ended permanently, Stats reports Gone and the time of the first
// refusal.
func TestStatsOfAnEndedDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out := mustOutput(t, deliver.ToWriter(goneWriter{}), new(deliver.OutputOptions))
		var began time.Time
		for range 3 {
			if err := out.WriteRecord([]byte("record\n"), batch.Meta{}); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
			if began.IsZero() {
				began = time.Now()
			}
			synctest.Wait()
			if s := out.Stats().Deliver; !s.Gone || !s.FailingSince.Equal(began) || s.LastError != os.ErrClosed.Error() {
				t.Errorf("gone %t, since %v, %q, want %v", s.Gone, s.FailingSince, s.LastError, began)
			}
			time.Sleep(time.Second)
		}
		if err := out.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
}

type goneWriter struct{}

func (goneWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }
