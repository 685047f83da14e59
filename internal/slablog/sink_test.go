package slablog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// keeper is a consumer that keeps the accepted records until it is flushed.
type keeper struct {
	bare
	mu        sync.Mutex
	kept      uint64
	delivered uint64
	closed    bool
}

func (k *keeper) Accept(_ context.Context, l *Lease) error {
	k.mu.Lock()
	if n := l.Batch().Len(); l.Settle(n) {
		k.kept += uint64(n)
	}
	k.mu.Unlock()
	l.Release()
	return nil
}

func (k *keeper) Account(read func(batch.Account)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	read(k.account())
}

func (k *keeper) account() batch.Account {
	return batch.Account{Accepted: k.kept + k.delivered, Recovered: 5, Delivered: k.delivered + 5,
		Pending: batch.Pending{Spill: k.kept}}
}

func (k *keeper) Flush(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delivered += k.kept
	k.kept = 0
	return nil
}

func (k *keeper) Shutdown(context.Context) (batch.Report, error) {
	k.closed = true
	return batch.Report{Account: k.account()}, nil
}

func TestCustodyIsAccounted(t *testing.T) {
	k := &keeper{}
	w := mustSink(t, k, &slab.Options{FlushInterval: -1, SlabBytes: 512})
	for i := range 100 {
		mustWrite(t, w, i, 20)
	}
	if err := w.Account().Check(); err != nil && w.Stats().Pending.Total() == 0 {
		t.Error(err)
	}
	if err := w.Flush(t.Context()); err != nil { // the result depends on the state of the consumer
		t.Fatal(err)
	}
	a := w.Account()
	if a.Accepted != 100 || a.Recovered != 5 || a.Delivered != 105 || a.Check() != nil {
		t.Errorf("account %v", a)
	}
	closeNow(t, w)
	if !k.closed {
		t.Error("the consumer was not shut down")
	}
}

func TestBatchLimits(t *testing.T) {
	tests := map[string]batch.Limits{
		"bytes":         {Bytes: 3000},
		"records":       {Records: 37},
		"both":          {Bytes: 3000, Records: 100, Age: time.Second},
		"less than one": {Bytes: 7},
	}
	for name, l := range tests {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := &recorder{limits: l}
				w := mustSink(t, r, &slab.Options{SlabBytes: 512, SlabCount: 32, WhenFull: slab.Block()})
				const n = 1000
				for i := range n {
					mustWrite(t, w, i, 20+i%30)
				}
				closeNow(t, w)
				wantSequence(t, numbers(t, r.joined()), 0, n)
				checkAccount(t, w, n, n, batch.Drops{})
				for i, size := range r.sizes {
					if l.Records > 0 && size > l.Records || l.Bytes > 0 && r.bytes[i] > l.Bytes && size > 1 {
						t.Errorf("batch %d has %d records, %d bytes; limits %+v", i, size, r.bytes[i], l)
					}
				}
				if l.Bytes == 3000 && r.bytes[3] < 2000 {
					t.Errorf("batches of %v bytes: slabs were not gathered", r.bytes[:10])
				}
			})
		})
	}
}

func TestBatchAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		r := &recorder{limits: batch.Limits{Bytes: 1 << 20, Age: time.Second}, answer: func(int, *batch.Batch) (o batch.Outcome) {
			at = append(at, time.Since(start))
			return o
		}}
		w := mustSink(t, r, &slab.Options{SlabBytes: 512, SlabCount: 64})
		for i := range 100 {
			mustWrite(t, w, i, 50)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(at) != 1 || at[0] != time.Second {
			t.Errorf("sent at %v, want once, after the batch age of 1s", at)
		}
		closeNow(t, w)
	})
}

// lines is a codec for plain text with gap markers.
type lines struct{}

