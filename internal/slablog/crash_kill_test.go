//go:build linux || darwin

package slablog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// The child process of the kill tests writes from several goroutines into crash-safe slabs. It
// stores the number of calls that have returned in a second mapped file. Environment variables:
const (
	killGoroutines = 4
	killChain      = killGoroutines - 1 // two goroutines that write alternately, so that their records have a definite order
	childRecords   = 1000               // number of records per goroutine, in mode "ends"

	envChild = "FOREBAY_CRASH_CHILD" // directory
	envMode  = "FOREBAY_CRASH_MODE"
	envEnd   = "FOREBAY_CRASH_END"  // way in which the process ends, unless it is killed
	envLife  = "FOREBAY_CRASH_LIFE" // number of this process
	envSeed  = "FOREBAY_CRASH_SEED"
	envPoint = "FOREBAY_CRASH_POINT" // name:n; the process kills itself at visit n of the point

	envCgroup = "FOREBAY_CRASH_CGROUP" // files through which the process joins its control group
)

// installKillPoint makes the process kill itself at the given test point, a named step of the code
// (see points.go). It does so only in builds with test points.
var installKillPoint = func(string) {}

func init() {
	if dir := os.Getenv(envChild); dir != "" {
		installKillPoint(os.Getenv(envPoint))
		crashChild(dir, os.Getenv(envMode), os.Getenv(envEnd))
		os.Exit(0)
	}
}

func mapReturnedCalls(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func crashChild(dir, mode, end string) {
	is := func(what string) bool { return slices.Contains(strings.Split(mode, ","), what) }
	returnedCalls, err := mapReturnedCalls(filepath.Join(dir, "returned"))
	testkit.Must(err)
	out, err := os.OpenFile(filepath.Join(dir, "out."+os.Getenv(envLife)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(err)
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	testkit.Must(err)
	rng := rand.New(rand.NewPCG(seed, 1))
	o := &slab.Options{SlabBytes: 4096, SlabCount: 10, FlushInterval: time.Millisecond, WhenFull: slab.Block(), OnError: quiet,
		CloseTimeout: time.Minute,
		Crash:        &slab.Crash{Dir: filepath.Join(dir, "slabs"), Required: true}, MaxRecord: 10000}
	if is("evict") {
		o.WhenFull = slab.DropOldest()
	}
	if is("roomy") { // all records of one process fit
		o.SlabCount = 768
	}
	calls := 0
	c := consumerFor(writerFunc(func(p []byte) (int, error) {
		calls++
		switch {
		case is("hang") && (calls > 20 || is("roomy")): // a call may use many slabs
			select {}
		case is("slow"):
			time.Sleep(time.Millisecond)
		case is("idle"):
		case is("fail") && calls%3 == 0:
			return 0, errDown
		case rng.IntN(10) == 0:
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
		return out.Write(p)
	}))
	c.wait = time.Millisecond
	c.wants.Inline = seed%2 == 0
	accepts := 0
	c.refuse = func() bool { accepts++; return is("fail") && accepts%100 == 5 }
	w, err := newPump(c, o)
	testkit.Must(err)
	limit := ^uint64(0)
	if is("ends") || end != "" {
		limit = childRecords
	}
	var wg sync.WaitGroup
	for g := range killGoroutines {
		callers := 1
		var turn sync.Mutex
		if g == killChain {
			callers = 2
		}
		start := binary.LittleEndian.Uint64(returnedCalls[8*g:])
		next := start
		for c := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g+c*killGoroutines)))
				for {
					size, rare := r.IntN(100), 200
					if is("big") {
						rare = 5
					}
					if r.IntN(rare) == 0 {
						size = 5000
					}
					if is("idle") && r.IntN(50) == 0 {
						time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
					}
					turn.Lock()
					i := next
					if i-start >= limit {
						turn.Unlock()
						return
					}
					next++
					_, err := w.Write(killLine(g, i, size))
					if err == nil {
						binary.LittleEndian.PutUint64(returnedCalls[8*g:], i+1) // this call has returned
					}
					turn.Unlock()
					if err != nil {
						return
					}
					if is("ends") && i%500 == 499 {
						_ = w.Flush(context.Background())
					}
				}
			})
		}
	}
	wg.Wait()
	if end != "" {
		endChild(end)
	}
	testkit.Must(w.Close())
}

