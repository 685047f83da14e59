package slablog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/slab"
)

// slab.Plan computes the number of slabs with which no caller waits while the destination stalls.
// These tests simulate a stall with the real Writer in a synctest bubble, whose clock is exact:
// callers write at the planned rate, to the nanosecond. The destination needs Latency for each
// write, and stalls once, for Spike, at the worst moment. Slabs are sent when they are full and, in
// separate runs, also after the default FlushInterval. In those runs, the slab being sent is often
// the current one, so fewer slabs suffice.

// A simulation is one run with given options and one stall.
type simulation struct {
	slab.Workload
	slabBytes, count int
	flush            time.Duration
	callers          int
	records          int
	stallAt          time.Duration // time since the first record; negative: never
	stall            time.Duration
	vec              bool // the destination accepts several slabs at once, and needs Latency for each of them
}

// span is the time of a write to the destination, relative to the first record.
type span struct{ from, to time.Duration }

// run returns how long the first waiting caller waited, or 0 if none did, and the writes of the
// destination.
func (s simulation) run(t *testing.T) (waited time.Duration, writes []span) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		stalled := s.stallAt < 0
		send := func() {
			from := time.Since(start)
			d := s.Latency
			switch end := s.stallAt + s.stall; {
			case stalled:
			case from >= s.stallAt && from < end: // the write begins while the destination stalls
				d += end - from
			case from < s.stallAt && s.stallAt < from+d: // the write has begun before the stall
				d += s.stall
			}
			if from+d > s.stallAt+s.stall {
				stalled = true
			}
			time.Sleep(d)
			writes = append(writes, span{from, time.Since(start)})
		}
		o := &slab.Options{SlabBytes: s.slabBytes, SlabCount: s.count, FlushInterval: s.flush, WhenFull: slab.Block(), OnError: quiet}
		var w *pump
		if s.vec {
			w = mustNew(t, vecDest{send}, o)
		} else if s.Window == 0 {
			w = mustNew(t, writerFunc(func(p []byte) (int, error) { send(); return len(p), nil }), o)
		} else {
			// The bytes of Window full slabs may extend over one more slab.
			limit := s.Window * int(s.perSlab()*s.RecordBytes)
			w = mustSink(t, windowSink{send, batch.Limits{Bytes: limit}}, o)
		}
		var gone atomic.Bool
		var first atomic.Int64
		var wg sync.WaitGroup
		for g := range s.callers {
			wg.Go(func() {
				p := make([]byte, int(s.RecordBytes))
				for i := g; i < s.records && !gone.Load(); i += s.callers {
					due := time.Duration(math.Round(float64(i) * 1e9 / s.Rate))
					time.Sleep(time.Until(start.Add(due)))
					before := time.Now()
					if _, err := w.Write(p); err != nil {
						t.Error(err)
					}
					if d := time.Since(before); d > 0 {
						first.CompareAndSwap(0, int64(d))
						gone.Store(true)
					}
				}
			})
		}
		wg.Wait()
		waited = time.Duration(first.Load())
		closeNow(t, w)
	})
	return waited, writes
}

// vecDest accepts several slabs at once.
type vecDest struct{ send func() }

func (d vecDest) Write(p []byte) (int, error) { d.send(); return len(p), nil }

func (d vecDest) Writev([][]byte) (int64, error) { panic("a retrier writes slab by slab") }

// windowSink accepts several slabs at once.
type windowSink struct {
	send   func()
	limits batch.Limits
}

func (s windowSink) Limits() batch.Limits { return s.limits }

func (s windowSink) Send(context.Context, *batch.Batch) (o batch.Outcome) {
	s.send()
	return o
}

