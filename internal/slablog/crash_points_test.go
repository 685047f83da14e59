//go:build forebay_points && (linux || darwin)

package slablog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// In builds with test points, the child kills itself when it reaches a given point for the n-th
// time.
var _ = func() bool {
	installKillPoint = func(at string) {
		name, count, ok := strings.Cut(at, ":")
		if !ok {
			return
		}
		n, _ := strconv.ParseInt(count, 10, 64)
		var seen atomic.Int64
		hook := func(p string) {
			if p == name && seen.Add(1) == n {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // the process must not continue before the signal
			}
		}
		pointHook.Store(&hook)
	}
	return true
}()

// crashPoints are the test points that are reached only with crash-safe slabs.
var crashPoints = []string{
	crashfile.PointCreate, crashfile.PointCreated, ptBigKeep, crashfile.PointBigWrite, crashfile.PointBigWritten, ptBigNotedLocked, crashfile.PointBigCompact, ptAckLocked, crashfile.PointAckHalf, ptAckedLocked,
	ptRewindLocked, ptRewoundLocked, ptSum, ptSummed, crashfile.PointUnlink, crashfile.PointUnlinkBetween, crashfile.PointUnlinked,
}

// recoveryPoints are the test points that are reached only if there is a file of a dead process.
var recoveryPoints = []string{ptAdopt, ptRecover, crashfile.PointPersist, crashfile.PointPersisted, crashfile.PointUnlink, crashfile.PointUnlinkBetween, crashfile.PointUnlinked}

// dieAt starts a child that kills itself at a test point, and reports whether the child reached it.
func dieAt(t *testing.T, dir, mode string, life int, point string, n int) bool {
	t.Helper()
	c := startChild(t, dir, mode, life, uint64(life+n), envPoint+"="+point+":"+strconv.Itoa(n))
	stuck := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	err := c.Wait()
	if !stuck.Stop() {
		t.Fatalf("%s, life %d: the child neither ended nor reached %s %d times", mode, life, point, n)
	}
	if c.Said.Len() > 0 {
		t.Fatalf("%s: %v %s", mode, err, &c.Said)
	}
	return err != nil
}

// If a process is killed, no record whose call has returned is lost. The kill may occur at any step
// of a write, of sealing, of reading, of a checksum, of Close or of removing the file.
func TestKillAtPoints(t *testing.T) {
	counts := []int{1, 7, 60, 2, 3, 4, 5, 10, 20, 40, 80, 160, 320, 640, 1280}
	quick := 3
	counts = counts[:testkit.Rounds(t, quick, len(counts))]
	points := append(append([]string{}, allPoints...), crashPoints...)
	for _, p := range points {
		if p == ptRefuse { // TestUndeliveredRecordsAreKept covers a Close that runs out of time
			continue
		}
		t.Run(p, func(t *testing.T) {
			died := 0
			attempt := func(mode string, n int) {
				dir := place(t, places[n%len(places)])
				if !dieAt(t, dir, mode, 0, p, n) {
					return
				}
				died++
				if !begun(dir) {
					t.Fatal("the child died before its first call")
				}
				got, _ := recoverAll(t, dir)
				checkKilled(t, dir, got, !strings.Contains(mode, "evict"))
				if t.Failed() {
					t.Fatalf("mode %s, n=%d", mode, n)
				}
			}
			for i, n := range counts {
				before := died
				modes := []string{"ends,fail", "ends,fail,evict", "ends,idle"}
				if len(counts) == quick {
					modes = slices.Delete(modes, i%2, i%2+1) // each count runs with one of the two modes
				}
				if strings.HasPrefix(p, "big") {
					modes = []string{"ends,fail,big"}
				}
				for _, mode := range modes {
					if mode == "ends,idle" && died > before {
						break // a busy consumer never reaches some points
					}
					attempt(mode, n)
				}
			}
			for i := 0; died == 0 && i < 50; i++ { // on a busy machine the point is rarely reached
				attempt([]string{"ends,fail", "ends,idle"}[i%2], 1)
			}
			if died == 0 {
				t.Error("the point was never reached")
			}
		})
	}
}

// A process is killed, and its successor is killed at a step of its recovery. The third process
// delivers everything.
func TestKillAtRecoveryPoints(t *testing.T) {
	for _, p := range recoveryPoints {
		t.Run(p, func(t *testing.T) {
			died := 0
			for _, n := range []int{1, 2, 3} {
				dir := place(t, places[n%len(places)])
				for life := range 2 { // leave two files
					if !dieAt(t, dir, "hang", life, ptStoredLocked, 40) {
						t.Fatal("the child did not die")
					}
				}
				if !dieAt(t, dir, "ends", 2, p, n) {
					continue
				}
				died++
				got, _ := recoverAll(t, dir)
				checkKilled(t, dir, got, true)
				if t.Failed() {
					t.Fatal(fmt.Sprint("n=", n))
				}
			}
			if died == 0 {
				t.Error("the point was never reached")
			}
		})
	}
}

