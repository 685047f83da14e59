package slab_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
)

// The three tables below are those of an older sizing guide, the source. Its formulas are
//
//	slabSize ≥ R·M·L    slabCount ≥ S·R·M/slabSize    spike = count·size/(R·M)
//
// The formulas of Plan differ in three ways, so every row gives both results:
//
//   - slots: a record takes 32 bytes more than its own length, so a 64 KiB slab
//     holds 227 records of 256 bytes, not 256;
//   - two slabs are not free when a spike begins: one is in flight, and one is
//     partly filled. The source counts the one in flight as free, says "add 1
//     for the slab being filled" and then does so in one row of four only;
//   - a slab must hold more than R·L records, not just as many, and is at least 64 KiB: smaller
//     ones fill so often that the 99th percentile of the latency rises.

// Table 1 computes the size of a slab from rate, record length and latency.
func TestPlanTableSlabSize(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    float64
		bytes   float64
		latency time.Duration
		source  string // R·M·L, as in the source
		least   int    // R·M'·L, with M' = M plus the slot
		want    int    // the next power of two, at least 64 KiB
	}{
		{"file", 10_000, 256, time.Millisecond, "2.5 KB", 2_880, 64 << 10},
		{"network", 10_000, 256, 10 * time.Millisecond, "25 KB", 28_800, 64 << 10},
		{"network, high rate", 100_000, 200, 10 * time.Millisecond, "200 KB", 232_000, 256 << 10},
	} {
		s, err := slab.Plan(slab.Workload{Rate: c.rate, RecordBytes: c.bytes, Latency: c.latency})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if s.SlabBytes != c.want || s.SlabBytes < c.least || s.SlabCount != 2 {
			t.Errorf("%s: %d × %d bytes, want 2 × %d ≥ %d (source: %s)", c.name, s.SlabCount, s.SlabBytes, c.want, c.least, c.source)
		}
	}
}

// Table 2 computes the number of slabs from the spike.
func TestPlanTableSlabCount(t *testing.T) {
	for _, c := range []struct {
		rate      float64
		bytes     float64
		slabBytes int
		spike     time.Duration
		source    int // number of slabs in the source
		records   int // records per slab
		want      int // ⌈⌈R·S⌉/records⌉ + 2
	}{
		// 500 records in slabs of 227 need 3 slabs, plus the two that are not free. The 2 slabs of
		// the source hold 1.95 slabs of payload, and none is left for the batch in flight.
		{10_000, 256, 64 << 10, 50 * time.Millisecond, 2, 227, 5},
		// 2000 records need 9 slabs, plus two. The source has "1 + 8 = 8".
		{10_000, 256, 64 << 10, 200 * time.Millisecond, 8, 227, 11},
		// 5000 records need 23 slabs, plus two.
		{50_000, 256, 64 << 10, 100 * time.Millisecond, 20, 227, 25},
		// 10000 records of 200 bytes in slabs of 1129 records need 9 slabs, plus two.
		{100_000, 200, 256 << 10, 100 * time.Millisecond, 8, 1129, 11},
	} {
		s, err := slab.Plan(slab.Workload{Rate: c.rate, RecordBytes: c.bytes, Spike: c.spike, SlabBytes: c.slabBytes})
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if s.SlabCount != c.want || s.SlabRecords != c.records {
			t.Errorf("%+v: got %d slabs of %d records (source: %d slabs)", c, s.SlabCount, s.SlabRecords, c.source)
		}
		if s.Absorbs < c.spike {
			t.Errorf("%+v: absorbs only %s", c, s.Absorbs)
		}
	}
}

