package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/ordercheck"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// Random walks over an Output whose loop calls a hostile destination itself. Each reading of the
// account agrees with the calls that were made and with the text that has arrived.
func TestInlineWalk(t *testing.T) {
	for seed := range testkit.Walks(t, 50) {
		bubble.Test(t, func(t *testing.T) { runInlineWalk(t, seed) })
	}
}

// An inlineWalk is a walk over one Output. If its memory is crash-safe, several processes that use
// the same directory are simulated, one after another.
type inlineWalk struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	clock  ordercheck.Clock
	opt    OutputOptions
	shape  int           // methods of the destination
	limit  time.Duration // longest permitted Write
	evicts bool          // records may be dropped after their calls have succeeded
	past   []*hostileWriter

	// The current process.
	out    *Output
	w      *hostileWriter
	first  int            // its first call
	left   uint64         // records that the previous process has left
	lost   uint64         // records of successful calls that earlier processes have dropped
	closes sync.WaitGroup // calls of Close

	running atomic.Int32 // number of goroutines that write
	closing atomic.Bool

	mu       sync.Mutex
	calls    []inlineCall // by the number of the record
	steps    []string
	readings sync.Mutex    // serializes calls of Stats
	reading  batch.Account // result of the latest one
}

// An inlineCall is a call of Write or WriteRecord.
type inlineCall struct {
	began, returned int64 // times of the clock; returned is 0 during the call
	err             error
	silent          bool // Write, which does not report drops
}

func (k *inlineWalk) errorf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.t.Failed() {
		k.t.Errorf("FOREBAY_SEED=%d, process %d, destination %d: %s\noptions: %+v\nsteps: %s", k.seed, len(k.past), k.shape,
			fmt.Sprintf(format, args...), k.opt.Slab, strings.Join(k.steps, ", "))
	}
}

func (k *inlineWalk) step(what ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps = append(k.steps, fmt.Sprint(what...))
}

func runInlineWalk(t *testing.T, seed uint64) {
	r := testkit.Rand(seed)
	k := &inlineWalk{t: t, seed: seed, rng: r, clock: ordercheck.NewLogical(), shape: r.IntN(5)}
	policy := func() slab.WhenFull {
		i := r.IntN(4)
		k.limit = max(k.limit, []time.Duration{math.MaxInt64, 20 * time.Millisecond, 0, 0}[i])
		k.evicts = k.evicts || i == 3
		return []slab.WhenFull{slab.Block(), slab.BlockFor(20 * time.Millisecond), slab.DropNewest(), slab.DropOldest()}[i]
	}
	k.opt = *shortDelays(slab.Options{
		SlabBytes: 512 << r.IntN(3), SlabCount: 2 + r.IntN(12), SlabRecords: []int{0, 0, 2, 9}[r.IntN(4)], MaxRecord: 3000, Reserve: r.IntN(2),
		FlushInterval: []time.Duration{-1, time.Millisecond, 50 * time.Millisecond}[r.IntN(3)], WhenFull: policy(), ImportantWhenFull: policy(),
	})
	k.opt.CloseTimeout, k.opt.Deliver.Breaker.Failures, k.opt.Deliver.Breaker.ProbeRecords = 2*time.Second, 1+r.IntN(5), 1+r.IntN(10)
	if r.IntN(2) == 0 {
		k.opt.Codec = markedLines{}
	}
	processes := 1
	if r.IntN(3) == 0 {
		k.opt.CrashDir, processes = t.TempDir(), 1+r.IntN(3)
	}
	for i := range processes {
		k.process(i == processes-1)
	}
	var order ordercheck.Order[int]
	seen := map[int]bool{}
	for _, w := range k.past {
		for _, i := range k.parse(w.stored("")).records {
			if seen[i] {
				continue
			}
			seen[i] = true
			c := k.calls[i]
			if c.err != nil && !strings.HasSuffix(c.err.Error(), batch.Shutdown.String()) { // Close may be too late for a record that is being sent
				k.errorf("record %d arrived, although its call failed: %v", i, c.err)
			}
			if before := order.Arrive(i, c.began); before.Follows(c.returned) {
				k.errorf("record %d arrived after %d", i, before.ID)
			}
		}
	}
}

