//go:build linux || darwin

package slablog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// If the destination accepts nothing and its Close hangs, the records that stay in the file,
// including the records of the last Send, are counted once.
func TestRetainedRecordsCountOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &hangingEnd{end: make(chan struct{})}
		w := mustSink(t, s, &slab.Options{SlabBytes: 512, SlabCount: 4, Crash: &slab.Crash{Dir: t.TempDir(), Required: true}, OnError: quiet})
		for i := range uint64(20) {
			if err := w.WriteRecord(killLine(0, i, 20), batch.Meta{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err != nil || r.Check() != nil || r.Kept() != 20 {
			t.Errorf("%v; %v: %v", err, r.Check(), r.Account)
		}
		close(s.end)
		synctest.Wait()
		if im, err := crashfile.Read(w.store.crash.file.Path()); err != nil || len(im.Records) != 20 {
			t.Errorf("%v: %v", err, im)
		}
	})
}

// While Close leaves the remaining records in the file, a waiting write is refused. Otherwise it
// could get the memory of another write that gives up, and no account would contain its record.
func TestCloseRefusesWaitingWritesWhenItKeepsTheRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &hangingEnd{end: make(chan struct{})}
		w := mustSink(t, s, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.BlockFor(95 * time.Millisecond), ImportantWhenFull: slab.Block(),
			ImportantLevel: slog.LevelError, Crash: &slab.Crash{Dir: t.TempDir(), Required: true}, OnError: quiet})
		mustWrite(t, w, 0, 400)
		mustWrite(t, w, 1, 200) // goes into the second slab, which then has room for a small record
		errs := make([]error, 2)
		for i, m := range []batch.Meta{{}, {Level: slog.LevelError}} {
			go func() { errs[i] = w.WriteRecord(line(2+i, 400-350*i), m) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r, _ := w.Shutdown(ctx) // the time is over after 90 ms, and the first write gives up after 95 ms
		close(s.end)
		synctest.Wait()
		if err := r.Check(); err != nil || r.Kept() != 2 || r.Accepted != 2 {
			t.Errorf("%v: %v", err, r.Account)
		}
		for _, err := range errs {
			if !errors.Is(err, batch.ErrClosed) {
				t.Errorf("a write that waited returned %v", err)
			}
		}
		if im, err := crashfile.Read(w.store.crash.file.Path()); err != nil || len(im.Records) != 2 || im.Damage() != "" {
			t.Errorf("%v: %d records, %s", err, len(im.Records), im.Damage())
		}
	})
}

// A hesitant consumer hangs in Accept before it settles a record.
type hesitant struct {
	*leaseHolder
	hang chan struct{}
}

func (b hesitant) Accept(_ context.Context, l *Lease) error {
	<-b.hang
	return b.leaseHolder.Accept(context.Background(), l)
}

// Close stops waiting for a call of Accept whose record is larger than a slab and not on disk. The
// record is dropped, even if the consumer settles it later.
func TestAbandonedOversizeRecordIsDropped(t *testing.T) {
	for _, takes := range []string{"early", "late"} {
		t.Run(takes, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				holder, hang := newLeaseHolder(testkit.Rand(1), 1), make(chan struct{})
				var b consumer = lingering{holder, hang}
				if takes == "late" {
					b = hesitant{holder, hang}
				}
				w := mustSink(t, b, &slab.Options{SlabBytes: 1024, SlabCount: 4, MaxRecord: 3000, OnError: quiet, Crash: &slab.Crash{Dir: t.TempDir()}})
				w.store.crash.file.Big.Fault = errDown
				mustWrite(t, w, 0, 2000)
				synctest.Wait()
				mustWrite(t, w, 1, 50)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, _ := w.Shutdown(ctx)
				if r.Kept() != 1 || r.Dropped != drops(batch.Shutdown, 1) || r.Unknown != 1 || r.Check() != nil {
					t.Errorf("%v, %d unknown, %v", r.Account, r.Unknown, r.Check())
				}
				if im, err := crashfile.Read(oneFile(t, w.conf.o.Crash.Dir)); err != nil || len(im.Records) != 1 {
					t.Errorf("%v: %d records", err, len(im.Records))
				}
				close(hang)
				time.Sleep(time.Second)
				for holder.step() {
				}
				if a := w.Account(); a != r.Account {
					t.Errorf("report %v, later %v", r.Account, a)
				}
			})
		})
	}
}