// Table 3 computes the memory, and the spike that it absorbs at two rates.
func TestPlanTableMemory(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		count, slabBytes int
		memory           int64
		source10, want10 time.Duration // at 10 000 records/s of 256 bytes
		source50, want50 time.Duration // at 50 000 records/s
	}{
		// The wanted values are (count-2)·records/R, with 6·227, 14·56, 14·227 and 2·56 records.
		{8, 64 << 10, 512 << 10, 200 * time.Millisecond, 136_200 * us, 40 * time.Millisecond, 27_240 * us},
		{16, 16 << 10, 256 << 10, 100 * time.Millisecond, 78_400 * us, 20 * time.Millisecond, 15_680 * us},
		{16, 64 << 10, 1 << 20, 400 * time.Millisecond, 317_800 * us, 80 * time.Millisecond, 63_560 * us},
		{4, 16 << 10, 64 << 10, 25 * time.Millisecond, 11_200 * us, 5 * time.Millisecond, 2_240 * us},
	} {
		for _, r := range []struct {
			rate         float64
			source, want time.Duration
		}{{10_000, c.source10, c.want10}, {50_000, c.source50, c.want50}} {
			s, err := slab.Absorb(slab.Workload{Rate: r.rate, RecordBytes: 256}, c.slabBytes, c.count)
			if err != nil {
				t.Errorf("%d × %d: %v", c.count, c.slabBytes, err)
				continue
			}
			if s.Absorbs != r.want || s.MemoryBytes != c.memory {
				t.Errorf("%d × %d at %g/s: absorbs %s in %d bytes, want %s in %d (source: %s)",
					c.count, c.slabBytes, r.rate, s.Absorbs, s.MemoryBytes, r.want, c.memory, r.source)
			}
		}
	}
}

func TestPlanCatchUp(t *testing.T) {
	// 20 000 records/s arrive, and 28 000/s can leave: a slab of 56 records per 2 ms. After a stall
	// of 100 ms 2000 records wait, and 8000/s more leave than arrive.
	w := slab.Workload{Rate: 20_000, RecordBytes: 256, Latency: 2 * time.Millisecond, Spike: 100 * time.Millisecond, SlabBytes: 16 << 10}
	s, err := slab.Plan(w)
	if err != nil {
		t.Fatal(err)
	}
	if s.DrainRate != 28_000 || s.CatchUp != 250*time.Millisecond {
		t.Errorf("drains %g/s, catches up in %s", s.DrainRate, s.CatchUp)
	}
	w.DrainBytesPerSecond = 24_000 * 256
	if s, err = slab.Plan(w); err != nil || s.DrainRate != 24_000 || s.CatchUp != 500*time.Millisecond {
		t.Errorf("with a bound on bytes: drains %g/s, catches up in %s, %v", s.DrainRate, s.CatchUp, err)
	}
	w = slab.Workload{Rate: 20_000, RecordBytes: 256, Spike: time.Second}
	if s, err = slab.Plan(w); err != nil || !math.IsInf(s.DrainRate, 1) || s.CatchUp != 0 {
		t.Errorf("without latency: drains %g/s, catches up in %s, %v", s.DrainRate, s.CatchUp, err)
	}
}

// A slab must hold more records than arrive while it is written. If it holds exactly as many, the
// writer never catches up.
func TestPlanStrictlyMore(t *testing.T) {
	w := slab.Workload{Rate: 6400, RecordBytes: 1024 - 32, Latency: 10 * time.Millisecond}
	s, err := slab.Plan(w)
	if err != nil || s.SlabBytes != 128<<10 {
		t.Errorf("64 records in 10 ms, 64 fit 64 KiB: %v, %v", s, err)
	}
	w.SlabBytes = 64 << 10
	if s, err = slab.Plan(w); !errors.Is(err, slab.ErrTooSlow) {
		t.Errorf("64 KiB all the same: %v, %v", s, err)
	}
}

func TestPlanWindow(t *testing.T) {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256, Spike: 200 * time.Millisecond, SlabBytes: 64 << 10}
	for window := range 5 {
		w.Window = window
		s, err := slab.Plan(w)
		if err != nil || s.SlabCount != 11+window {
			t.Errorf("window %d: %d slabs, %v", window, s.SlabCount, err)
		}
		back, err := slab.Absorb(w, s.SlabBytes, s.SlabCount)
		if err != nil || back.Absorbs != s.Absorbs {
			t.Errorf("window %d: the inverse absorbs %s, the plan %s, %v", window, back.Absorbs, s.Absorbs, err)
		}
	}
}

