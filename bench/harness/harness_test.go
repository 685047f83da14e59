package harness

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

func TestRatioIgnoresSlowRounds(t *testing.T) {
	for _, tc := range []struct {
		v           []float64
		median, mad float64
	}{
		{[]float64{3}, 3, 0},
		{[]float64{4, 1}, 2.5, 1.5},
		{[]float64{9, 1, 2}, 2, 1},
		{[]float64{1, 2, 3, 100}, 2.5, 1},
	} {
		if m := Median(tc.v); m != tc.median {
			t.Errorf("Median(%v) = %v, want %v", tc.v, m, tc.median)
		}
		if m := MAD(tc.v); m != tc.mad {
			t.Errorf("MAD(%v) = %v, want %v", tc.v, m, tc.mad)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("Median of nothing is a number")
	}
	v := []float64{3, 1, 2}
	if Median(v); v[0] != 3 {
		t.Error("Median reordered its argument")
	}
	// A slow round affects both contenders equally, so it does not change the median of the ratios
	// per round.
	if r := Ratio(&Column{Values: []float64{1, 10, 1}}, &Column{Values: []float64{2, 20, 2}}); r != 0.5 {
		t.Errorf("ratio %v, want 0.5", r)
	}
}

// sleep returns a constructor of a subject whose operation sleeps for d. Its tally is too low by
// the parameter lost.
func sleep(d time.Duration, lost uint64) func(*Env) (*Subject, error) {
	return func(*Env) (*Subject, error) {
		var done atomic.Uint64
		return &Subject{
			Run: func(_, n int) {
				for range n {
					time.Sleep(d)
					done.Add(1)
				}
			},
			Tally: func() (Tally, error) {
				n := done.Load() - lost
				return Tally{Records: n, Bytes: 10 * n}, nil
			},
		}, nil
	}
}

// run measures a row in a synctest bubble. Its synthetic time makes the figures independent of the
// machine.
func run(t *testing.T, row Row) (res *Result) {
	t.Helper()
	row.Name = "test"
	bubble.Test(t, func(t *testing.T) {
		var err error
		if res, err = Run(row, Options{Count: 3, Benchtime: time.Millisecond, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	})
	return res
}

func TestRunComparesAndJudges(t *testing.T) {
	res := run(t, Row{
		Contenders: []Contender{
			{Name: "we", Kind: Ours, New: sleep(2*time.Microsecond, 0)},
			{Name: "slow", Kind: Rival, New: sleep(20*time.Microsecond, 0)},
			{Name: "wrong", Kind: Rival, New: sleep(200*time.Nanosecond, 0), Faults: func() []string { return []string{"no JSON"} }},
			{Name: "floor", Kind: Reference, New: sleep(100*time.Nanosecond, 0)},
		},
		Targets: []Target{VersusFastest("we", 0.9), Versus("we", "slow", 0.9), Versus("we", "floor", 1)},
	})
	if res.Reference != "slow" {
		t.Errorf("reference %q, want the valid rival", res.Reference)
	}
	want := []Status{OK, OK, Short}
	for i, c := range res.Checks {
		if c.Status != want[i] {
			t.Errorf("check %d is %q (%s), want %q", i, c.Status, c.Text, want[i])
		}
	}
	if !strings.Contains(res.Checks[0].Aside, "wrong") || !strings.Contains(res.Checks[0].Aside, "no JSON") {
		t.Errorf("the faster invalid rival is not mentioned: %q", res.Checks[0].Aside)
	}
	if res.Status != Short {
		t.Errorf("row is %q, want it short", res.Status)
	}
	if c, _ := res.Column("we"); c.RecordBytes != 10 || len(c.Values) != 3 || c.Ratio >= 1 {
		t.Errorf("column %+v", *c)
	}
	var out bytes.Buffer
	res.Print(&out)
	(&Report{Rows: []*Result{res}}).Summary(&out)
	for _, s := range []string{"wrong (invalid)", "SHORT", "* we", "1 rows: 0 ok, 1 short, 0 not measured"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("output lacks %q:\n%s", s, out.String())
		}
	}
}

// A target compares a contender with reference contenders of the same run.
func TestTargetsUseReferencesOfRun(t *testing.T) {
	col := func(name string, kind Kind, invalid []string, v ...float64) Column {
		return Column{Name: name, Kind: kind, Invalid: invalid, Values: v, Median: Median(v), CPU: Median(v)}
	}
	r := &Result{Unit: "ns/op", Columns: []Column{
		col("we", Ours, nil, 60, 160, 60),
		col("rival", Rival, nil, 100, 200, 100),
		col("wrong", Rival, []string{"no JSON"}, 50, 150, 50),
		col("floor", Reference, nil, 40, 140, 40),
	}}
	for _, c := range []struct {
		name   string
		target Target
		got    float64
		want   Status
	}{
		{"processor time", CPUVersusFastest("we", 0.6), 0.6, OK},
		{"processor time, short", CPUVersusFastest("we", 0.5), 0.6, Short},
		{"share", ShareVersusFastest("we", "floor", 0.34), 1. / 3, OK},
		{"share, short", ShareVersusFastest("we", "floor", 0.33), 1. / 3, Short},
		{"no floor", ShareVersusFastest("we", "none", 1), 0, NotMeasured},
		{"not ours", CPUVersusFastest("none", 1), 0, NotMeasured},
	} {
		if check := c.target.check(r); check.Status != c.want || math.Abs(check.Got-c.got) > 1e-9 {
			t.Errorf("%s: %+v", c.name, check)
		}
	}
	alone := CPUVersusFastest("we", 1)
	if c := alone.check(&Result{Columns: r.Columns[:1]}); c.Status != NotMeasured {
		t.Errorf("without a rival: %+v", c)
	}
	r.Columns[0].Invalid = []string{"no JSON"}
	if judge(&Row{}, r); r.Status != Short {
		t.Errorf("with invalid output of ours: row is %q: %+v", r.Status, r.Checks)
	}
}

func TestRunReportsWhatFails(t *testing.T) {
	ok := sleep(time.Microsecond, 0)
	for name, tc := range map[string]struct {
		c    Contender
		want string
	}{
		"loss":  {Contender{New: sleep(time.Microsecond, 1)}, "at the destination"},
		"error": {Contender{New: func(*Env) (*Subject, error) { return nil, errors.New("no such thing") }}, "no such thing"},
		"panic": {Contender{New: func(*Env) (*Subject, error) { panic("oh") }}, "panic: oh"},
		"own":   {Contender{Sample: func(*Env) (*Sample, error) { panic("oh") }}, "panic: oh"},
		"drain": {Contender{New: func(*Env) (*Subject, error) {
			return &Subject{Run: func(int, int) {}, Drain: func() error { return errors.New("stuck") }}, nil
		}}, "stuck"},
		"close": {Contender{New: func(*Env) (*Subject, error) {
			return &Subject{Run: func(int, int) {}, Close: func() error { return errors.New("busy") }}, nil
		}}, "busy"},
	} {
		tc.c.Name, tc.c.Kind = "we", Ours
		res := run(t, Row{Contenders: []Contender{tc.c, {Name: "other", Kind: Rival, New: ok}}, Targets: []Target{VersusFastest("we", 1)}})
		if res.Status != NotMeasured || !strings.Contains(res.Checks[0].Text, tc.want) {
			t.Errorf("%s: row is %q: %+v", name, res.Status, res.Checks)
		}
		we, _ := res.Column("we")
		if other, _ := res.Column("other"); we != nil || other == nil {
			t.Errorf("%s: the wrong contender has figures", name)
		}
	}
}

func TestRowNeedsProcessors(t *testing.T) {
	res := run(t, Row{
		MinCPU:     runtime.NumCPU() + 1,
		Contenders: []Contender{{Name: "we", Kind: Ours, New: func(*Env) (*Subject, error) { t.Error("measured"); return nil, nil }}},
		Targets:    []Target{ZeroAllocs("we")},
	})
	if res.Status != NotMeasured || !strings.Contains(res.Checks[0].Text, "processors") {
		t.Errorf("row is %q: %+v", res.Status, res.Checks)
	}
}

// A measurement executes all operations, including the warm-up and the remainder of the division
// among goroutines. It includes the time of Drain.
func TestAllOperationsAreExecuted(t *testing.T) {
	var workers [3]atomic.Int64
	c := Contender{Name: "we", Goroutines: len(workers), New: func(*Env) (*Subject, error) {
		return &Subject{
			Run:   func(g, n int) { workers[g].Add(int64(n)) },
			Drain: func() error { time.Sleep(10 * time.Millisecond); return nil },
			Tally: func() (Tally, error) {
				return Tally{Records: uint64(workers[0].Load() + workers[1].Load() + workers[2].Load())}, nil
			},
		}, nil
	}}
	s, err := measure(&Row{Goroutines: 1, Warm: 5}, &c, &Env{}, 11)
	if err != nil {
		t.Fatal(err)
	}
	for g, want := range []int64{3 + 5, 4, 4} { // worker 0 also warms up
		if n := workers[g].Load(); n != want {
			t.Errorf("worker %d has done %d operations, want %d", g, n, want)
		}
	}
	if took := time.Duration(s.Value * 11); took < 10*time.Millisecond {
		t.Errorf("%v: the drain is not in it", took)
	}
}

func TestSilentRowRequiresNoRecords(t *testing.T) {
	noisy := Contender{Name: "we", New: sleep(time.Microsecond, 0)}
	if _, err := measure(&Row{Silent: true}, &noisy, &Env{}, 3); err == nil {
		t.Error("a record of a silent row went unnoticed")
	}
}

func TestAllocationsAreCounted(t *testing.T) {
	var sink []byte
	c := Contender{Name: "we", New: func(*Env) (*Subject, error) {
		return &Subject{Run: func(_, n int) {
			for range n {
				sink = make([]byte, 128)
			}
		}}, nil
	}}
	s, err := measure(&Row{}, &c, &Env{}, 10000)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(s.Allocs-1) > 0.1 || math.Abs(s.AllocBytes-128) > 10 {
		t.Errorf("%.2f allocs/op of %.0f B, want 1 of 128", s.Allocs, s.AllocBytes)
	}
	_ = sink
}

func TestAmbiguousRowsAreRejected(t *testing.T) {
	old := registry
	defer func() { registry = old }()
	we := Contender{Name: "we"}
	for name, rows := range map[string][]Row{
		"the same row":       {{Name: "x"}, {Name: "x"}},
		"the same contender": {{Name: "x", Contenders: []Contender{we, we}}},
		"no such reference":  {{Name: "x", Contenders: []Contender{we}, Reference: "you"}},
	} {
		func() {
			defer func() { registry = nil }()
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			Register(rows...)
		}()
	}
}

func TestWriteFileKeepsOtherRows(t *testing.T) {
	old := registry
	defer func() { registry = old }()
	registry = nil
	row := func(name string) Row {
		return Row{Name: name, Targets: []Target{ZeroAllocs("we")}, Contenders: []Contender{{Name: "we", New: sleep(0, 0)}}}
	}
	Register(row("a"), row("b"), row("c"))
	if got, err := Select("[ac]"); err != nil || len(got) != 2 || got[1].Name != "c" {
		t.Errorf("selected %v, %v", got, err)
	}
	for _, pattern := range []string{"(", "no such row"} {
		if _, err := Select(pattern); err == nil {
			t.Errorf("%s selects a row", pattern)
		}
	}

	path := filepath.Join(t.TempDir(), "latest.json")
	// runs writes results of the named rows, marked by a load, and compares the stored rows.
	runs := func(load, want string, names ...string) {
		t.Helper()
		var rep Report
		for _, n := range names {
			rep.Rows = append(rep.Rows, &Result{Name: n, Machine: Machine{Load: load}})
		}
		if err := rep.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		stored, err := ReadReport(path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range stored.Rows {
			got += r.Name + r.Machine.Load + " "
		}
		if got != want {
			t.Errorf("after the run of %v: %q, want %q", names, got, want)
		}
	}
	runs("1", "c1 a1 ", "c", "a")
	runs("2", "a1 b2 c2 ", "b", "c")
	runs("3", "a1 b3 c2 ", "b")
	// A report keeps rows of other programs. It drops rows of this program that are no longer
	// registered.
	registry = nil
	Register(row("other/a"), row("other/b"))
	runs("4", "other/a4 other/b4 a1 b3 c2 ", "other/b", "other/a")
	registry = nil
	Register(row("other/b"))
	runs("5", "other/b5 a1 b3 c2 ", "other/b")
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&Report{}).WriteFile(path); err == nil {
		t.Error("unreadable results were overwritten")
	}
}

func TestMachineIsDescribed(t *testing.T) {
	m := ThisMachine()
	if m.Processors < 1 || m.GoVersion == "" || m.OS == "" {
		t.Errorf("%+v", m)
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && strings.Contains(m.CPU+m.Kernel, host) {
		t.Error("the machine's name is in the results")
	}
}

func TestLoadMeterExcludesOwnTime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc/stat")
	}
	m := startLoadMeter()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if cpuTime()-m.own < time.Millisecond {
		t.Errorf("this process used %v in 100 ms of spinning", cpuTime()-m.own)
	}
	if o := m.others(); o < 0 || o > 1 {
		t.Errorf("share of others %v", o)
	}
	// Processor time of this process that is not subtracted counts as time of other processes.
	m.own = cpuTime()
	if o := m.others(); o == 0 {
		t.Error("a busy processor does not show")
	}
}

// Each round measures every contender once, in random order.
func TestContendersAreInterleaved(t *testing.T) {
	var order string
	mk := func(name string) Contender {
		return Contender{Name: name, Sample: func(*Env) (*Sample, error) { order += name; return &Sample{Value: 1}, nil }}
	}
	row := Row{Name: "test", Contenders: []Contender{mk("a"), mk("b"), mk("c")}, Targets: []Target{ZeroAllocs("a")}}
	seen := map[string]bool{}
	if _, err := Run(row, Options{Count: 20, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	if len(order) != 60 {
		t.Fatalf("%d samples of 3 contenders in 20 rounds", len(order))
	}
	for ; order != ""; order = order[3:] {
		round := order[:3]
		for _, name := range []string{"a", "b", "c"} {
			if strings.Count(round, name) != 1 {
				t.Fatalf("a round measured %q", round)
			}
		}
		seen[round] = true
	}
	if len(seen) < 4 {
		t.Errorf("20 rounds knew only the orders %v", seen)
	}
}