type hangingEnd struct{ end chan struct{} }

func (s *hangingEnd) Send(context.Context, *batch.Batch) batch.Outcome { return failed() }

func (s *hangingEnd) Close(context.Context) error {
	<-s.end
	return nil
}

// A breaking consumer damages the file in its Shutdown, before or after it returns records.
type breaking struct {
	*leaseHolder
	broken func()
	late   bool
}

func (b breaking) Shutdown(ctx context.Context) (batch.Report, error) {
	if !b.late {
		b.broken()
	}
	defer func() {
		if b.late {
			b.broken()
		}
	}()
	return b.leaseHolder.Shutdown(ctx)
}

// If the file is truncated or deleted while Close leaves records in it, each record is counted once
// and none counts as retained.
func TestNothingIsKeptInADamagedFile(t *testing.T) {
	damages := map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"deleted":   os.Remove,
	}
	for name, damage := range damages {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					b := &breaking{leaseHolder: newLeaseHolder(testkit.Rand(seed/2), 2), late: seed%2 == 1}
					w := mustSink(t, b, &slab.Options{SlabBytes: 1024, SlabCount: 8, Crash: &slab.Crash{Dir: t.TempDir(), Required: true}})
					b.broken = func() {
						if err := damage(w.store.crash.file.Path()); err != nil {
							t.Error(err)
						}
					}
					for i := range 60 {
						mustWrite(t, w, i, 70)
						time.Sleep(time.Millisecond)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					r, err := w.Shutdown(ctx)
					lost := r.Dropped[batch.Corrupt] + r.Dropped[batch.Shutdown]
					if r.Check() != nil || r.Kept() > 0 || r.Accepted != 60 || lost != 60-r.Delivered || err == nil {
						t.Errorf("%v; %v: %v", err, r.Check(), r.Account)
					}
					if a := w.Account(); a != r.Account {
						t.Errorf("the account after the report: %v", a)
					}
				})
			})
		}
	}
}

// End leaves the records of a dead process in their file although the consumer has not ended. Then
// Next has ended, so that the consumer releases the file for the next process.
func TestNextHasEndedAfterEnd(t *testing.T) {
	for _, leased := range []bool{false, true} {
		o := &slab.Options{OnError: quiet, Crash: &slab.Crash{Dir: t.TempDir()}}
		mustOpen := func() (*Writer, *Log) {
			w, l, err := New(o, Consumer{Limits: batch.Limits{Records: 2}})
			if err != nil {
				t.Fatal(err)
			}
			return w, l
		}
		w, l := mustOpen()
		for i := range 5 {
			if err := w.WriteRecord(line(i, 20), batch.Meta{}); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
		l.End(t.Context(), true)
		l.Leave()

		_, l = mustOpen()
		var hanging *Lease
		if leased {
			hanging, _ = l.Next()
		}
		l.Close()
		l.End(t.Context(), false)
		if leased {
			if hanging.Settle(2) {
				t.Error("a record is settled after End")
			}
			hanging.Release()
		}
		if next, ended := l.Next(); next != nil || !ended {
			t.Errorf("leased %v: Next returns a lease: %v, ended: %v", leased, next != nil, ended)
		}
		l.Leave()
		if a := l.Account(batch.Account{}); a.Pending.Slab != 5 || a.Check() != nil {
			t.Errorf("leased %v: account %v", leased, a)
		}

		_, l = mustOpen()
		a := l.Account(batch.Account{})
		if n := a.Pending.Total(); n != 5 {
			t.Errorf("leased %v: %d records are recovered", leased, n)
		}
		l.Close()
		l.End(t.Context(), true)
		l.Leave()
	}
}
