package experiments

import (
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/internal/ordercheck"
)

// try writes n records through mk and returns what the checker says of their
// order.
func try(t *testing.T, mk func(io.Writer) rivals.Writer, n int) (ordercheck.Result, error) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	const callers = 8
	c := ordercheck.New(callers, ordercheck.NewLogical())
	d := &checked{c: c}
	w := mk(d)
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			k := c.Caller(g)
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			var buf []byte
			for range n / callers {
				buf = k.Begin(buf[:0], 40+rng.IntN(160), 0)
				_, err := w.Write(buf)
				k.End(err == nil)
				if rng.IntN(50) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	if err := w.Drain(); err != nil {
		t.Fatal(err)
	}
	res, err := c.Check()
	if d.err != nil {
		err = d.err
	}
	return res, err
}

// checked is a destination that goes on after an error, so that writers end.
type checked struct {
	c   *ordercheck.Checker
	err error
}

func (d *checked) Write(p []byte) (int, error) {
	if d.err == nil {
		_, d.err = d.c.Write(p)
	}
	return len(p), nil
}

func records(n int) int {
	if os.Getenv("FOREBAY_TORTURE") != "" {
		return 100 * n
	}
	return n
}

// What claims to be in order is, and nothing is lost.
func TestOrderedVariants(t *testing.T) {
	for _, v := range variants() {
		if !v.ordered {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			n := records(50_000)
			res, err := try(t, v.mk, n)
			if err != nil || res.Delivered != n || res.Lost > 0 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// Order is strict also where the lanes open and close all the time, few slabs and
// small ones are written, and callers wait for them.
func TestLanesOpenAndClose(t *testing.T) {
	for _, count := range []int{9, 32} {
		var w *laneWriter
		var opened int
		mk := func(d io.Writer) rivals.Writer {
			w = newLanes(d, 512, count, 4)
			w.procs = 4
			return opening{w, &opened}
		}
		n := records(50_000)
		res, err := try(t, mk, n)
		if err != nil || res.Delivered != n || res.Lost > 0 {
			t.Errorf("%d slabs: %+v, %v", count, res, err)
		}
		if opened == 0 {
			t.Errorf("%d slabs: the lanes never opened", count)
		}
		t.Logf("%d slabs: opened %d times", count, opened)
		if w.multi || len(w.free) != count {
			t.Errorf("%d of %d slabs came back, lanes open: %t", len(w.free), count, w.multi)
		}
	}
}

// opening opens the lanes now and then, whether callers meet or not, and has the
// drain close them.
type opening struct {
	*laneWriter
	opened *int
}

func (o opening) Write(p []byte) (int, error) {
	switch {
	case len(p) == 64:
		o.mu.Lock()
		o.procs = 1 // the next sweep closes them
		o.mu.Unlock()
	case len(p)%16 == 0:
		o.mu.Lock()
		if !o.multi {
			o.procs = 4
			if o.open(); o.multi {
				*o.opened++
			}
		}
		o.mu.Unlock()
	}
	return o.laneWriter.Write(p)
}

// What gives order up is caught: the checker sees that, whatever the variant
// gains in speed.
func TestDisorderIsSeen(t *testing.T) {
	late := func(d io.Writer) rivals.Writer { return newSharded(d, 2048, 8, 4, lateCut) }
	naive := func(d io.Writer) rivals.Writer { return newNaive(d, 2048, 8, 4) }
	for name, mk := range map[string]func(io.Writer) rivals.Writer{
		"naive shards":                           naive,
		"tickets, the cut fixed after the sweep": late,
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				res, err := try(t, mk, 50_000)
				if err != nil {
					if !strings.Contains(err.Error(), "order is broken") {
						t.Error(err)
					}
					t.Logf("%d of %d records: %v", res.Broken, res.Delivered, err)
					return
				}
			}
			t.Error("a million records in order: the check shows nothing")
		})
	}
}
