//go:build linux || darwin

package diskqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A custody performs random calls on an Output with a spool, whose destination and disk fail at
// random. It identifies each record by the low bits of its time. After each call it searches for
// each record: at the destination, at the error handler, and in the files that a kill at this
// moment would leave.
type custody struct {
	t     *testing.T
	rng   *rand.Rand
	what  custodyKind
	steps []string // the steps so far, for the message of a failure

	mem        *vfs.Mem
	diskFaults float64 // probability that a call of the file system fails
	fs         *vfs.Faulty
	dir        string // directory of the crash-safe slabs of the current process
	s          *diskqueue.Spool
	o          *deliver.Output
	async      *testkit.AsyncSink
	refuse     uint64 // number of records that WriteRecord dropped in the current process
	twice      uint64 // number of records found both in the spool and in slabs

	mu         sync.Mutex // guards the fields below
	alive      *process
	records    map[int][]byte // content of each record, by id
	live       map[int]bool   // accepted records that may still be delivered: not dropped or delivered by an earlier process
	got        map[int]bool   // records that arrived at the destination from the current process
	reported   map[int]bool   // records in got for which an answer was returned
	handled    map[int]bool   // records that the handler of the current process accepted
	order      []int          // ids in the order of arrival
	nextID     int
	destFaults float64 // probability that the destination fails
	fault      string
}

// custodyKind selects the options and faults of a custody.
type custodyKind struct {
	crash   bool // crash-safe slabs
	async   bool // the destination has several batches in flight
	disk    bool // the disk fails
	poison  bool // the destination refuses some records permanently
	handler bool
	spills  bool // the policy of the slabs is slab.Spill
	quota   bool // the quota of the spool is small
	refuse  bool // the option RefuseNew is set
	age     bool // records expire
	order   bool // check that the last copies arrive in order
	closes  bool // Close ends the process, and a new process continues
	kills   bool // a kill ends the process, and a new process continues
}

func (k custodyKind) String() string {
	var on []string
	for _, f := range strings.Fields(strings.Trim(fmt.Sprintf("%+v", custodyPlain(k)), "{}")) {
		if name, yes := strings.CutSuffix(f, ":true"); yes {
			on = append(on, name)
		}
	}
	return strings.Join(on, " ")
}

type custodyPlain custodyKind // a custodyKind that prints without its method String

// process is one process that uses the Output.
type process struct{ dead, closed bool }

const (
	custodyIDs  = 1 << 20
	custodyLate = 5 * time.Second
	custodyHang = 2 * time.Minute
)

func (c *custody) id(r batch.Record) int { return int(r.Time & (custodyIDs - 1)) }

// bad reports whether the destination refuses a record permanently.
func (c *custody) bad(id int) bool { return c.what.poison && id%11 == 3 }

// failf stores the first failure of a check. The caller holds mu.
func (c *custody) failf(format string, args ...any) {
	if c.fault == "" {
		c.fault = fmt.Sprintf(format, args...)
	}
}

// idLocked checks that r equals a record that was written, and returns its id.
func (c *custody) idLocked(where string, r batch.Record) int {
	id := c.id(r)
	if want, ok := c.records[id]; !ok || !bytes.Equal(want, r.Data) {
		c.failf("%s: record %d is torn or invented: %.60q", where, id, r.Data)
	}
	return id
}