// endChild ends the process in one of the ways in testkit.Deaths, or by exceeding the memory limit
// of its control group.
func endChild(how string) {
	if how != "cgroup" {
		testkit.Die(how)
	}
	for _, f := range strings.Split(os.Getenv(envCgroup), ":") { // the parent has created the control group
		testkit.Must(os.WriteFile(f, []byte(strconv.Itoa(os.Getpid())), 0))
	}
	testkit.EatMemory()
}

// startChild starts the child process with the given number.
func startChild(t *testing.T, dir, mode string, life int, seed uint64, env ...string) *testkit.Child {
	t.Helper()
	c := testkit.NewChild("^$", append(env, envChild+"="+dir, envMode+"="+mode, envLife+"="+strconv.Itoa(life), envSeed+"="+strconv.FormatUint(seed, 10))...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// killOnce starts the child process and kills it. Usually it waits until the child has begun, and
// then for a time between the given numbers of milliseconds; sometimes it kills earlier.
func killOnce(t *testing.T, rng *rand.Rand, dir, mode string, life, from, to int) {
	t.Helper()
	c := startChild(t, dir, mode, life, rng.Uint64())
	if rng.IntN(8) > 0 {
		awaitChild(dir, life)
	}
	time.Sleep(time.Duration(1000*from+rng.IntN(1000*(to-from))) * time.Microsecond) // real time, because the process is a real one
	_ = c.Process.Kill()
	c.AwaitDeath(t, "")
}

// awaitChild waits until a call of the first process has returned, or until a later process is
// about to recover records. That may take long on a busy machine.
func awaitChild(dir string, life int) {
	for range 10_000 {
		if life > 0 {
			if _, err := os.Stat(filepath.Join(dir, "out."+strconv.Itoa(life))); err == nil {
				return
			}
		} else if b, err := os.ReadFile(filepath.Join(dir, "returned")); err == nil && len(bytes.Trim(b, "\x00")) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// recoverAll recovers the records in dir, and returns them with the account.
func recoverAll(t *testing.T, dir string) (string, batch.Account) {
	t.Helper()
	var m memory
	var mu sync.Mutex
	var events []batch.Event
	w := mustNew(t, &m, &slab.Options{SlabBytes: 4096, OnError: func(e batch.Event) {
		mu.Lock()
		events = append(events, e)
		mu.Unlock()
	}, Crash: &slab.Crash{Dir: filepath.Join(dir, "slabs"), Required: true}})
	closeNow(t, w)
	mu.Lock()
	defer mu.Unlock()
	for _, e := range events {
		if e.Op == "recover" {
			t.Errorf("recovery: %v", e.Err)
		}
	}
	a := w.Account()
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	if a.Recovered != a.Delivered {
		t.Errorf("recovered %v", a)
	}
	// A file that was incomplete at the kill is removed after a minute.
	if left, _ := filepath.Glob(filepath.Join(dir, "slabs", "*"+crashfile.Suffix)); len(left) > 0 {
		t.Errorf("files left after recovery: %v", left)
	}
	return m.String(), a
}

// checkKilled compares the records that arrived from each process, including the last recovery,
// with the calls that had returned. The record of each such call must have arrived at least once.
// No record may be torn or invented, and the records of a process must be in the order of the
// calls. The interrupted call may have stored its record; the next process repeats the call.
func checkKilled(t *testing.T, dir, recovered string, complete bool) {
	t.Helper()
	returnedCalls, err := os.ReadFile(filepath.Join(dir, "returned"))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for life := 0; ; life++ {
		out, err := os.ReadFile(filepath.Join(dir, "out."+strconv.Itoa(life)))
		if errors.Is(err, os.ErrNotExist) {
			if life > 4 {
				break
			}
			continue
		}
		texts = append(texts, string(out[:bytes.LastIndexByte(out, '\n')+1])) // the kill may have interrupted the last write
	}
	seen := make([]map[uint64]bool, killGoroutines)
	for g := range seen {
		seen[g] = map[uint64]bool{}
	}
	for life, text := range append(texts, recovered) {
		last := make([]uint64, killGoroutines)
		for l := range strings.Lines(text) {
			g, i, err := parseKillLine(l)
			if err != nil {
				t.Fatalf("life %d: %v", life, err)
			}
			if i < last[g] {
				t.Fatalf("life %d, goroutine %d: record %d after %d", life, g, i, last[g])
			}
			last[g] = i
			seen[g][i] = true
		}
	}
	for g := range killGoroutines {
		returned := binary.LittleEndian.Uint64(returnedCalls[8*g:])
		for i := range returned {
			if complete && !seen[g][i] {
				t.Fatalf("goroutine %d: record %d of %d, whose call had returned, is lost", g, i, returned)
			}
		}
		for i := range seen[g] {
			if i > returned { // only the interrupted call may follow
				t.Fatalf("goroutine %d: record %d was never written, %d returned", g, i, returned)
			}
		}
	}
}

// begun reports whether the child has made a call. If it has not, there is nothing to compare.
func begun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "out.0"))
	return err == nil
}

// places lists the file systems that the kill tests use in turn.
var places = []string{"disk", "tmpfs"}

// place returns a new directory in a file system of the given kind. If no tmpfs is available, the
// directory is on disk.
func place(t *testing.T, kind string) string {
	t.Helper()
	if kind != "tmpfs" {
		return t.TempDir()
	}
	dir, err := testkit.InMemory(t)
	if err != nil {
		t.Logf("SKIPPED: no tmpfs (%v), on disk instead", err)
		return t.TempDir()
	}
	return dir
}

func TestKill(t *testing.T) {
	modes := []string{"write", "fail", "hang", "hang,evict", "fail,evict"}
	n := testkit.Rounds(t, 6, 2000)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			records := uint64(0)
			rng := testkit.Rand(testkit.Seed(t))
			for i := range n {
				dir := place(t, places[i%len(places)])
				killOnce(t, rng, dir, mode, 0, 0, 50)
				if !begun(dir) {
					continue // the child was killed before its first call
				}
				got, a := recoverAll(t, dir)
				checkKilled(t, dir, got, !strings.Contains(mode, "evict"))
				if t.Failed() {
					return
				}
				records += a.Recovered
				os.RemoveAll(dir)
			}
			if records == 0 {
				t.Error("nothing was ever recovered")
			}
			t.Logf("%d kills, %d records recovered", n, records)
		})
	}
}