// process simulates a process.
func (k *inlineWalk) process(last bool) {
	goroutines := testkit.Goroutines(k.t)
	k.w = newHostileWriter(k)
	k.past = append(k.past, k.w)
	k.first, k.reading = len(k.calls), batch.Account{}
	k.closing.Store(false)
	k.out = mustOutput(k.t, k.w.destination(k.shape), &k.opt)
	for range 5 + k.rng.IntN(40) {
		k.takeStep()
		k.read()
	}
	if !k.closing.Load() && (last || k.rng.IntN(2) == 0) {
		k.w.heal()
		time.Sleep(time.Hour)
		if k.rng.IntN(3) > 0 || k.shape == 4 { // Close of destination 4 reports the records that it refuses
			k.flush("flush", time.Minute, true)
		} else if k.closing.Store(true); k.out.Close() != nil {
			k.errorf("an hour after the last fault: Close: %v", k.out.Close())
		}
		if a := k.read(); k.running.Load() > 0 || a.Pending.Total() > 0 {
			k.errorf("an hour after the last fault: %d goroutines write: %s", k.running.Load(), a)
		}
	}
	for range 1 + k.rng.IntN(3) {
		k.takeStep()
		k.shutdown()
	}
	if k.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(k.rng.IntN(2000)) * time.Millisecond)
		k.w.heal()
	}
	k.closes.Wait()
	if synctest.Wait(); !k.w.hangs() {
		goroutines("after Close", 0)
	}
	k.check()
	k.w.heal()
	time.Sleep(time.Hour)
	goroutines("after the hanging calls have returned", 0)
	k.check()
	a := k.read()
	k.left, k.lost = a.Pending.Total(), k.lost+a.Dropped.Total()-k.tally().dropped
}

func (k *inlineWalk) takeStep() {
	r := k.rng
	switch n := r.IntN(100); {
	case n < 40:
		k.burst()
	case n < 55:
		d := time.Duration(r.IntN(50)) * time.Millisecond << (3 * r.IntN(3))
		k.step("sleep ", d)
		time.Sleep(d)
	case n < 70:
		p := []float64{0, 0.2, 0.7, 1}[r.IntN(4)]
		k.step("fail ", p)
		k.w.set(p, r.IntN(4) == 0)
	case n < 80:
		k.step("heal")
		k.w.heal()
	case n < 93:
		how, d := []string{"flush", "sync", "commit"}[r.IntN(3)], time.Duration(r.IntN(3000))*time.Millisecond
		if r.IntN(2) == 0 {
			go k.flush(how, d, false)
		} else {
			k.flush(how, d, false)
		}
	case n < 95:
		k.shutdown()
	default:
		k.step("wait")
		synctest.Wait()
	}
}

// burst writes random records from a new goroutine.
func (k *inlineWalk) burst() {
	if k.running.Load() == 6 {
		return
	}
	k.running.Add(1)
	n, silent := 1+k.rng.IntN(20), k.rng.IntN(3) == 0
	k.step("burst ", n)
	go func() {
		defer k.running.Add(-1)
		for range n {
			k.write(silent)
		}
	}()
}

func (k *inlineWalk) write(silent bool) {
	k.mu.Lock()
	i := len(k.calls)
	k.calls = append(k.calls, inlineCall{began: k.clock.Before(), silent: silent})
	k.mu.Unlock()
	began, p := time.Now(), recordOf(i)
	var err error
	if silent {
		_, err = k.out.Write(p)
	} else {
		err = k.out.WriteRecord(p, batch.Meta{Time: began.UnixNano(), Level: slog.Level(i%4*4 - 4)})
	}
	clear(p) // it belongs to the caller
	if took := time.Since(began); took > k.limit {
		k.errorf("a write took %v", took)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[i].returned, k.calls[i].err = k.clock.After(), err
}

// flush calls Flush, Sync or Commit. After success, everything accepted earlier has arrived or is
// counted as dropped, and has left the buffers of the destination.
func (k *inlineWalk) flush(how string, limit time.Duration, must bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	before, began, w := k.clock.Before(), time.Now(), k.w
	var err error
	switch how {
	case "flush":
		err = k.out.Flush(ctx)
	case "sync":
		limit, err = k.opt.CloseTimeout, k.out.Sync()
	case "commit":
		err = k.out.Commit(ctx)
	}
	k.step(how, ": ", err)
	if took := time.Since(began); took > limit || must && err != nil {
		k.errorf("%s took %v: %v", how, took, err)
	}
	if err == nil && !k.closing.Load() {
		k.mustHave(before, w.stored(how))
	}
}

// mustHave checks that the records of all calls that returned before the given time are in text,
// the text of this process, or in the text of an earlier process, or were dropped.
func (k *inlineWalk) mustHave(before int64, text []byte) {
	may := k.lost - k.tally().dropped
	may += k.read().Dropped.Total()
	have := map[int]bool{}
	for _, w := range k.past {
		from := text
		if w != k.w {
			from = w.stored("")
		}
		for _, i := range k.parse(from).records {
			have[i] = true
		}
	}
	k.mu.Lock()
	last, n := -1, uint64(0)
	for i, c := range k.calls {
		if c.returned != 0 && c.returned < before && c.err == nil && !c.silent && !have[i] {
			last = i
			n++
		}
	}
	k.mu.Unlock()
	if n > may {
		k.errorf("%d records are missing, the last one is %d, and %d were dropped: %s", n, last, may, k.out.Account())
	}
}

// A callTally counts calls of the current process.
type callTally struct {
	begun, closed     uint64 // all calls, and those that failed because of Close
	accepted, dropped uint64 // calls that returned another result, and those that returned an error for a dropped record
	silent            uint64 // successful Writes, whose records may be dropped
}

func (k *inlineWalk) tally() (n callTally) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.begun = uint64(len(k.calls) - k.first)
	for _, c := range k.calls[k.first:] {
		switch {
		case c.returned == 0:
		case errors.Is(c.err, batch.ErrClosed):
			n.closed++
		default:
			n.accepted++
			if c.err != nil {
				n.dropped++
			} else if c.silent {
				n.silent++
			}
		}
	}
	return n
}