// answer returns the function that answers the batches sent by process p, as its destination.
func (c *custody) answer(p *process) testkit.Answer {
	return func(ctx context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		c.mu.Lock()
		defer func() { c.mu.Unlock() }()
		n := b.Len()
		if p.dead {
			return nil, batch.FailedOutcome(testkit.ErrDown)
		}
		ids := make([]int, 0, n)
		var refused []int
		for i, r := range b.All() {
			id := c.idLocked("destination", r)
			ids = append(ids, id)
			if c.bad(id) {
				refused = append(refused, i)
			}
		}
		take := func(k int, reported bool) {
			for _, id := range ids[:k] {
				if c.bad(id) {
					continue
				}
				if p.closed {
					continue
				}
				c.got[id] = true
				if reported {
					c.reported[id] = true
				}
				c.order = append(c.order, id)
			}
		}
		well := func() ([]int, batch.Outcome) {
			switch {
			case p.dead:
				return nil, batch.FailedOutcome(testkit.ErrDown)
			case len(refused) == 0:
				take(n, true)
				return nil, batch.Outcome{}
			case c.rng.IntN(2) == 0:
				return nil, testkit.Malformed(errors.New("a record is malformed"))
			}
			take(n, true)
			return nil, batch.Outcome{Refused: batch.Of(refused...), Refusal: errors.New("records are malformed")}
		}
		if c.rng.Float64() >= c.destFaults {
			return well()
		}
		kinds := 12
		if c.what.async || c.what.order { // a record that ends three sessions becomes a suspect and may arrive late
			kinds = 10
		}
		switch k := c.rng.IntN(kinds); k {
		case 0, 1:
			return nil, batch.FailedOutcome(testkit.ErrDown)
		case 2:
			take(n, false)
			return nil, batch.FailedOutcome(errors.New("the answer was lost"))
		case 3:
			k := c.rng.IntN(n + 1)
			for i := range k {
				if c.bad(ids[i]) {
					k = i
					break
				}
			}
			take(k, true)
			return nil, batch.Outcome{Open: batch.From(k), Why: testkit.ErrDown}
		case 4:
			return nil, batch.FailedOutcome(batch.Fatal(errors.New("bad credentials")))
		case 5:
			return nil, batch.FailedOutcome(batch.RetryAfter(testkit.ErrDown, time.Duration(c.rng.IntN(8000))*time.Millisecond))
		case 6:
			if n > 1 {
				return nil, batch.Outcome{Open: batch.All(), Why: errors.New("too large"), Advice: batch.Smaller}
			}
			return nil, batch.FailedOutcome(testkit.ErrDown)
		case 7, 8, 9:
			d, deaf, last := time.Duration(c.rng.Int64N(int64(custodyHang))), c.rng.IntN(2) == 0, c.rng.IntN(2) == 0
			if deaf {
				ctx = context.Background()
			}
			c.mu.Unlock()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			c.mu.Lock()
			if ctx.Err() != nil || last {
				return nil, batch.FailedOutcome(testkit.ErrDown)
			}
			return well()
		case 10:
			panic("destination is broken")
		default:
			clear(c.reported) // the Goexit loses the answers for other parts of the batch
			runtime.Goexit()
			return nil, batch.Outcome{}
		}
	}
}

// HandleError is the error handler of the Output. It accepts a random part of the records.
func (c *custody) HandleError(_ error, b *batch.Batch) batch.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := b.Len()
	k := 0
	switch c.rng.IntN(6) {
	case 0, 1:
		k = n
	case 2:
		k = c.rng.IntN(n + 1)
	}
	for i, r := range b.All() {
		if i < k {
			c.handled[c.idLocked("handler", r)] = true
		}
	}
	if k == n {
		return batch.Outcome{}
	}
	return batch.Outcome{Open: batch.From(k), Why: errors.New("handler has enough")}
}

// disk is the hook of the file system. It returns a random fault.
func (c *custody) disk(k vfs.Call) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.diskFaults == 0 || c.rng.Float64() >= c.diskFaults {
		return 0, nil
	}
	switch k.Op {
	case vfs.OpWrite:
		return c.rng.IntN(k.Len + 1), fmt.Errorf("%w: %w", diskqueue.ErrInjected, syscall.ENOSPC)
	case vfs.OpLock, vfs.OpMkdir, vfs.OpReadDir:
		return 0, nil
	}
	return 0, fmt.Errorf("%w: %w", diskqueue.ErrInjected, syscall.EIO)
}

// open starts a process with the files in c.mem and c.dir.
func (c *custody) open() {
	t, p := c.t, &process{}
	c.mu.Lock()
	c.alive, c.diskFaults, c.refuse = p, 0, 0
	rng := testkit.Rand(c.rng.Uint64()) // a separate source, because a Send of an earlier process may still run
	c.mu.Unlock()
	c.fs = vfs.NewFaulty(c.mem, c.disk)
	o := &spool.Options{SegmentBytes: (4 << 10) << rng.IntN(3), MaxBytes: 64 << 20}
	if c.what.quota {
		o.MaxBytes = 4*(4<<10) + rng.Int64N(32<<10)
	}
	if c.what.refuse {
		o.OverQuota = "refuse-new"
	}
	if rng.IntN(4) == 0 {
		o.Sync = "always"
	}
	var err error
	if c.s, err = diskqueue.OpenOn(c.fs, diskqueue.TestDir, o); err != nil {
		t.Fatal(err)
	}
	eo := deliver.Options{
		Retry:   &deliver.RetryOptions{MaxAge: -1}, // a test run takes days of simulated time
		Breaker: &deliver.BreakerOptions{Failures: 1 + rng.IntN(5), ProbeRecords: 1 + rng.IntN(10), Successes: 1 + rng.IntN(2)},
	}
	outputhook.SetSpill(&eo, c.s)
	if c.what.age {
		eo.Retry.MaxAge = time.Minute
	}
	if c.what.handler {
		eo.Handler, eo.PendingLimit = c, rng.IntN(20)
	}
	dest := testkit.NewSink(c.answer(p)).Send
	if c.async = nil; c.what.async {
		c.async = testkit.NewAsyncSink(c.answer(p), 1+rng.IntN(4), rng, 300*time.Millisecond)
		dest = c.async.Send
	}
	so := slab.Options{
		SlabBytes: 512 << rng.IntN(3), SlabCount: 2 + rng.IntN(4), MaxRecord: 12000,
		FlushInterval: 3 * time.Millisecond,
		WhenFull:      []slab.WhenFull{slab.DropOldest(), slab.DropNewest(), slab.BlockFor(10 * time.Millisecond)}[rng.IntN(3)],
	}
	if c.what.spills && rng.IntN(3) > 0 {
		so.WhenFull = slab.Spill()
	}
	if c.what.crash {
		so.Crash = &slab.Crash{Dir: c.dir, Required: true}
	}
	oo := &deliver.OutputOptions{Slab: so, Deliver: eo, OnError: func(batch.Event) {}}
	if c.o, err = deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, dest), oo); err != nil {
		t.Fatal(err)
	}
}