// A process is killed, and its successors are killed while they recover records and continue. No
// record is lost.
func TestKillDuringRecovery(t *testing.T) {
	recovered := uint64(0)
	rng := testkit.Rand(testkit.Seed(t))
	for i := range testkit.Rounds(t, 4, 1000) {
		dir := place(t, places[i%len(places)])
		killOnce(t, rng, dir, "hang", 0, 10, 35)
		for life := range 3 {
			killOnce(t, rng, dir, "slow", life+1, 0, 20)
		}
		if !begun(dir) {
			continue
		}
		got, a := recoverAll(t, dir)
		checkKilled(t, dir, got, true)
		recovered += a.Recovered
		if t.Failed() {
			return
		}
		os.RemoveAll(dir)
	}
	if recovered == 0 {
		t.Error("no record was left for the last process")
	}
}

// The process ends in each way in which Close does not run. No record is lost.
func TestExitPanicThrow(t *testing.T) {
	for end, says := range testkit.Deaths {
		for _, where := range places {
			t.Run(end+"/"+where, func(t *testing.T) {
				dir := place(t, where)
				startChild(t, dir, "hang,roomy", 0, testkit.Seed(t), envEnd+"="+end, testkit.RacesApart(t)).AwaitDeath(t, says)
				afterEnd(t, dir)
			})
		}
	}
}

// afterEnd compares the recovered records of a child that made all its calls before it ended.
func afterEnd(t *testing.T, dir string) {
	t.Helper()
	returnedCalls, err := os.ReadFile(filepath.Join(dir, "returned"))
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint64(returnedCalls); n != childRecords {
		t.Fatalf("the child had written %d records", n)
	}
	got, a := recoverAll(t, dir)
	checkKilled(t, dir, got, true)
	if a.Recovered < childRecords {
		t.Errorf("%d recovered", a.Recovered)
	}
}