func TestPlanBudget(t *testing.T) {
	// R·M'·L is 28 800 bytes, so slabs of 64 KiB may shrink to 32 KiB, but not to 16 KiB.
	w := slab.Workload{Rate: 10_000, RecordBytes: 256, Latency: 10 * time.Millisecond, Spike: 200 * time.Millisecond}
	free, err := slab.Plan(w)
	if err != nil {
		t.Fatal(err)
	}
	w.MemoryBytes = free.MemoryBytes
	if s, err := slab.Plan(w); err != nil || s != free {
		t.Errorf("a budget that suffices changes the plan: %v, %v", s, err)
	}
	w.MemoryBytes--
	s, err := slab.Plan(w)
	if err != nil || s.SlabBytes != 32<<10 || s.SlabCount != 20 || s.Absorbs < w.Spike {
		t.Fatalf("smaller slabs fit: %v, %v", s, err)
	}
	free, w.MemoryBytes = s, s.MemoryBytes-1
	s, err = slab.Plan(w)
	if !errors.Is(err, slab.ErrMemory) {
		t.Fatalf("one byte too few: %v, %v", s, err)
	}
	if s.SlabBytes != 32<<10 || s.MemoryBytes > w.MemoryBytes || s.SlabCount != free.SlabCount-1 || s.Absorbs >= w.Spike {
		t.Errorf("the best within the budget is %v", s)
	}
	if !strings.Contains(err.Error(), "needs 640 KiB") {
		t.Errorf("the error does not say how much it takes: %v", err)
	}

	// Without latency, slabs shrink as far as the budget requires.
	w = slab.Workload{Rate: 1000, RecordBytes: 100, Spike: 100 * time.Millisecond}
	if s, err = slab.Plan(w); err != nil || s.SlabBytes != 64<<10 || s.SlabCount != 3 {
		t.Errorf("no budget: %v, %v", s, err)
	}
	w.MemoryBytes = 20 << 10
	if s, err = slab.Plan(w); err != nil || s.SlabBytes != 2<<10 || s.MemoryBytes > 20<<10 || s.Absorbs < w.Spike {
		t.Errorf("tight budget: %v, %v", s, err)
	}
	w.MemoryBytes = 1000
	if s, err = slab.Plan(w); !errors.Is(err, slab.ErrMemory) || s != (slab.Sizing{}) {
		t.Errorf("no room for two slabs: %v, %v", s, err)
	}
	// If SlabBytes is set, slabs do not shrink.
	w.SlabBytes, w.MemoryBytes = 16<<10, 32<<10
	if s, err = slab.Plan(w); !errors.Is(err, slab.ErrMemory) || s.SlabBytes != 16<<10 || s.SlabCount != 2 || s.Absorbs != 0 {
		t.Errorf("fixed size in a tight budget: %v, %v", s, err)
	}
}

func TestPlanRefuses(t *testing.T) {
	good := slab.Workload{Rate: 1000, RecordBytes: 200, Latency: time.Millisecond, Spike: time.Second}
	if _, err := slab.Plan(good); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*slab.Workload)
		want   error // nil: any error
		text   string
	}{
		"rate 0":          {func(w *slab.Workload) { w.Rate = 0 }, nil, "Rate"},
		"rate NaN":        {func(w *slab.Workload) { w.Rate = math.NaN() }, nil, "Rate"},
		"rate Inf":        {func(w *slab.Workload) { w.Rate = math.Inf(1) }, nil, "Rate"},
		"length 0":        {func(w *slab.Workload) { w.RecordBytes = 0 }, nil, "RecordBytes"},
		"length NaN":      {func(w *slab.Workload) { w.RecordBytes = math.NaN() }, nil, "RecordBytes"},
		"latency":         {func(w *slab.Workload) { w.Latency = -1 }, nil, "Latency"},
		"spike":           {func(w *slab.Workload) { w.Spike = -1 }, nil, "Spike"},
		"window":          {func(w *slab.Workload) { w.Window = -1 }, nil, "Window"},
		"memory":          {func(w *slab.Workload) { w.MemoryBytes = -1 }, nil, "MemoryBytes"},
		"slab":            {func(w *slab.Workload) { w.SlabBytes = 100 }, nil, "SlabBytes"},
		"drain NaN":       {func(w *slab.Workload) { w.DrainBytesPerSecond = math.NaN() }, nil, "DrainBytesPerSecond"},
		"huge records":    {func(w *slab.Workload) { w.RecordBytes = 2 << 20 }, nil, "larger than a slab"},
		"endless spike":   {func(w *slab.Workload) { w.Spike = math.MaxInt64; w.Rate = 1e6; w.Latency = 0 }, nil, "shorter spike"},
		"slow":            {func(w *slab.Workload) { w.Latency = time.Minute }, slab.ErrTooSlow, "1 MiB per 1m0s"},
		"slow in bytes":   {func(w *slab.Workload) { w.DrainBytesPerSecond = 1 }, slab.ErrTooSlow, "DrainBytesPerSecond"},
		"equal in bytes":  {func(w *slab.Workload) { w.DrainBytesPerSecond = 200_000 }, slab.ErrTooSlow, "195.3 KiB/s arrive"},
		"slab too small":  {func(w *slab.Workload) { w.SlabBytes = 512; w.Latency = 5 * time.Millisecond }, slab.ErrTooSlow, "512 B per 5ms"},
		"just not enough": {func(w *slab.Workload) { w.SlabBytes = 4 * 232; w.Latency = 4 * time.Millisecond }, slab.ErrTooSlow, "928 B per 4ms"},
	} {
		w := good
		c.change(&w)
		s, err := slab.Plan(w)
		if err == nil || s != (slab.Sizing{}) {
			t.Errorf("%s: %v, %v", name, s, err)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "slab: cannot plan: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		bytes, count int
		text         string
	}{
		"no slab":            {0, 8, "the slab size is 0: want 512 to "},
		"too few":            {64 << 10, 1, "the slab count is 1: want 2 to "},
		"too many":           {512, 1 << 20, "the slab count is 1048576: want 2 to "},
		"tiny":               {100, 8, "field SlabBytes is 100"},
		"records do not fit": {512, 8, "a record of 600 bytes and its slot of 32 bytes do not fit into a slab of 512 B: set SlabBytes to 632 or more"},
	} {
		w := good
		w.RecordBytes = 600
		if s, err := slab.Absorb(w, c.bytes, c.count); err == nil || s != (slab.Sizing{}) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("Absorb, %s: %v, %v", name, s, err)
		}
	}
	if _, err := slab.Absorb(slab.Workload{Rate: 1e6, RecordBytes: 256, Latency: time.Second}, 64<<10, 8); !errors.Is(err, slab.ErrTooSlow) {
		t.Errorf("Absorb, too slow: %v", err)
	}
}

