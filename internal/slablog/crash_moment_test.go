//go:build linux || darwin

package slablog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// stepSink is a destination that answers a batch each time the test sends an outcome to step.
type stepSink struct {
	limits batch.Limits
	step   chan batch.Outcome
	taken  map[uint64]bool // tickets of the delivered records
}

func (s *stepSink) Limits() batch.Limits { return s.limits }

func (s *stepSink) Send(_ context.Context, b *batch.Batch) batch.Outcome {
	o := <-s.step
	if o.Open.Empty() {
		for _, r := range b.All() {
			s.taken[r.Ticket] = true
		}
	}
	return o
}

// After each call and each step of the consumer, the file contains exactly the pending records, all
// of them whole.
func TestImageAtEveryMoment(t *testing.T) {
	row, share := 0, testkit.Seed(t)
	for _, o := range []slab.Options{
		{SlabBytes: 512, SlabCount: 2},
		{SlabBytes: 1024, SlabCount: 3},
		{SlabBytes: 1024, SlabCount: 5, MaxRecord: 3000},
	} {
		for _, limits := range []batch.Limits{{}, {Records: 1}, {Records: 4}, {Bytes: 200}} {
			for _, full := range []slab.WhenFull{slab.DropOldest(), slab.DropNewest()} {
				if row++; !testkit.Share(share, row, 3) {
					continue
				}
				t.Run(fmt.Sprintf("%dx%d/%v/%v", o.SlabCount, o.SlabBytes, limits, full), func(t *testing.T) {
					o := o
					o.WhenFull = full
					for seed := range testkit.Walks(t, 1) {
						bubble.Test(t, func(t *testing.T) { imageWalk(t, o, limits, seed) })
					}
				})
			}
		}
	}
}

func imageWalk(t *testing.T, o slab.Options, limits batch.Limits, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	sink := &stepSink{limits: limits, step: make(chan batch.Outcome), taken: map[uint64]bool{}}
	o.Crash, o.FlushInterval, o.OnError = &slab.Crash{Dir: t.TempDir(), Required: true}, 3*time.Millisecond, quiet
	c := consumerFor(sink)
	c.wait, c.most, c.wants.Inline = time.Millisecond, 1+rng.IntN(4), rng.IntN(2) == 0
	w := mustSink(t, c, &o)
	defer func() {
		close(sink.step)
		closeNow(t, w)
	}()
	stepping := 1 + rng.IntN(20) // maximum number of written records that are not delivered
	number := uint64(0)
	for range 400 {
		imageAround(t, w, func() {
			switch k := rng.IntN(20 + stepping); {
			case k < 2:
				time.Sleep(time.Millisecond)
			case k < 8:
				var step batch.Outcome
				if rng.IntN(5) == 0 {
					step = failed()
				}
				select {
				case sink.step <- step:
				default:
				}
			default:
				size := rng.IntN(100)
				if rng.IntN(20) == 0 {
					size = rng.IntN(2000)
				}
				if err := w.WriteRecord(killLine(0, number, size), batch.Meta{}); err != nil && !errors.Is(err, slab.ErrDropped) {
					t.Fatal(err)
				}
				number++
			}
			checkImage(t, w, sink, seed)
		})
	}
}

// imageAround calls the function do. In builds with test points, it also examines the file at each
// test point that is reached meanwhile.
var imageAround = func(_ *testing.T, _ *pump, do func()) { do() }

// checkImage compares the file of a Writer with its account and with the records that the
// destination has accepted.
func checkImage(t *testing.T, w *pump, sink *stepSink, what uint64) {
	t.Helper()
	synctest.Wait()
	im, err := crashfile.Read(w.store.crash.file.Path())
	if err != nil {
		t.Fatalf("%d: %v", what, err)
	}
	for _, r := range im.Records {
		if _, _, err := parseKillLine(string(r.Data)); err != nil {
			t.Fatalf("%d: ticket %d: %v", what, r.Ticket, err)
		}
		if sink.taken[r.Ticket] {
			t.Fatalf("%d: ticket %d was delivered", what, r.Ticket)
		}
	}
	if a := w.Account(); uint64(len(im.Records)) != a.Pending.Total() || im.Damaged+im.Unreturned != 0 {
		t.Fatalf("%d: %d records in the file, %d unreturned, %d damaged; %v", what, len(im.Records), im.Unreturned, im.Damaged, a)
	}
}

// A dropped slab is refilled with larger records. Remaining old slots, and payload that overwrites
// old slots, do not count as records.
func TestIndexOfADroppedSlab(t *testing.T) {
	for size := 160; size < 200; size++ { // with these sizes the payload ends at any offset within an old slot
		bubble.Test(t, func(t *testing.T) {
			sink := &stepSink{step: make(chan batch.Outcome), taken: map[uint64]bool{}}
			w := mustSink(t, sink, &slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.DropOldest(), Crash: &slab.Crash{Dir: t.TempDir(), Required: true}})
			defer func() {
				close(sink.step)
				closeNow(t, w)
			}()
			put := func(n int) {
				if _, err := w.Write(killLine(0, 0, n-len(killLine(0, 0, 0)))); err != nil {
					t.Fatal(err)
				}
				checkImage(t, w, sink, uint64(size))
			}
			for range 3 * 11 {
				put(60)
			}
			put(200) // Send has the first slab, and this write drops the second slab
			put(200)
			sink.step <- batch.Outcome{}
			checkImage(t, w, sink, uint64(size))
			sink.step <- batch.Outcome{} // the third record was dropped
			checkImage(t, w, sink, uint64(size))
			put(200)
			put(size)
			if a := w.Account(); a.Dropped[batch.Full] != 11 || a.Delivered != 22 || w.front.cur.n != 4 {
				t.Fatal("the test did not reach its case:", a, w.front.cur.n)
			}
		})
	}
}
