//go:build linux || darwin

package deliver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// Environment variables of the child process: its directory, and the plan that determines when it
// kills itself.
const (
	envOriginDir  = "FOREBAY_ORIGIN_DIR"
	envOriginPlan = "FOREBAY_ORIGIN_PLAN"
)

func init() {
	child = func() {
		if dir := os.Getenv(envOriginDir); dir != "" {
			fmt.Fprintln(os.Stderr, "child:", originChild(dir, os.Getenv(envOriginPlan)))
			os.Exit(9)
		}
		if dir := os.Getenv(envHeldDir); dir != "" {
			fmt.Fprintln(os.Stderr, "child:", heldChild(dir, os.Getenv(envHeldSeed)))
			os.Exit(9)
		}
	}
}

func kill() {
	p, _ := os.FindProcess(os.Getpid())
	_ = p.Kill()
	select {} // Kill may return before the process has ended
}

// An eventLog is a log file that survives the process. Each entry is one write:
//
//	start       a process has started
//	w N         the call that writes record N begins
//	W N         the call that writes record N has returned
//	d O T N     record N, with origin O and ticket T, has arrived at the destination
//	s O T N     record N is stored in the spool
//	a O T N     record N is acknowledged in the spool
type eventLog struct{ f *os.File }

func openEventLog(dir string) (eventLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, "eventLog"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return eventLog{f}, err
}

func (d eventLog) note(format string, args ...any) {
	if _, err := d.f.Write(fmt.Appendf(nil, format+"\n", args...)); err != nil {
		panic(err)
	}
}

func (d eventLog) batch(what string, b *batch.Batch) {
	var p []byte
	for _, r := range b.All() {
		p = fmt.Appendf(p, "%s %x %d %s\n", what, b.Origin, r.Ticket, bytes.Fields(r.Data)[0])
	}
	if _, err := d.f.Write(p); err != nil {
		panic(err)
	}
}

// A recordingSpool is a spool that logs its calls in an eventLog. The functions appended and onAck
// are called after each successful Append or Ack, with the number of that call, from 1. mayAppend
// is called before each Append, and its error makes the Append fail.
type recordingSpool struct {
	*diskqueue.Spool
	eventLog         eventLog
	out              map[uint64]*batch.Batch // copies of the batches that NextUpTo returned, by sequence number
	appends, acks    int
	mayAppend        func(n int) error
	appended, onAck  func(n int)
	lastSeq, ackedTo uint64
}

func (w *recordingSpool) Append(b *batch.Batch) (uint64, error) {
	if err := w.mayAppend(w.appends + 1); err != nil {
		return 0, err
	}
	seq, err := w.Spool.Append(b)
	if err == nil {
		w.eventLog.batch("s", b)
		w.appends++
		w.appended(w.appends)
	}
	return seq, err
}

func (w *recordingSpool) NextUpTo(bytes, records int) (*batch.Batch, uint64, error) {
	b, seq, err := w.Spool.NextUpTo(bytes, records)
	if err == nil {
		w.out[seq] = copyOf(b)
		w.lastSeq = seq
	}
	return b, seq, err
}

func (w *recordingSpool) Ack(seq uint64) error {
	err := w.Spool.Ack(seq)
	if err != nil {
		return err
	}
	for ; w.ackedTo < seq; w.ackedTo++ {
		if b := w.out[w.ackedTo+1]; b != nil {
			w.eventLog.batch("a", b)
			delete(w.out, w.ackedTo+1)
		}
	}
	w.acks++
	w.onAck(w.acks)
	return nil
}

// openRecordingSpool opens the spool in dir and logs its calls in d.
func openRecordingSpool(dir string, d eventLog, segment int64) (*recordingSpool, error) {
	s, err := diskqueue.Open(filepath.Join(dir, "spool"), &spool.Options{SegmentBytes: segment, OnEvent: func(batch.Event) {}})
	if err != nil {
		return nil, err
	}
	return &recordingSpool{
		Spool: s, eventLog: d, out: map[uint64]*batch.Batch{}, mayAppend: func(int) error { return nil },
		appended: func(int) {}, onAck: func(int) {},
	}, nil
}

var errOriginDown = errors.New("down")