// A planned slab holds the records that arrive while one slab is written. No smaller power of two
// does. Absorb, applied to the plan, returns the plan.
func TestPlanProperties(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := randomWorkload(rnd)
		s, err := slab.Plan(w)
		if err != nil {
			if !errors.Is(err, slab.ErrTooSlow) {
				t.Fatalf("seed %d: %+v: %v", seed, w, err)
			}
			continue
		}
		arrive := func(d time.Duration) float64 { return w.Rate * float64(d) / 1e9 }
		if float64(s.SlabRecords) <= arrive(w.Latency) {
			t.Errorf("seed %d: %+v: %d records per slab, %g arrive in L", seed, w, s.SlabRecords, arrive(w.Latency))
		}
		if s.SlabBytes > 64<<10 && math.Floor(float64(s.SlabBytes/2)/(w.RecordBytes+32)) > arrive(w.Latency) {
			t.Errorf("seed %d: %+v: half of %d bytes would do", seed, w, s.SlabBytes)
		}
		if s.Absorbs < w.Spike || s.CatchUp < 0 || s.MemoryBytes != int64(s.SlabBytes)*int64(s.SlabCount) {
			t.Errorf("seed %d: %+v: %+v", seed, w, s)
		}
		back, err := slab.Absorb(w, s.SlabBytes, s.SlabCount)
		if err != nil || back.Absorbs != s.Absorbs {
			t.Errorf("seed %d: inverse: %+v, %v", seed, back, err)
		}
		w.Spike, w.SlabBytes = s.Absorbs, s.SlabBytes
		if again, err := slab.Plan(w); err != nil || again.SlabCount != s.SlabCount {
			t.Errorf("seed %d: planned for what it absorbs: %d slabs, first %d, %v", seed, again.SlabCount, s.SlabCount, err)
		}
	}
}

func randomWorkload(rnd *rand.Rand) slab.Workload {
	return slab.Workload{
		Rate:        math.Floor(math.Pow(10, 2+3*rnd.Float64())),
		RecordBytes: math.Floor(20 + 980*rnd.Float64()),
		Latency:     time.Duration(rnd.IntN(20_000)) * time.Microsecond,
		Spike:       time.Duration(rnd.IntN(300_000)) * time.Microsecond,
	}
}