func (c *custody) write() {
	c.mu.Lock()
	id := c.nextID
	c.nextID++
	size := c.rng.IntN(120)
	switch c.rng.IntN(20) {
	case 0:
		size = 0
	case 1:
		size = c.rng.IntN(2500)
	case 2:
		size = c.rng.IntN(12500)
	}
	p := bytes.Repeat([]byte{byte('a' + id%26)}, size)
	copy(p, fmt.Sprintf("%d ", id))
	m := batch.Meta{Time: time.Now().UnixNano()&^(custodyIDs-1) | int64(id), Level: slog.Level(c.rng.IntN(4)*4 - 4)}
	c.records[id] = p
	c.mu.Unlock()
	err := c.o.WriteRecord(p, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.live[id] = true
	case errors.Is(err, slab.ErrDropped):
		c.refuse++
	default:
		c.failf("%v", err)
	}
}

// diskContent is the content of the files that a kill at this moment would leave.
type diskContent struct {
	mem     *vfs.Mem
	spool   []int // ids of the records in the spool, in order
	slabs   []int
	onDisk  map[int]bool
	records uint64
	twice   uint64 // number of records that are both in the spool and in slabs
}

// readDisk reads a copy of the files that a kill at this moment would leave.
func (c *custody) readDisk() diskContent {
	t := c.t
	all := mathrand.New(mathrand.NewSource(0)) // with keep probability 1, nothing is lost
	l := diskContent{mem: c.mem.CrashClone(all, 1), onDisk: map[int]bool{}}
	s, err := diskqueue.OpenOn(l.mem.CrashClone(all, 1), diskqueue.TestDir, &spool.Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	recovered := s.Stats().Recovered
	for _, b := range diskqueue.Each(t, s) {
		for _, r := range b.All() {
			l.spool = append(l.spool, c.idLocked("spool", r))
		}
	}
	if st := s.Stats(); st.Damages != 0 && !c.what.disk || uint64(len(l.spool)) != recovered {
		c.failf("the spool reports %d recovered records and contains %d: %+v", recovered, len(l.spool), st)
	}
	if c.what.crash {
		files, err := filepath.Glob(filepath.Join(c.dir, "*.slab"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			im, err := crashfile.Read(f)
			if err != nil {
				t.Fatal(err)
			}
			if im.Damaged+im.Unreturned+im.HeapOnly != 0 {
				c.failf("%s: %d damaged, %d unreturned, %d on the heap", f, im.Damaged, im.Unreturned, im.HeapOnly)
			}
			// The next process does not recover records from slabs if they are in the spool or were
			// acknowledged there.
			held := s.Held(im.UUID, 1, math.MaxUint64)
			for _, r := range im.Records {
				id := c.idLocked("slabs", r)
				if !slices.ContainsFunc(held, func(t layout.Tickets) bool { return t.First <= r.Ticket && r.Ticket <= t.Last }) {
					l.slabs = append(l.slabs, id)
				}
			}
		}
	}
	diskqueue.MustClose(t, s)
	l.records = uint64(len(l.spool) + len(l.slabs))
	for _, ids := range [][]int{l.spool, l.slabs} {
		for _, id := range ids {
			l.onDisk[id] = true
		}
	}
	l.twice = l.records - uint64(len(l.onDisk))
	return l
}

// check compares the counts in the account with the places at which the records actually are.
func (c *custody) check() diskContent {
	c.t.Helper()
	synctest.Wait()
	a := c.o.Account()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.o.Stats().Deliver.Account
	if err := errors.Join(a.Check(), e.Check(), c.s.Account().Check()); err != nil {
		c.failf("%v; outlet: %v", err, e)
	}
	l := c.readDisk()
	if c.fault == "" {
		c.settleLocked(a, l, false)
	}
	if c.async != nil {
		if f := c.async.Faults(); len(f) > 0 {
			c.failf("%q", f)
		}
	}
	c.endLocked("", a)
	return l
}

// endLocked ends the test if failf has stored a failure.
func (c *custody) endLocked(when string, a batch.Account) {
	c.t.Helper()
	if c.fault != "" {
		c.t.Fatalf("%s%s\n%v\nafter %s", when, c.fault, a, strings.Join(c.steps[max(0, len(c.steps)-40):], ", "))
	}
}

// settleLocked compares the number of missing records with the number of dropped records in the
// account a. If ended is true, the process has ended, so a may lack the last answers of the
// destination.
func (c *custody) settleLocked(a batch.Account, l diskContent, ended bool) {
	missing, unreported, disk, first := uint64(0), uint64(0), uint64(0), -1
	for id := range c.live {
		if !c.got[id] && !c.handled[id] && l.onDisk[id] {
			disk++
		}
		if c.got[id] && !c.reported[id] {
			unreported++
		}
		if !c.got[id] && !c.handled[id] && !l.onDisk[id] {
			if missing++; first < 0 || id < first {
				first = id
			}
		}
	}
	dropped := a.Dropped.Total() - c.refuse
	memory := a.Pending.Slab + a.Pending.Inflight
	if c.what.crash {
		memory = 0
	}
	// Dropped records stay on disk while other records of their batch are undelivered.
	sharing := disk - min(disk, a.Pending.Total()-memory)
	if missing > dropped+memory {
		c.failf("%d records are missing, the first is %d; %d were dropped, %d are in memory", missing, first, dropped, memory)
	}
	twice := c.twice + unreported + uint64(len(c.handled)) - min(uint64(len(c.handled)), a.Handled)
	if !ended && !c.what.disk && dropped > missing+twice+sharing {
		c.failf("%d records were dropped, %d are missing, %d are on disk in batches with open records; %d may exist twice", dropped, missing, sharing, twice)
	}
}

// kill kills the process and starts another one with the remaining files.
func (c *custody) kill(l diskContent) {
	dir := c.copyDir(c.dir)
	c.stop()
	c.mem, c.dir = l.mem, dir
	c.begin(l)
}

// stop ends the process. Its later calls of the file system have no effect.
func (c *custody) stop() {
	c.mu.Lock()
	c.alive.dead = true
	c.mu.Unlock()
	c.fs.Kill()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = c.o.Shutdown(ended)
	_ = c.s.Close()
}

// copyDir copies a directory of crash-safe slabs and returns the path of the copy.
func (c *custody) copyDir(dir string) string {
	if !c.what.crash {
		return dir
	}
	to, err := os.MkdirTemp(filepath.Dir(dir), "life")
	if err == nil {
		err = os.CopyFS(filepath.Join(to, "slabs"), os.DirFS(dir))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return filepath.Join(to, "slabs")
}

// begin starts the next process, which must recover the records of l.
func (c *custody) begin(l diskContent) {
	c.mu.Lock()
	for id := range c.live { // a record that is in no file was delivered, or dropped and counted
		if !l.onDisk[id] {
			delete(c.live, id)
		}
	}
	clear(c.got)
	clear(c.reported)
	clear(c.handled)
	c.twice = l.twice
	c.mu.Unlock()
	c.open()
	if a := c.o.Account(); a.Recovered != l.records {
		c.t.Fatalf("recovered %d records, want %d: %v", a.Recovered, l.records, a)
	}
}

// close closes the Output with a random time limit and starts the next process.
func (c *custody) close() {
	c.mu.Lock()
	c.diskFaults = 0
	patience := time.Duration(c.rng.Int64N(int64(custodyLate)))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	report, _ := c.o.Shutdown(ctx)
	c.mu.Lock()
	c.alive.closed = true
	c.mu.Unlock()
	err := errors.Join(c.s.Close(), report.Check())
	l := func() diskContent {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.failf("%v", err)
		}
		l := c.readDisk()
		c.settleLocked(report.Account, l, true)
		c.endLocked("closed: ", report.Account)
		return l
	}()
	c.dir = c.copyDir(c.dir) // a hanging Send may still use the files
	c.begin(l)
}

func (c *custody) step() string {
	c.mu.Lock()
	k, d := c.rng.IntN(100), time.Duration(c.rng.Int64N(int64(20*time.Millisecond)))
	if c.rng.IntN(5) == 0 {
		d *= 2000
	}
	c.mu.Unlock()
	switch {
	case k < 60:
		n := 1 + k%8*(1+k%3)
		for range n {
			c.write()
		}
		return fmt.Sprintf("write %d", n)
	case k < 85:
		time.Sleep(d)
		return fmt.Sprint("sleep ", d)
	case k < 91:
		c.mu.Lock()
		c.destFaults = []float64{0, 0.3, 0.9, 1}[c.rng.IntN(4)]
		c.mu.Unlock()
		return fmt.Sprint("destination faults ", c.destFaults)
	case k < 95 && c.what.disk:
		c.mu.Lock()
		c.diskFaults = []float64{0, 0, 0.2, 1}[c.rng.IntN(4)]
		c.mu.Unlock()
		return fmt.Sprint("disk ", c.diskFaults)
	case k < 96:
		if d < 2*time.Millisecond && c.what.closes {
			return "close"
		}
		if c.what.kills && d < 6*time.Millisecond {
			return "die"
		}
	case k < 97:
		if _, err := diskqueue.OpenOn(c.mem, diskqueue.TestDir, nil); !errors.Is(err, spool.ErrLocked) {
			c.t.Fatal(err)
		}
		return "open twice"
	}
	return "nothing"
}

func (c *custody) walk(steps int) {
	c.open()
	defer func() {
		c.stop()
		time.Sleep(custodyHang) // until a hanging Send has returned
	}()
	for range steps {
		c.steps = append(c.steps, "")
		what := &c.steps[len(c.steps)-1]
		*what = "…"
		if *what = c.step(); *what == "close" {
			c.close()
		}
		if l := c.check(); *what == "die" {
			c.kill(l)
			c.check()
		}
	}
	c.mu.Lock()
	c.destFaults, c.diskFaults = 0, 0
	c.mu.Unlock()
	time.Sleep(time.Hour)
	c.check()
	if err := c.o.Flush(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	if l := c.check(); c.o.Account().Pending.Total() != 0 || len(l.onDisk) != 0 && !c.what.disk {
		c.t.Fatalf("records are pending after all faults ended: %v; %d on disk", c.o.Account(), len(l.onDisk))
	}
	if c.what.order {
		last := map[int]int{}
		for i, id := range c.order {
			last[id] = i
		}
		before := -1
		for i, id := range c.order {
			if last[id] != i {
				continue
			}
			if id < before {
				c.t.Fatalf("the last copy of record %d arrived after that of %d", id, before)
			}
			before = id
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), custodyLate)
	defer cancel()
	if _, err := c.o.Shutdown(ctx); err != nil {
		c.t.Fatal(err)
	}
	diskqueue.MustClose(c.t, c.s)
}

// Regardless of failures of the destination and the disk, each record is delivered, handled,
// dropped and counted, or recovered by the next process. The account balances after each step.
func TestCustody(t *testing.T) {
	for _, k := range []custodyKind{
		{order: true, closes: true},
		{async: true, order: true}, // unanswered records are sent before later ones
		{async: true, spills: true, order: true},
		{async: true, closes: true, kills: true},
		{async: true, disk: true, closes: true, kills: true},
		{async: true, spills: true, disk: true, closes: true, kills: true},
		{async: true, spills: true, quota: true, disk: true, poison: true, handler: true, closes: true, kills: true},
		{crash: true, order: true, closes: true, kills: true},
		{crash: true, order: true, spills: true, closes: true, kills: true},
		{crash: true, disk: true, closes: true, kills: true},
		{crash: true, disk: true, spills: true, closes: true, kills: true},
		{crash: true, poison: true, handler: true, closes: true, kills: true},
		{crash: true, poison: true, age: true, spills: true, closes: true, kills: true},
		{crash: true, quota: true, closes: true, kills: true},
		{crash: true, quota: true, refuse: true, spills: true, closes: true, kills: true},
		{crash: true, quota: true, disk: true, spills: true, poison: true, handler: true, closes: true, kills: true},
	} {
		t.Run(k.String(), func(t *testing.T) {
			for seed := range testkit.Walks(t, 1) {
				dir := t.TempDir()
				bubble.Test(t, func(t *testing.T) {
					c := &custody{
						t: t, rng: testkit.Rand(seed), what: k, mem: vfs.NewMem(), dir: filepath.Join(dir, "slabs"),
						records: map[int][]byte{}, live: map[int]bool{}, got: map[int]bool{}, reported: map[int]bool{}, handled: map[int]bool{},
					}
					c.walk(120)
				})
			}
		})
	}
}