func (lines) ContentType() string                             { return "text/plain" }
func (lines) AppendJSON(dst, rec []byte, _ batch.Meta) []byte { return fmt.Appendf(dst, "%q", rec) }
func (lines) AppendMarker(dst []byte, d batch.Drops, _ time.Time) []byte {
	return fmt.Appendf(dst, "dropped %v\n", d)
}

func TestMarkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &recorder{}
		hang := true
		w := mustSink(t, sendFunc(func(ctx context.Context, b *batch.Batch) batch.Outcome {
			if hang {
				<-release
				hang = false
			}
			return r.Send(ctx, b)
		}), &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), Codec: lines{}})
		mustWrite(t, w, 0, 50)
		time.Sleep(time.Second) // the destination hangs with record 0
		lost := 0
		for i := 1; i < 100; i++ {
			if w.WriteRecord(line(i, 50), batch.Meta{}) != nil {
				lost++
			}
		}
		close(release)
		w.Flush(t.Context())
		mustWrite(t, w, 100, 50)
		time.Sleep(2 * time.Second)
		mustWrite(t, w, 101, 50)
		closeNow(t, w)
		want := fmt.Sprintf("dropped full=%d\n", lost)
		if !slices.Equal(r.markers, []string{want}) {
			t.Errorf("markers %q, want one: %q", r.markers, want)
		}
		checkAccount(t, w, 102, uint64(102-lost), drops(batch.Full, uint64(lost)))
	})
}

// If records are dropped after the last batch, Close sends a gap marker that reports them.
func TestMarkerAtClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &recorder{}
		w := mustSink(t, sendFunc(func(ctx context.Context, b *batch.Batch) batch.Outcome {
			<-release
			return r.Send(ctx, b)
		}), &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), Codec: lines{}})
		lost := 0
		for range 3 { // the second marker is not due until a second after the first
			for i := range 100 {
				if w.WriteRecord(line(i, 50), batch.Meta{}) != nil {
					lost++
				}
			}
			synctest.Wait()
			release <- struct{}{}
			synctest.Wait()
		}
		close(release)
		closeNow(t, w)
		reported := 0
		for _, marker := range r.markers {
			n := 0
			if _, err := fmt.Sscanf(marker, "dropped full=%d\n", &n); err != nil {
				t.Error(marker, err)
			}
			reported += n
		}
		if reported != lost || lost == 0 {
			t.Errorf("%d dropped, markers report %d: %q", lost, reported, r.markers)
		}
	})
}

func TestDropOldestKeepsTheNewest(t *testing.T) {
	for _, size := range []int{1, 17, 50, 100, 400} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.DropOldest()})
				mustWrite(t, w, 0, size)
				time.Sleep(time.Second) // the destination hangs with record 0
				const n = 1000
				for i := 1; i < n; i++ {
					mustWrite(t, w, i, size)
				}
				lost := w.Account().Dropped[batch.Full]
				g.open()
				closeNow(t, w)
				ns := numbers(t, g.String())
				// The destination gets the records that it was reading and then, without a gap, the
				// newest records.
				k := 0
				for k < len(ns) && ns[k] == k {
					k++
				}
				wantSequence(t, ns[k:], n-len(ns)+k, n)
				checkAccount(t, w, n, uint64(len(ns)), drops(batch.Full, lost))
				if lost == 0 || lost != uint64(n-len(ns)) {
					t.Errorf("%d lost, %d arrived", lost, len(ns))
				}
				// Two slabs that are not being read contain the newest records.
				per := 512 / (len(line(n, size)) + layout.SlotBytes)
				if len(ns)-k < 2*per {
					t.Errorf("only the newest %d records are kept, two slabs hold %d", len(ns)-k, 2*per)
				}
			})
		})
	}
}

// Records of all sizes are written with all policies to a destination with random answers. The
// account and the order agree with a model.
func TestRandom(t *testing.T) {
	for seed := range testkit.Walks(t, 60) {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { randomRun(t, seed) })
		}) {
			return
		}
	}
}

func randomRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	policies := []slab.WhenFull{slab.Block(), slab.BlockFor(20 * time.Millisecond), slab.DropNewest(), slab.DropOldest()}
	o := &slab.Options{
		SlabBytes: 512 + rng.IntN(1000), SlabCount: 2 + rng.IntN(6), MaxRecord: 3000,
		FlushInterval: time.Duration(rng.IntN(20)) * time.Millisecond,
		WhenFull:      policies[rng.IntN(len(policies))],
	}
	if rng.IntN(2) == 0 {
		o.Codec = lines{}
	}
	r := &recorder{}
	defer func() {
		if t.Failed() {
			t.Logf("options %+v", *o)
		}
	}()
	if rng.IntN(3) == 0 {
		r.limits = batch.Limits{Bytes: rng.IntN(4000), Records: rng.IntN(50), Age: time.Duration(rng.IntN(30)) * time.Millisecond}
	}
	arng := rand.New(rand.NewPCG(seed, 2))
	r.answer = func(_ int, b *batch.Batch) (o batch.Outcome) {
		switch arng.IntN(12) {
		case 0:
			return failed()
		case 1:
			return partly(arng.IntN(b.Len() + 1))
		case 2:
			return refused(arng.IntN(b.Len()))
		case 3:
			if b.Len() > 1 {
				return batch.Outcome{Refused: batch.Of(0), Refusal: errDown, Open: batch.From(1), Why: errDown}
			}
		case 4:
			panic("random panic")
		case 5:
			time.Sleep(time.Duration(arng.IntN(50)) * time.Millisecond)
		case 6:
			runtime.Goexit()
		case 7:
			return partly(b.Len() + 2) // an index outside the batch
		}
		return o
	}
	c := consumerFor(r)
	c.wants.Inline = rng.IntN(2) == 0
	w := mustSink(t, c, o)
	writers := 1 + rng.IntN(4)
	done := make(chan int, writers)
	for g := range writers {
		grng := rand.New(rand.NewPCG(seed, uint64(10+g)))
		go func() {
			n := 0
			for i := range 200 {
				p := fmt.Appendf(nil, "%d %d %s\n", g, i, strings.Repeat("x", grng.IntN(100)*grng.IntN(2)*grng.IntN(20)))
				if err := w.WriteRecord(p, batch.Meta{}); err != nil && !errors.Is(err, slab.ErrDropped) {
					t.Errorf("seed %d: %v", seed, err)
				}
				n++
				switch grng.IntN(20) {
				case 0:
					time.Sleep(time.Duration(grng.IntN(40)) * time.Millisecond)
				case 1:
					if err := w.Flush(t.Context()); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				case 2:
					_ = w.Stats()
				}
			}
			done <- n
		}()
	}
	total := 0
	for range writers {
		total += <-done
	}
	closeNow(t, w)
	a := w.Account()
	if err := a.Check(); err != nil || a.Accepted != uint64(total) || a.Delivered != uint64(len(r.got)) || a.Pending.Total() != 0 {
		t.Errorf("seed %d: %v: %v; %d written, %d arrived", seed, err, a, total, len(r.got))
	}
	last := make([]int, writers)
	for _, rec := range r.got {
		var g, i int
		if _, err := fmt.Sscanf(rec, "%d %d ", &g, &i); err != nil || !strings.HasSuffix(rec, "\n") {
			t.Fatalf("seed %d: torn record %.60q", seed, rec)
		}
		if i < last[g] {
			t.Fatalf("seed %d: goroutine %d: record %d after %d", seed, g, i, last[g]-1)
		}
		last[g] = i + 1
	}
	if !slices.IsSorted(r.tickets) {
		t.Fatalf("seed %d: tickets out of order", seed)
	}
	synctest.Wait() // a lease may be released slightly after it is settled
	if s := w.Stats(); s.SlabsInUse != 0 || s.OversizeMem != 0 || len(w.store.pieces.queued) != 0 {
		t.Errorf("seed %d: memory left in use: %+v", seed, s)
	}
}