// In a model that simulates each record, no caller waits with the planned number of slabs. This
// holds both if the stall adds to the latency of a write and if it replaces the latency. The plan
// has at most one slab more than is needed in the worse case.
func TestPlanAgainstModel(t *testing.T) {
	checked, exact := 0, 0
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		w := randomWorkload(rnd)
		w.Rate = min(w.Rate, 20_000)
		s, err := slab.Plan(w)
		if err != nil {
			continue
		}
		checked++
		for _, stall := range []time.Duration{w.Spike, w.Spike + w.Latency} {
			if waits(w, stall, s.SlabRecords, s.SlabCount) {
				t.Errorf("seed %d: %+v: a caller waits with %d slabs of %d records, stall %s", seed, w, s.SlabCount, s.SlabRecords, stall)
			}
			if s.SlabCount > 3 && !waits(w, stall, s.SlabRecords, s.SlabCount-2) {
				t.Errorf("seed %d: %+v: %d slabs planned, %d would do, stall %s", seed, w, s.SlabCount, s.SlabCount-2, stall)
			}
		}
		if s.SlabCount > 2 && waits(w, w.Spike+w.Latency, s.SlabRecords, s.SlabCount-1) {
			exact++
		}
	}
	if checked < 300 {
		t.Errorf("only %d workloads could be planned", checked)
	}
	t.Logf("%d workloads, the plan exact for %d", checked, exact)
}

// waits reports whether a caller waits in a model with count slabs, into which records are written
// at a steady rate. A slab is passed to the consumer when the next record does not fit. The
// consumer writes one slab at a time and needs the latency for each. One write takes the time in
// the parameter stall instead, if that is longer.
func waits(w slab.Workload, stall time.Duration, records, count int) bool {
	const warm = 4 // slabs written before the stall
	var (
		gap     = 1e9 / w.Rate // nanoseconds between records
		free    = count - 1    // free slabs, without the current one
		queued  = 0
		filled  = 0
		writing = false
		done    float64 // end of the write in progress
		started = 0
	)
	begin := func(now float64) {
		writing, done = true, now+float64(w.Latency)
		if started++; started == warm+1 {
			done = now + float64(max(stall, w.Latency))
		}
	}
	total := (warm+4)*records + int(w.Rate*stall.Seconds())*3
	for i := range total {
		now := float64(i) * gap
		for writing && done <= now+1e-3 {
			writing = false
			free++
			if queued > 0 {
				queued--
				begin(done)
			}
		}
		if filled == records {
			if free == 0 {
				return true
			}
			free--
			filled = 0
			if writing {
				queued++
			} else {
				begin(now)
			}
		}
		filled++
	}
	return false
}

func TestPlanIsPure(t *testing.T) {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256, Latency: time.Millisecond, Spike: 200 * time.Millisecond}
	if n := allocs.PerRun(100, func() {
		if _, err := slab.Plan(w); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Plan allocates %g times", n)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(10_000.0, 256.0, int64(time.Millisecond), int64(time.Second), 0, int64(0), 0, 0.0)
	f.Add(1e300, 1e-300, int64(math.MaxInt64), int64(math.MaxInt64), 1<<15, int64(math.MaxInt64), 512, 1e300)
	f.Add(1e-300, 1.0, int64(1), int64(math.MaxInt64), 0, int64(1), 64<<20, 0.0)
	f.Add(5.0, 33.0, int64(0), int64(9), 3, int64(5000), 0, math.Inf(1))
	f.Fuzz(func(t *testing.T, rate, bytes float64, latency, spike int64, window int, memory int64, slabBytes int, drain float64) {
		w := slab.Workload{Rate: rate, RecordBytes: bytes, Latency: time.Duration(latency), Spike: time.Duration(spike),
			Window: window, MemoryBytes: memory, SlabBytes: slabBytes, DrainBytesPerSecond: drain}
		s, err := slab.Plan(w)
		if errors.Is(err, slab.ErrMemory) {
			if s.MemoryBytes > memory || s.Absorbs < 0 {
				t.Fatalf("%+v: %+v", w, s)
			}
			return
		}
		if err != nil {
			if s != (slab.Sizing{}) {
				t.Fatalf("%+v: %+v with %v", w, s, err)
			}
			return
		}
		if s.SlabBytes < layout.MinSlabBytes || s.SlabBytes > layout.MaxSlabBytes || s.SlabCount < 2 || s.SlabCount > layout.MaxSlabCount ||
			s.SlabRecords < 1 || s.CatchUp < 0 || memory > 0 && s.MemoryBytes > memory {
			t.Fatalf("%+v: %+v", w, s)
		}
	})
}