// The records of a slab are settled while its checksum is computed. Then the slab is free, and a
// caller that waits for a slab gets it without an event for the consumer.
func TestSummedSlabServesWaiters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		var once sync.Once
		hook := func(name string) {
			if name == ptSum {
				once.Do(func() {
					g.open()
					time.Sleep(time.Second)
				})
			}
		}
		pointHook.Store(&hook)
		defer pointHook.Store(nil)
		w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 2, WhenFull: slab.Block()})
		for i := range 40 {
			mustWrite(t, w, i, 90)
		}
		closeNow(t, w)
		wantSequence(t, numbers(t, g.String()), 0, 40)
		checkAccount(t, w, 40, 40, batch.Drops{})
		time.Sleep(time.Second) // until the checksum is done
	})
}

// Close runs out of time, or has delivered everything, while a call is about to write an oversize
// record to disk. The call does not use the file, which Close has released, and the account is
// exact.
func TestBigRecordDuringClose(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			g := newGate()
			defer g.open()
			w := crashWriter(t, dir, g, slab.Options{SlabBytes: 1024, SlabCount: 8, MaxRecord: 3000})
			if !hangs {
				g.open()
			}
			mustWrite(t, w, 0, 50)
			mustWrite(t, w, 1, 2000)
			goOn := make(chan struct{})
			hook := func(name string) {
				if name == ptBigKeep {
					<-goOn
				}
			}
			pointHook.Store(&hook)
			defer pointHook.Store(nil)
			late := make(chan error)
			go func() { late <- w.WriteRecord(line(2, 2000), batch.Meta{}) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, _ := w.Shutdown(ctx)
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			close(goOn)
			err := <-late
			switch left, _ := filepath.Glob(filepath.Join(dir, "*")); {
			case !hangs && (err != nil || r.Delivered != 3 || len(left) > 0):
				t.Errorf("%v, %v, left: %v", err, r.Account, left)
			case hangs:
				got, s, events := recoverEvents(t, dir)
				wantSequence(t, numbers(t, got), 0, 2)
				if !errors.Is(err, slab.ErrDropped) || r.Pending.Total() != 2 || r.Dropped != drops(batch.Shutdown, 1) || s.Recovered != 2 {
					t.Errorf("%v, %v, then %v, %v", err, r.Account, s.Account, events)
				}
			}
		})
	}
}

// A call is about to write an oversize record to disk. Meanwhile the consumer gives that record
// back, or Close stops waiting for the call of Accept that has it. The record is kept if it reaches
// the disk, and dropped if it does not.
func TestBigRecordGivenBack(t *testing.T) {
	for _, what := range []string{"given back, then written", "given back", "given up"} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir, goOn, late := t.TempDir(), make(chan struct{}), make(chan error, 1)
				hook := func(name string) {
					if name == ptBigKeep {
						<-goOn
					}
				}
				pointHook.Store(&hook)
				defer pointHook.Store(nil)
				c := consumerFor(sendFunc(func(context.Context, *batch.Batch) batch.Outcome { return failed() }))
				c.wants.Inline = false
				written := what == "given back, then written"
				if written {
					c.end = func(context.Context) (batch.Report, error) { // the retrier has returned the record
						close(goOn)
						late <- <-late
						return batch.Report{}, nil
					}
				}
				var b consumer = c
				hang := make(chan struct{})
				if what == "given up" {
					b = hesitant{newLeaseHolder(testkit.Rand(1), 1), hang}
				}
				w := mustSink(t, b, &slab.Options{SlabBytes: 1024, SlabCount: 8, MaxRecord: 3000, Crash: &slab.Crash{Dir: dir, Required: true}})
				go func() { late <- w.WriteRecord(line(0, 2000), batch.Meta{}) }()
				synctest.Wait()
				mustWrite(t, w, 1, 50)
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, _ := w.Shutdown(ctx)
				if !written {
					close(goOn)
				}
				err := <-late
				im, rerr := crashfile.Read(oneFile(t, dir))
				if rerr != nil {
					t.Fatal(rerr)
				}
				kept := uint64(1)
				if written {
					kept = 2
				}
				if r.Check() != nil || r.Kept() != kept || r.Dropped.Total() != 2-kept || len(im.Records) != int(kept) || errors.Is(err, slab.ErrDropped) == written {
					t.Errorf("%v; %v, %d in the file; the call: %v", r.Account, r.Check(), len(im.Records), err)
				}
				close(hang)
			})
		})
	}
}
