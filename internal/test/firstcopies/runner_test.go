package firstcopies

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A walkRound is one round of a walk.
type walkRound struct {
	*testing.T
	seed uint64
	rng  *rand.Rand // used by the goroutine of the walk; other goroutines use fork
	led  *ledger

	mu      sync.Mutex
	forks   *rand.Rand
	cleanup []func()
}

// fork returns a random source for use by another goroutine.
func (tr *walkRound) fork() *rand.Rand {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return testkit.Rand(tr.forks.Uint64())
}

// atEnd registers a function that is called at the end of the round. The functions are called in
// reverse order.
func (tr *walkRound) atEnd(f func()) { tr.cleanup = append(tr.cleanup, f) }

// dir creates a directory for this round, which is removed at the end of the round.
func (tr *walkRound) dir() string {
	dir, err := os.MkdirTemp("", "forebay-order-")
	if err != nil {
		tr.Fatal(err)
	}
	tr.atEnd(func() { os.RemoveAll(dir) })
	return dir
}

// A walk runs one round with one destination. It returns the number of records that the account of
// the destination counts as dropped, and the number of records that may arrive again for each
// failure.
type walk func(tr *walkRound) (dropped uint64, perFailure int)

// play runs n rounds of a walk; FOREBAY_TORTURE multiplies n.
func play(t *testing.T, name string, n int, w walk) {
	t.Run(name, func(t *testing.T) {
		var sum totals
		rounds := 0
		for seed := range testkit.Walks(t, n) {
			led, defects := runRound(t, seed, w)
			sum.add(led)
			rounds++
			for i, d := range defects {
				if i == 20 {
					t.Errorf("%d more defects", len(defects)-i)
					break
				}
				t.Errorf("%s: %s", d.kind, d.text)
			}
		}
		t.Logf("%d rounds: %d records, %d copies, %d failures", rounds, sum.records, sum.copies, sum.failures)
	})
}

// runRound runs one round and returns its ledger and the defects found.
func runRound(t *testing.T, seed uint64, w walk) (*ledger, []defect) {
	rng := testkit.Rand(seed)
	tr := &walkRound{T: t, seed: seed, rng: rng, forks: testkit.Rand(seed + 1<<32), led: newLedger()}
	dropped, perFailure := w(tr)
	for i := len(tr.cleanup) - 1; i >= 0; i-- {
		tr.cleanup[i]()
	}
	return tr.led, tr.led.close(dropped, perFailure)
}

// maxWait limits every wait for an event that must occur, even on a busy machine.
const maxWait = time.Minute

// shortCloseTimeout is the time limit of a Close that may leave records in the spool or in
// crash-safe slabs.
const shortCloseTimeout = 300 * time.Millisecond

// retry and breaker return options with delays of milliseconds, so that delivery resumes quickly
// after a failure.
func retry() *deliver.RetryOptions {
	return &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond, FatalDelay: time.Millisecond, BudgetRatio: 1000, BudgetPerSecond: 1e6}
}

func (tr *walkRound) breaker() *deliver.BreakerOptions {
	return &deliver.BreakerOptions{
		Failures: 1 << tr.rng.IntN(8), OpenMin: time.Millisecond, OpenMax: 5 * time.Millisecond, FatalDelay: time.Millisecond,
		ProbeRecords: 1 + tr.rng.IntN(20), Successes: 1 + tr.rng.IntN(2),
	}
}

func quiet(batch.Event) {}

// callers runs several goroutines that write n records in total, distributed over keys, with or
// without pauses. Other goroutines use the processors at the same time. callers returns when all
// calls have returned. write makes the call for the n-th record of a key, and reports whether the
// record was accepted.
func (tr *walkRound) callers(keys []string, n int, write func(rng *rand.Rand, key string, n int) (accepted bool)) {
	var wg, beside sync.WaitGroup
	done := make(chan struct{})
	for range tr.rng.IntN(4) {
		rng := tr.fork()
		beside.Go(func() { // a changing load varies the order in which goroutines run
			for {
				for end := time.Now().Add(time.Duration(rng.IntN(100)) * time.Microsecond); time.Now().Before(end); {
				}
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rng.IntN(300)) * time.Microsecond):
				}
			}
		})
	}
	each := 1 + tr.rng.IntN(3)
	pause := []int{0, 0, 20, 200}[tr.rng.IntN(4)] // records between pauses
	for _, key := range keys {
		for range each {
			rng := tr.fork()
			wg.Go(func() {
				for i := range n / (len(keys) * each) {
					n := tr.led.begin(key)
					tr.led.end(key, n, write(rng, key, n))
					switch {
					case pause > 0 && i%pause == pause-1:
						time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
					case rng.IntN(100) == 0:
						runtime.Gosched()
					}
				}
			})
		}
	}
	returned := make(chan struct{})
	go func() {
		wg.Wait()
		close(returned)
	}()
	tr.await(returned)
	close(done)
	beside.Wait()
}

// await waits until returned is closed, when all calls have returned. If no call begins or returns
// for maxWait, it ends the test: with [slab.Block], calls wait forever if settled records do not
// free their memory.
func (tr *walkRound) await(returned <-chan struct{}) {
	for last, since := 0, time.Now(); ; {
		select {
		case <-returned:
			return
		case <-time.After(time.Second):
		}
		if n := tr.led.ticks(); n != last {
			last, since = n, time.Now()
		} else if time.Since(since) > maxWait {
			tr.Fatalf("seed %d: no call has returned for %v", tr.seed, maxWait)
		}
	}
}

// ended checks the account a of a destination. err is the result of its Close.
func (tr *walkRound) ended(a batch.Account, err error) {
	if err := a.Check(); err != nil {
		tr.led.report(other, "after Close: %v: %v", err, a)
	}
	if p := a.Pending.Total(); p > 0 {
		tr.led.report(missing, "%d records are pending after Close: %v", p, a)
	} else if err != nil && a.Dropped.Total() == 0 {
		tr.led.report(other, "Close: %v: %v", err, a)
	}
}

// open calls make until it succeeds. After a Close that ran out of time, the directory may stay
// locked for a while.
func open[T any](tr *walkRound, make func() (T, error)) T {
	for end := time.Now().Add(maxWait); ; time.Sleep(time.Millisecond) {
		v, err := make()
		if err == nil {
			return v
		}
		if time.Now().After(end) {
			tr.Fatal(err)
		}
	}
}

func minute() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), maxWait)
}