// originOutput returns an Output with crash-safe slabs. Its destination logs each delivered batch
// in the eventLog. While down returns true, every send fails.
func originOutput(dir string, d eventLog, w *recordingSpool, down func() bool, window, records, slabBytes int, flush time.Duration) (*Output, error) {
	dest := SendFunc(Traits{Window: window, Limits: batch.Limits{Records: records}}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		if down() {
			return batch.FailedOutcome(errOriginDown)
		}
		d.batch("d", b)
		return batch.Outcome{}
	})
	return NewOutput(dest, &OutputOptions{
		Slab:     slab.Options{SlabBytes: slabBytes, SlabCount: 8, WhenFull: slab.Block(), FlushInterval: flush},
		CrashDir: filepath.Join(dir, "slabs"),
		Deliver: Options{
			spill: w, Retry: &RetryOptions{Min: 100 * time.Microsecond, Max: time.Millisecond},
			Breaker: &BreakerOptions{Failures: 1, OpenMin: time.Millisecond, OpenMax: 2 * time.Millisecond},
		},
		OnError: func(batch.Event) {},
	})
}

// originChild writes records until the process is killed.
func originChild(dir, plan string) error {
	d, err := openEventLog(dir)
	if err != nil {
		return err
	}
	d.note("start")
	if seed, ok := strings.CutPrefix(plan, "walk "); ok {
		return walkChild(dir, d, seed)
	}
	w, err := openRecordingSpool(dir, d, 0)
	if err != nil {
		return err
	}
	var up atomic.Bool
	switch plan {
	case "append": // the kill comes after Append, before the crash-safe file records it
		w.appended = func(int) { kill() }
	case "ack": // the same, after the appended records were delivered
		w.mayAppend = func(n int) error {
			if n > 1 {
				return errOriginDown
			}
			return nil
		}
		w.appended = func(int) { up.Store(true) }
		w.onAck = func(int) { kill() }
	}
	out, err := originOutput(dir, d, w, func() bool { return !up.Load() }, 2, 5, 4096, time.Minute) // because of the long flush interval each batch has five records, even on slow machines
	if err != nil {
		return err
	}
	for n := range 10 {
		d.note("w %d", n)
		if _, err := fmt.Fprintf(out, "%d\n", n); err != nil {
			return err
		}
		d.note("W %d", n)
	}
	_ = out.Flush(context.Background()) // fails if the circuit is open
	select {}
}

// walkChild writes records until it is killed. The seed determines everything else. The process
// kills itself after a random number of successful Append and Ack calls.
func walkChild(dir string, d eventLog, seed string) error {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	r := testkit.Rand(n)
	w, err := openRecordingSpool(dir, d, 4<<10)
	if err != nil {
		return err
	}
	refuse := r.IntN(8) == 0 // rarely, because each refused Append costs a second
	fuse := 1 + r.IntN(60)
	if refuse {
		fuse = 1 + r.IntN(6)
	}
	burn := func(int) {
		if fuse--; fuse == 0 {
			kill()
		}
	}
	quick := testkit.Rand(r.Uint64()) // used by the outlet's goroutines only, one at a time
	w.appended, w.onAck = burn, burn
	w.mayAppend = func(int) error {
		if refuse && quick.IntN(4) == 0 {
			return errOriginDown
		}
		return nil
	}
	wave := testkit.Rand(r.Uint64())
	left, isDown := 0, false
	down := func() bool { // called by the session's goroutine only
		if left--; left < 0 {
			left, isDown = wave.IntN(20), !isDown
		}
		return isDown
	}
	out, err := originOutput(dir, d, w, down, 1+r.IntN(4), 1+r.IntN(20), 512<<r.IntN(4), time.Millisecond)
	if err != nil {
		return err
	}
	for n := r.IntN(1 << 30); ; n++ {
		d.note("w %d", n)
		if _, err := fmt.Fprintf(out, "%d %s\n", n, strings.Repeat("x", r.IntN(300))); err != nil {
			return err
		}
		d.note("W %d", n)
	}
}

// runOriginChild starts a child process and waits until it is killed.
func runOriginChild(t *testing.T, dir, plan string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envOriginDir+"="+dir, envOriginPlan+"="+plan)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !stuck.Stop() {
		t.Fatalf("%s: the process has not killed itself", plan)
	}
	if err == nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v %s", plan, err, stderr.String())
	}
}