// read checks a reading of the account.
func (k *inlineWalk) read() batch.Account {
	k.readings.Lock()
	defer k.readings.Unlock()
	least, began := k.tally().accepted, time.Now()
	a := k.out.Stats().Account
	took, most := time.Since(began), k.tally().begun
	arrived := uint64(bytes.Count(k.w.stored(""), []byte(";\n")))
	if a.Check() != nil || took > 0 || a.Accepted < least || a.Accepted > most || a.Delivered > arrived {
		k.errorf("Stats took %v; %d to %d records were accepted, and %d have arrived: %s: %v", took, least, most, arrived, a, a.Check())
	}
	if old := k.reading; a.Accepted < old.Accepted || a.Delivered < old.Delivered || a.Dropped.Total() < old.Dropped.Total() {
		k.errorf("the account was %s, and is %s", old, a)
	}
	k.reading = a
	return a
}

// shutdown calls Shutdown on a new goroutine.
func (k *inlineWalk) shutdown() {
	r, w := k.rng, k.w
	limit := []time.Duration{-1, time.Duration(r.IntN(100)) * time.Millisecond, time.Duration(r.IntN(5000)) * time.Millisecond, 20 * time.Second}[r.IntN(4)]
	k.closing.Store(true)
	k.step("close ", limit)
	k.closes.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		began := time.Now()
		rep, err := k.out.Shutdown(ctx)
		k.step("closed: ", err)
		if took := time.Since(began); took > max(0, limit)+closetime.Hang {
			k.errorf("Close took %v, the limit was %v", took, limit)
		}
		flushed := uint64(len(k.parse(w.stored("flush")).records))
		switch lost := rep.Dropped[batch.Shutdown]; {
		case err != nil && strings.Contains(err.Error(), "another Close"):
		case lost > 0 && !closetime.OutOfTime(err) || rep.Unknown > lost:
			k.errorf("%v, %d unknown: %s", err, rep.Unknown, rep.Account)
		case rep.Pending.Total() > 0 && k.opt.CrashDir == "", err == nil && flushed < rep.Delivered:
			k.errorf("after Close: %d flushed: %s", flushed, rep.Account)
		}
	})
}

// check checks the state after Close.
func (k *inlineWalk) check() {
	k.write(false)
	k.write(true)
	began, ctx := time.Now(), context.Background()
	err := errors.Join(k.out.Flush(ctx), k.out.Sync())
	if commit := k.out.Commit(ctx); err != nil || !errors.Is(commit, batch.ErrClosed) {
		k.errorf("after Close: Flush and Sync %v, Commit %v", err, commit)
	}
	rep, _ := k.out.Shutdown(ctx)
	if again, _ := k.out.Shutdown(ctx); again != rep || time.Since(began) > 0 {
		k.errorf("another Close after %v: %v, not %v", time.Since(began), again, rep)
	}
	a, calls, x := k.read(), k.tally(), k.parse(k.w.stored(""))
	if a != rep.Account || a.Accepted != calls.accepted || k.out.Stats().Refused != calls.closed || k.running.Load() > 0 {
		k.errorf("%+v, %d goroutines write; report %s, now %s", calls, k.running.Load(), rep.Account, a)
	}
	d, n := a.Dropped, uint64(len(x.records))
	if n < a.Delivered || n > a.Delivered+rep.Unknown+a.Pending.Slab+d[batch.Failed] || x.repeated {
		k.errorf("%d records arrived, %d unknown, repeated %v: %s", n, rep.Unknown, x.repeated, a)
	}
	if a.Recovered < k.left || k.left == 0 && a.Recovered > 0 {
		k.errorf("%d records were left: %s", k.left, a)
	}
	gone, atOnce := k.w.goneCalls(), d[batch.Full]+d[batch.Oversize]
	if atOnce+d[batch.Shutdown] < calls.dropped || !k.evicts && atOnce > calls.dropped+calls.silent ||
		d[batch.Failed] > 0 && gone == 0 || x.torn > gone || x.gaps > d.Total() ||
		d.Total() != atOnce+d[batch.Shutdown]+d[batch.Failed]+d[batch.Poison] {
		k.errorf("%+v, %d times gone, %d torn lines, gaps of %d: %s", calls, gone, x.torn, x.gaps, a)
	}
	if a.Pending.Total() == 0 {
		k.mustHave(math.MaxInt64, k.w.stored(""))
	}
}
