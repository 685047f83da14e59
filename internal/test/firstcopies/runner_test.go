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

// A known fall is what a walk is known to find. Other kinds of falls fail the walk as
// ever. A walk that falls no more fails, too, so that it leaves the list.
type knownFall struct {
	kind   kind
	reason string
	// maybe says that the walk need not fall: what it looks for is too rare here.
	maybe bool
}

// A trial is one round of a walk.
type trial struct {
	*testing.T
	seed uint64
	rng  *rand.Rand // of the walk's own goroutine; others take fork
	led  *ledger

	mu      sync.Mutex
	forks   *rand.Rand
	cleanup []func()
}

// fork returns a source for another goroutine.
func (tr *trial) fork() *rand.Rand {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return testkit.Rand(tr.forks.Uint64())
}

// later has f called at the end of the round.
func (tr *trial) later(f func()) { tr.cleanup = append(tr.cleanup, f) }

// dir returns a directory of the round's own.
func (tr *trial) dir() string {
	dir, err := os.MkdirTemp("", "forebay-order-")
	if err != nil {
		tr.Fatal(err)
	}
	tr.later(func() { os.RemoveAll(dir) })
	return dir
}

// A walk plays one round against one destination. It returns how many records the
// account says were dropped, and how many may come again after one failure.
type walk func(tr *trial) (dropped uint64, perFailure int)

// play plays a walk in several rounds: few in a short run, long ones under
// FOREBAY_TORTURE.
func play(t *testing.T, name string, few, long int, w walk) {
	t.Run(name, func(t *testing.T) {
		first, rounds := testkit.Seeds(t, testkit.Rounds(few, long))
		single := os.Getenv("FOREBAY_SEED") != ""
		torture := os.Getenv("FOREBAY_TORTURE") != ""
		expected, isKnown := known[t.Name()]
		if isKnown && !expected.maybe && !single && !torture {
			rounds = max(rounds, long) // it ends with the first that falls
		}
		fell, played := 0, 0
		var sum totals
		for i := range rounds {
			played++
			led, falls := one(t, first+uint64(i), w)
			sum.add(led)
			for _, f := range falls {
				if isKnown && f.kind == expected.kind && !single {
					if fell == 0 {
						t.Logf("known (%s): FOREBAY_SEED=%d: %s", expected.reason, first+uint64(i), f.text)
					}
					fell++
					break
				}
			}
			for n, f := range falls {
				if n == 20 {
					t.Errorf("%d more", len(falls)-n)
					break
				}
				if !isKnown || f.kind != expected.kind || single {
					t.Errorf("FOREBAY_SEED=%d: %s: %s", first+uint64(i), f.kind, f.text)
				}
			}
			if (t.Failed() || fell > 0) && !torture {
				break
			}
		}
		t.Logf("%d rounds: %d records, %d copies, %d failures; %d rounds fell as known", played, sum.records, sum.copies, sum.failures, fell)
		if isKnown && fell == 0 && !expected.maybe && !single {
			t.Errorf("no round of %d fell: take %s out of the list of known falls", played, t.Name())
		}
	})
}

// one plays one round.
func one(t *testing.T, seed uint64, w walk) (*ledger, []fall) {
	rng := testkit.Rand(seed)
	tr := &trial{T: t, seed: seed, rng: rng, forks: testkit.Rand(seed + 1<<32), led: newLedger()}
	dropped, perFailure := w(tr)
	for i := len(tr.cleanup) - 1; i >= 0; i-- {
		tr.cleanup[i]()
	}
	return tr.led, tr.led.close(dropped, perFailure)
}

// patience is for what must come to an end on a busy machine.
const patience = time.Minute

// hurry is the time that a Close gets whose rest goes to the spool or stays in
// crash-safe slabs. Both must fit.
const hurry = 300 * time.Millisecond

// retry and breaker make delivery quick to come back.
func retry() *deliver.RetryOptions {
	return &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond, FatalDelay: time.Millisecond, BudgetRatio: 1000, BudgetPerSecond: 1e6}
}

func (tr *trial) breaker() *deliver.BreakerOptions {
	return &deliver.BreakerOptions{
		Failures: 1 << tr.rng.IntN(8), OpenMin: time.Millisecond, OpenMax: 5 * time.Millisecond, FatalDelay: time.Millisecond,
		ProbeRecords: 1 + tr.rng.IntN(20), Successes: 1 + tr.rng.IntN(2),
	}
}

func quiet(batch.Event) {}

// callers runs several goroutines that make n records in all, over several keys, fast
// or slowly, and load beside them. It returns when all calls have returned. write
// makes the call; it gets the key, its number among the keys and the record's number.
func (tr *trial) callers(keys []string, n int, write func(rng *rand.Rand, key string, n int) (taken bool)) {
	var wg, beside sync.WaitGroup
	done := make(chan struct{})
	for range tr.rng.IntN(4) {
		rng := tr.fork()
		beside.Go(func() { // so that goroutines meet in other ways
			for {
				for end := time.Now().Add(time.Duration(rng.IntN(100)) * time.Microsecond); time.Now().Before(end); {
				}
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rng.IntN(300)) * time.Microsecond): // a goroutine that only yields keeps the runtime from the network
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
	wg.Wait()
	close(done)
	beside.Wait()
}

// ended checks the account of a destination that was closed.
func (tr *trial) ended(a batch.Account, err error) {
	if err := a.Check(); err != nil {
		tr.led.fell(other, "after Close: %v: %v", err, a)
	}
	if p := a.Pending.Total(); p > 0 {
		tr.led.fell(missing, "%d records are pending after Close: %v", p, a)
	} else if err != nil && a.Dropped.Total() == 0 {
		tr.led.fell(other, "Close: %v: %v", err, a)
	}
}

// open makes a destination. A Close whose time was short may hold a directory a little
// longer.
func open[T any](tr *trial, make func() (T, error)) T {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
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
	return context.WithTimeout(context.Background(), patience)
}