// deliverRest delivers the records that earlier processes left on disk, and returns the account.
func deliverRest(t *testing.T, dir string) batch.Account {
	t.Helper()
	d, err := openEventLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.f.Close()
	d.note("start")
	w, err := openRecordingSpool(dir, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := originOutput(dir, d, w, func() bool { return false }, 2, 5, 4096, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	a := out.Account()
	if err := errors.Join(a.Check(), out.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	return a
}

// An eventSummary is the evaluation of an eventLog.
type eventSummary struct {
	arrived       map[string]int // number of copies of each record, by origin and ticket
	inLastProcess int            // number of copies that arrived in the last process
	lost          []string       // records that were accepted and never arrived
	wrong         []string
}

func readEventLog(t *testing.T, dir string) (c eventSummary) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "eventLog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.arrived = map[string]int{}
	wrong := func(format string, args ...any) { c.wrong = append(c.wrong, fmt.Sprintf(format, args...)) }
	process := 0
	named, content := map[string]string{}, map[string]string{} // record → name and name → record
	inProcess := map[string]int{}                              // the last process in which each record arrived
	stored, acked := map[string]int{}, map[string]int{}        // the process in which each record was stored or acknowledged
	returned := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		switch w[0] {
		case "start":
			process++
			c.inLastProcess = 0
			continue
		case "w":
			continue
		case "W":
			returned[w[1]] = true
			continue
		}
		name, n := w[1]+" "+w[2], w[3]
		if id, err := hex.DecodeString(w[1]); err != nil || [16]byte(id) == [16]byte{} {
			wrong("record %s has origin %s", n, w[1])
		}
		if old, ok := named[n]; ok && old != name {
			wrong("record %s is %s, then %s", n, old, name)
		}
		if old, ok := content[name]; ok && old != n {
			wrong("%s is record %s, then %s", name, old, n)
		}
		named[n], content[name] = name, n
		switch w[0] {
		case "d":
			c.arrived[name]++
			c.inLastProcess++
			if inProcess[name] == process {
				wrong("record %s (%s) arrives twice in process %d; it went to the spool in process %d", n, name, process, stored[name])
			}
			inProcess[name] = process
			if l := acked[name]; l > 0 {
				wrong("record %s (%s) arrives in process %d, and the spool was done with it in process %d", n, name, process, l)
			}
		case "s":
			if l := stored[name]; l > 0 {
				wrong("record %s (%s) goes to the spool in process %d, and in process %d", n, name, l, process)
			}
			stored[name] = process
		case "a":
			acked[name] = process
		}
	}
	for n := range returned {
		if c.arrived[named[n]] == 0 {
			c.lost = append(c.lost, n)
		}
	}
	return c
}

// A process is killed after records were appended to the spool, and before their crash-safe file
// says so. The records are then on disk twice. They are delivered once, even if the spool had
// delivered them before the kill, and the next process counts them once in its account.
func TestKilledBetweenSpoolAndCrashFile(t *testing.T) {
	for plan, left := range map[string]uint64{"append": 10, "ack": 5} {
		t.Run(plan, func(t *testing.T) {
			dir := t.TempDir()
			runOriginChild(t, dir, plan)
			a := deliverRest(t, dir)
			if want := (batch.Account{Recovered: left, Delivered: left}); a != want {
				t.Errorf("the account is %s, want %s", a, want)
			}
			c := readEventLog(t, dir)
			if len(c.arrived) != 10 || c.inLastProcess != int(left) || len(c.lost) > 0 || len(c.wrong) > 0 {
				t.Errorf("%d records arrived, %d copies in the last process; lost: %v; wrong:\n%s", len(c.arrived), c.inLastProcess, c.lost, strings.Join(c.wrong, "\n"))
			}
		})
	}
}

// If processes with crash-safe slabs and a spool are killed at random times, no record is lost,
// stored in the spool twice, or delivered twice by one process. A record that was acknowledged in
// the spool is not delivered again.
func TestKilledWithSpoolAtRandom(t *testing.T) {
	for seed := range testkit.Walks(t, 12) {
		r := testkit.Rand(seed)
		dir := t.TempDir()
		for range 1 + r.IntN(5) {
			runOriginChild(t, dir, "walk "+strconv.FormatUint(r.Uint64(), 10))
		}
		a := deliverRest(t, dir)
		c := readEventLog(t, dir)
		if n := uint64(c.inLastProcess); a.Recovered != n || a.Delivered != n {
			c.wrong = append(c.wrong, fmt.Sprintf("the last account is %s, and %d copies arrived", a, n))
		}
		if len(c.lost) > 0 || len(c.wrong) > 0 {
			t.Fatalf("lost %v; wrong:\n%s", c.lost, strings.Join(c.wrong, "\n"))
		}
	}
}