// moments returns the moments at which a stall may have the worst effect: at the beginning of a
// write, just before its end, and between two writes. If all is set, the middle of a write and of a
// pause is included. The moments cover as many writes as one slab may need.
func (s simulation) moments(t *testing.T, all bool) []time.Duration {
	t.Helper()
	s.stallAt = -1
	s.count += 4
	fill := time.Duration(s.perSlab() / s.Rate * 1e9)
	writesPerSlab, every := 1, fill
	if s.flush > 0 && s.flush < fill {
		writesPerSlab, every = 1+int(fill/s.flush), s.flush
	}
	// Two writes come first, until the state is steady. Two writes follow the examined ones,
	// because the last writes belong to Close.
	lead := time.Duration((5+writesPerSlab)*(1+s.Window)) * (every + s.Latency)
	s.records = int(s.Rate*lead.Seconds()) + 1
	_, writes := s.run(t)
	var at []time.Duration
	for i := 2; i < len(writes)-2 && i < 4+writesPerSlab; i++ {
		w, next := writes[i], writes[i+1]
		at = append(at, w.from, w.to-1, next.from-1)
		if all {
			at = append(at, (w.from+w.to)/2, w.to, (w.to+next.from)/2)
		}
	}
	at = slices.DeleteFunc(at, func(d time.Duration) bool { return d < 0 })
	slices.Sort(at)
	return slices.Compact(at)
}

func (s simulation) perSlab() float64 {
	return math.Floor(float64(s.slabBytes) / (s.RecordBytes + layout.SlotBytes))
}

// waits returns how long a caller waits in the worst case, and the time of the stall that causes
// it. It returns 0 if no caller waits.
func (s simulation) waits(t *testing.T, moments []time.Duration) (waited, at time.Duration) {
	t.Helper()
	for _, s.stallAt = range moments {
		s.records = int((s.stallAt+s.stall+2*s.Latency).Seconds()*s.Rate + 3*s.perSlab())
		if waited, _ := s.run(t); waited > 0 {
			return waited, s.stallAt
		}
	}
	return 0, 0
}

const milli = time.Millisecond

// tableRows is the number of workloads of simGrid that are always simulated.
const tableRows = 11

// simGrid returns the workloads to simulate: the rows of the sizing tables in the source documents,
// and variations of them.
func simGrid(t *testing.T) []slab.Workload {
	grid := []slab.Workload{
		// These are the sizing tables of the source documents.
		{Rate: 10_000, RecordBytes: 256, Latency: milli},
		{Rate: 10_000, RecordBytes: 256, Latency: 10 * milli, Spike: 200 * milli},
		{Rate: 100_000, RecordBytes: 200, Latency: 10 * milli, Spike: 20 * milli},
		{Rate: 10_000, RecordBytes: 256, Spike: 50 * milli, SlabBytes: 64 << 10},
		{Rate: 10_000, RecordBytes: 256, Latency: milli, Spike: 200 * milli, SlabBytes: 64 << 10},
		{Rate: 50_000, RecordBytes: 256, Latency: milli, Spike: 100 * milli, SlabBytes: 64 << 10},
		// These have few records per slab, a slab that is barely large enough, or partial flushes.
		{Rate: 100, RecordBytes: 4000, Latency: 20 * milli, Spike: 300 * milli},
		{Rate: 5550, RecordBytes: 256, Latency: 10 * milli, Spike: 30 * milli},
		{Rate: 200, RecordBytes: 256, Latency: 5 * milli, Spike: time.Second},
		{Rate: 1000, RecordBytes: 100, Latency: 50 * milli, Spike: 250 * milli, MemoryBytes: 56 << 10},
		{Rate: 10_000, RecordBytes: 256, Latency: milli, Spike: 60 * milli, SlabBytes: 16 << 10, Window: 2},
	}
	grid = append(grid, slab.Workload{Rate: 100_000, RecordBytes: 200, Latency: 10 * milli, Spike: 100 * milli})
	for _, rate := range []float64{50, 1000, 12_345, 100_000} {
		for _, bytes := range []float64{1, 100, 256, 1000, 5000} {
			for _, latency := range []time.Duration{0, 100 * time.Microsecond, 3 * milli, 30 * milli} {
				for _, spike := range []time.Duration{0, milli, 37 * milli, 333 * milli} {
					for _, window := range []int{0, 1} {
						grid = append(grid, slab.Workload{Rate: rate, RecordBytes: bytes, Latency: latency, Spike: spike, Window: window})
					}
				}
			}
		}
	}
	more := grid[tableRows:]
	testkit.Rand(testkit.Seed(t)).Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
	return grid[:testkit.Scale(tableRows, len(grid))]
}

// everyMoment reports whether a simulation covers all moments of a stall.
func everyMoment() bool { return testkit.Scale(1, 2) == 2 }

func TestPlanBySimulation(t *testing.T) {
	race.Skip(t)
	for i, w := range simGrid(t) {
		p, err := slab.Plan(w)
		if i >= tableRows && errors.Is(err, slab.ErrTooSlow) {
			continue // the plan refuses this workload
		}
		if err != nil {
			t.Errorf("%+v: %v", w, err)
			continue
		}
		name := fmt.Sprintf("%g per s of %g B, %v, stall %v, window %d", w.Rate, w.RecordBytes, w.Latency, w.Spike, w.Window)
		t.Run(name, func(t *testing.T) {
			least := 2
			for _, flush := range []time.Duration{-1, defaults.FlushInterval} {
				s := simulation{Workload: w, slabBytes: p.SlabBytes, count: p.SlabCount, flush: flush, callers: 2, stall: w.Spike}
				moments := s.moments(t, everyMoment())
				if len(moments) == 0 {
					t.Fatal("no write to stall")
				}
				if waited, at := s.waits(t, moments); waited > 0 {
					t.Fatalf("%v, flush interval %v: a caller waits %v when the stall begins at %v", p, flush, waited, at)
				}
				for s.count = p.SlabCount - 1; s.count >= least; s.count-- {
					if waited, _ := s.waits(t, moments); waited > 0 {
						least = s.count + 1
						break
					}
				}
			}
			t.Logf("%v; %d slabs would do", p, least)
			// A destination that accepts several slabs at once gets fewer of them when few are
			// free, so fewer than Window slabs would suffice for the callers. The plan reserves
			// Window slabs, so that the destination can always get that many.
			if p.SlabCount > least+1+w.Window {
				t.Errorf("%v, and %d slabs would do", p, least)
			}
		})
	}
}

// A destination that accepts several slabs at once, and needs Latency for each, gets only so many
// slabs that the callers still have free ones.
func TestPlanBySimulationGathering(t *testing.T) {
	race.Skip(t)
	for _, w := range simGrid(t) {
		p, err := slab.Plan(w)
		if err != nil || w.Window > 0 {
			continue
		}
		s := simulation{Workload: w, slabBytes: p.SlabBytes, count: p.SlabCount, flush: -1, callers: 2, stall: w.Spike, vec: true}
		if waited, at := s.waits(t, s.moments(t, false)); waited > 0 {
			t.Errorf("%+v, %v: a caller waits %v when the stall begins at %v", w, p, waited, at)
		}
	}
}

// A stall of the length that slab.Absorb computes makes no caller wait. A slightly longer one does.
func TestAbsorbBySimulation(t *testing.T) {
	for _, c := range []struct{ count, slabBytes int }{{8, 64 << 10}, {16, 16 << 10}, {16, 64 << 10}, {4, 16 << 10}} {
		for _, rate := range []float64{10_000, 50_000} {
			if !everyMoment() && (rate > 10_000 || c.count*c.slabBytes > 512<<10) {
				continue // the same ratio with more records adds nothing
			}
			w := slab.Workload{Rate: rate, RecordBytes: 256, Latency: milli}
			p, err := slab.Absorb(w, c.slabBytes, c.count)
			if err != nil {
				t.Error(err)
				continue
			}
			s := simulation{Workload: w, slabBytes: c.slabBytes, count: c.count, flush: -1, callers: 3, stall: p.Absorbs}
			moments := s.moments(t, everyMoment())
			if waited, at := s.waits(t, moments); waited > 0 {
				t.Errorf("%v at %g/s: a caller waits %v when the stall begins at %v", p, rate, waited, at)
			}
			s.stall += time.Duration((s.perSlab() + 1) / rate * 1e9)
			if waited, _ := s.waits(t, moments); waited == 0 {
				t.Errorf("%v at %g/s: %v are absorbed as well", p, rate, s.stall)
			}
		}
	}
}
