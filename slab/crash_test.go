//go:build linux || darwin

package slab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
)

// The child of the kill tests: it logs from several goroutines into crash-safe
// slabs and notes in a second mapping how many of its calls have returned.
const (
	killGoroutines = 4
	envChild       = "FOREBAY_CRASH_CHILD" // directory
	envMode        = "FOREBAY_CRASH_MODE"
	envEnd         = "FOREBAY_CRASH_END"
)

func init() {
	if dir := os.Getenv(envChild); dir != "" {
		crashChild(dir, os.Getenv(envMode))
		os.Exit(0)
	}
}

func mapWitness(path string) ([]byte, error) {
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

func crashChild(dir, mode string) {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(9)
		}
	}
	witness, err := mapWitness(filepath.Join(dir, "witness"))
	die(err)
	out, err := os.OpenFile(filepath.Join(dir, "out"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	die(err)
	// The kill before can have cut its last write(2) short, between two pages.
	text, err := io.ReadAll(out)
	die(err)
	die(out.Truncate(int64(bytes.LastIndexByte(text, '\n') + 1)))
	pid := os.Getpid()
	rng := rand.New(rand.NewPCG(uint64(pid), 1))
	o := &Options{SlabBytes: 4096, SlabCount: 8, FlushInterval: time.Millisecond, WhenFull: Block(), OnError: quiet,
		Crash: &Crash{Dir: filepath.Join(dir, "slabs"), Required: true}, MaxRecord: 10000, OversizeBytes: 100000}
	if strings.Contains(mode, "evict") {
		o.WhenFull = DropOldest()
	}
	calls := 0
	w, err := New(writerFunc(func(p []byte) (int, error) {
		if calls++; strings.Contains(mode, "hang") && calls > 20 {
			select {}
		}
		if rng.IntN(10) == 0 {
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
		return out.Write(p)
	}), o)
	die(err)
	var wg sync.WaitGroup
	for g := range killGoroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(pid), uint64(g)))
			start := binary.LittleEndian.Uint64(witness[8*g:])
			for i := start; ; i++ {
				size := r.IntN(100)
				if r.IntN(200) == 0 && !strings.Contains(mode, "evict") {
					size = 5000
				}
				if _, err := w.Write(killLine(g, i, size)); err != nil {
					return
				}
				binary.LittleEndian.PutUint64(witness[8*g:], i+1) // this call returned
				if end := os.Getenv(envEnd); end != "" && i == start+5000 {
					if end == "panic" {
						panic("on purpose")
					}
					os.Exit(3)
				}
			}
		})
	}
	wg.Wait()
}

// killLine is a record that shows when it is torn or invented: its end repeats
// its beginning.
func killLine(g int, i uint64, pad int) []byte {
	return fmt.Appendf(nil, "%d %d %s %d %d\n", g, i, strings.Repeat("x", pad), g, i)
}

func parseKillLine(l string) (g int, i uint64, err error) {
	f := strings.Fields(l)
	if !strings.HasSuffix(l, "\n") || len(f) < 4 || f[0] != f[len(f)-2] || f[1] != f[len(f)-1] {
		return 0, 0, fmt.Errorf("torn or invented record %.80q", l)
	}
	if g, err = strconv.Atoi(f[0]); err == nil {
		i, err = strconv.ParseUint(f[1], 10, 64)
	}
	return g, i, err
}

// killOnce starts the child, kills it after a while, and returns.
func killOnce(t *testing.T, dir, mode string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envChild+"="+dir, envMode+"="+mode)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // real time: a real process is killed
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || strings.Contains(stderr.String(), "child:") {
		t.Fatalf("child ended by itself: %v %s", err, stderr.String())
	}
}

// recoverAll adopts what is in dir and returns what came out, with the account.
func recoverAll(t *testing.T, dir string) (string, batch.Account) {
	t.Helper()
	var m memory
	var mu sync.Mutex
	var events []batch.Event
	w := mustNew(t, &m, &Options{SlabBytes: 4096, OnError: func(e batch.Event) {
		mu.Lock()
		events = append(events, e)
		mu.Unlock()
	}, Crash: &Crash{Dir: filepath.Join(dir, "slabs"), Required: true}})
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
	return m.String(), a
}

// checkKilled compares what arrived, before the kill and by recovery, with what
// had been returned from.
func checkKilled(t *testing.T, dir, recovered string, complete bool) {
	t.Helper()
	witness, err := os.ReadFile(filepath.Join(dir, "witness"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.LastIndexByte(before, '\n'); i >= 0 {
		before = before[:i+1] // the kill can cut the last write(2) short
	}
	seen := make([]map[uint64]bool, killGoroutines)
	for g := range seen {
		seen[g] = map[uint64]bool{}
	}
	for part, text := range []string{string(before), recovered} {
		last := make([]int64, killGoroutines)
		for g := range last {
			last[g] = -1
		}
		for l := range strings.Lines(text) {
			g, i, err := parseKillLine(l)
			if err != nil {
				t.Fatal(err)
			}
			if int64(i) <= last[g] && part == 1 {
				t.Fatalf("goroutine %d: record %d after %d", g, i, last[g])
			}
			last[g] = int64(i)
			seen[g][i] = true
		}
	}
	for g := range killGoroutines {
		returned := binary.LittleEndian.Uint64(witness[8*g:])
		for i := range returned {
			if complete && !seen[g][i] {
				t.Fatalf("goroutine %d: record %d of %d, whose call had returned, is lost", g, i, returned)
			}
		}
		for i := range seen[g] {
			if i > returned { // at most the one call that was under way
				t.Fatalf("goroutine %d: record %d was never written, %d returned", g, i, returned)
			}
		}
	}
}

func kills(short int) int {
	if os.Getenv("FOREBAY_TORTURE") != "" {
		return 10000
	}
	return short
}

func TestKill(t *testing.T) {
	for _, mode := range []string{"write", "hang", "hang,evict"} {
		t.Run(mode, func(t *testing.T) {
			for round := range kills(30) / 3 {
				dir := t.TempDir()
				killOnce(t, dir, mode, time.Duration(20+rand.IntN(60))*time.Millisecond)
				if _, err := os.Stat(filepath.Join(dir, "out")); err != nil {
					continue // killed before it began
				}
				got, a := recoverAll(t, dir)
				checkKilled(t, dir, got, mode != "hang,evict")
				if a.Recovered != a.Delivered {
					t.Errorf("round %d: %v", round, a)
				}
				// A file that was being made when the kill came is removed a minute later.
				if left, _ := filepath.Glob(filepath.Join(dir, "slabs", "*"+crashSuffix)); len(left) > 0 {
					t.Errorf("files left after recovery: %v", left)
				}
			}
		})
	}
}

// Killed, and killed again while it recovers and goes on.
func TestKillDuringRecovery(t *testing.T) {
	for range max(1, kills(30)/10) {
		dir := t.TempDir()
		for range 4 {
			killOnce(t, dir, "write", time.Duration(15+rand.IntN(40))*time.Millisecond)
		}
		if _, err := os.Stat(filepath.Join(dir, "out")); err != nil {
			continue
		}
		got, _ := recoverAll(t, dir)
		// A record that the second process recovered stands behind newer ones of
		// the first only as a duplicate; completeness is what counts here.
		checkKilled(t, dir, got, true)
	}
}

func TestExitAndPanic(t *testing.T) {
	for _, end := range []string{"exit", "panic"} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), envChild+"="+dir, envMode+"=hang,evict", envEnd+"="+end)
		if err := cmd.Run(); err == nil {
			t.Fatalf("%s: child ended well", end)
		}
		got, a := recoverAll(t, dir)
		checkKilled(t, dir, got, false)
		if a.Recovered == 0 {
			t.Errorf("%s: nothing recovered", end)
		}
	}
}

func crashWriter(t *testing.T, dir string, dst io.Writer, o Options) *Writer {
	t.Helper()
	o.Crash = &Crash{Dir: dir, Required: true}
	return mustNew(t, dst, &o)
}

func TestCrashFileIsRemovedWhenAllIsDelivered(t *testing.T) {
	dir := t.TempDir()
	var m memory
	w := crashWriter(t, dir, &m, Options{SlabBytes: 1024, WhenFull: Block()})
	const n = 5000
	for i := range n {
		mustWrite(t, w, i, 60+i%7*200)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, n)
	checkAccount(t, w, n, n, batch.Drops{})
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What Close cannot deliver stays in the file and is the next process's.
func TestUndeliveredRecordsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		g := newGate()
		w := crashWriter(t, dir, g, Options{SlabBytes: 1024})
		for i := range 20 {
			mustWrite(t, w, i, 100)
		}
		mustWrite(t, w, 20, 3000) // larger than a slab
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err == nil || !strings.Contains(err.Error(), "kept in") || r.Dropped.Total() != 0 || r.Pending.Total() != 21 || r.Check() != nil {
			t.Errorf("report %v, %v", r, err)
		}
		g.open()
		synctest.Wait()
		got, a := recoverInto(t, dir)
		wantSequence(t, numbers(t, got), 0, 21)
		if a.Recovered != 21 || a.Delivered != 21 {
			t.Errorf("account %v", a)
		}
	})
}

func recoverInto(t *testing.T, dir string) (string, batch.Account) {
	var m memory
	w := crashWriter(t, dir, &m, Options{})
	closeNow(t, w)
	return m.String(), w.Account()
}

func TestRecoveredRecordsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n := 0
		for range 3 { // three processes die in a row
			g := newGate()
			w := crashWriter(t, dir, g, Options{})
			for range 5 {
				mustWrite(t, w, n, 50)
				n++
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w.Shutdown(ctx)
			cancel()
			g.open()
			synctest.Wait()
		}
		var m memory
		w := crashWriter(t, dir, &m, Options{})
		mustWrite(t, w, n, 50)
		closeNow(t, w)
		wantSequence(t, numbers(t, m.String()), 0, n+1)
		if a := w.Account(); a.Recovered != 15 || a.Accepted != 1 || a.Check() != nil {
			t.Errorf("account %v", a)
		}
	})
}

func TestLiveFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	g := newGate()
	a := crashWriter(t, dir, g, Options{})
	mustWrite(t, a, 0, 50)
	<-g.entered
	got, acc := recoverInto(t, dir)
	if got != "" || acc.Recovered != 0 {
		t.Errorf("took %q from a living process", got)
	}
	g.open()
	closeNow(t, a)
	wantSequence(t, numbers(t, g.String()), 0, 1)
}

func TestDamagedFilesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a.slab": "short", "b.slab": strings.Repeat("\x00", 200000), "c.slab": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var errs []error
	w := mustNew(t, io.Discard, &Options{Crash: CrashSafe(dir), OnError: func(e batch.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Op == "recover" {
			errs = append(errs, e.Err)
		}
	}})
	mustWrite(t, w, 0, 10)
	closeNow(t, w)
	if err := w.events.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(errs) != 3 || !errors.Is(errs[0], ErrDamaged) {
		t.Errorf("reported %v, want three damaged files", errs)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "*"+badSuffix)); len(aside) != 3 {
		t.Errorf("set aside %v", aside)
	}
}

func TestNoPlaceForTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(file, "dir")
	if _, err := New(io.Discard, &Options{Crash: &Crash{Dir: bad, Required: true}}); err == nil {
		t.Error("Required, and no error")
	}
	var m memory
	w := mustNew(t, &m, &Options{Crash: CrashSafe(bad)})
	mustWrite(t, w, 0, 10)
	if s := w.Stats(); s.CrashUnsafe == "" {
		t.Error("Stats does not say that the slabs are on the heap")
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, 1)
}

// Somebody truncates the file under the mapping: the process lives, the slabs
// move to the heap, and every record is delivered or counted.
func TestTruncatedUnderTheMapping(t *testing.T) {
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprint("hung=", hung), func(t *testing.T) {
			dir := t.TempDir()
			g := newGate()
			if !hung {
				g.open()
			}
			w := crashWriter(t, dir, g, Options{SlabBytes: 4096, SlabCount: 8, FlushInterval: time.Millisecond, RetryMin: time.Millisecond, RetryMax: time.Millisecond})
			for i := range 100 {
				mustWrite(t, w, i, 100)
			}
			if err := os.Truncate(w.crash.path, 0); err != nil {
				t.Fatal(err)
			}
			const n = 2000
			for i := 100; i < n; i++ {
				w.Write(line(i, 100))
			}
			_ = w.Stats()
			g.open()
			closeNow(t, w)
			a := w.Account()
			if err := a.Check(); err != nil || a.Accepted != n || a.Pending.Total() != 0 {
				t.Errorf("%v: %v", err, a)
			}
			if s := w.Stats(); s.CrashUnsafe == "" {
				t.Error("the gauge is not raised")
			}
			if !hung && a.Delivered < n-200 {
				t.Errorf("only %d delivered: %v", a.Delivered, a)
			}
		})
	}
}

func TestCrashStreamsAreTranslated(t *testing.T) {
	dir := t.TempDir()
	first := &dictSink{names: []string{"", "app.a", "app.b"}, hang: make(chan struct{})}
	w := mustSink(t, first, &Options{Crash: &Crash{Dir: dir, Required: true}})
	w.WriteRecord([]byte("a\n"), batch.Meta{Stream: 1})
	w.WriteRecord([]byte("b\n"), batch.Meta{Stream: 2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Shutdown(ctx)
	close(first.hang)
	<-w.done
	second := &dictSink{names: []string{"", "other", "app.b", "app.a"}}
	w = mustSink(t, second, &Options{Crash: &Crash{Dir: dir, Required: true}})
	closeNow(t, w)
	if got := strings.Join(second.got, ","); got != "app.a:a\n,app.b:b\n" {
		t.Errorf("recovered %q", got)
	}
}

type dictSink struct {
	mu    sync.Mutex
	names []string
	got   []string
	hang  chan struct{}
}

func (d *dictSink) Send(_ context.Context, b *batch.Batch) error {
	if d.hang != nil {
		<-d.hang
	}
	for _, r := range b.All() {
		d.got = append(d.got, d.names[r.Stream]+":"+string(r.Data))
	}
	return nil
}

func (d *dictSink) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(id) >= len(d.names) {
		return dst, false
	}
	return append(dst, d.names[id]...), true
}

func (d *dictSink) Stream(def []byte) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, n := range d.names {
		if n == string(def) {
			return uint32(i)
		}
	}
	return 0
}

func TestCrashWriteAllocatesNothing(t *testing.T) {
	w := crashWriter(t, t.TempDir(), io.Discard, Options{})
	defer closeNow(t, w)
	p := make([]byte, 200)
	if n := testing.AllocsPerRun(10000, func() { w.Write(p) }); n != 0 {
		t.Errorf("a crash-safe write allocates %v times", n)
	}
}

// crashSample returns the bytes of a crash-safe file with records in it.
func crashSample(t testing.TB) []byte {
	dir := t.TempDir()
	g := newGate()
	w, err := New(g, &Options{SlabBytes: 512, SlabCount: 4, WhenFull: DropOldest(), OnError: quiet, Crash: &Crash{Dir: dir, Required: true}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		w.Write(killLine(0, i, int(i)))
	}
	data, err := os.ReadFile(w.crash.path)
	if err != nil {
		t.Fatal(err)
	}
	g.open()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

// Whatever the file holds: no panic, nothing beyond its bounds, tickets rising,
// nothing that is settled. The fuzzer writes patches over a sound file (each five
// bytes: where, what) rather than 70 KB of its own.
func FuzzParseImage(f *testing.F) {
	sample := crashSample(f)
	slabs := uint32(len(sample) - 4*512)
	f.Add([]byte{}, []byte{}, uint32(0), true)
	f.Add([]byte{0, 0, 0, 0, 1}, []byte("big"), uint32(1), false)
	f.Add(binary.LittleEndian.AppendUint32(nil, slabs+511-31), []byte{}, uint32(3), true)
	f.Add(append(binary.LittleEndian.AppendUint32(nil, 60), 255), []byte{}, uint32(0), true)
	f.Add(append(binary.LittleEndian.AppendUint32(nil, crashHeadsOff+8), 9), appendBigFrame(nil, []byte("x"), batch.Slot{Ticket: 99}), uint32(0), true)
	f.Fuzz(func(t *testing.T, patch, big []byte, cut uint32, sum bool) {
		data := bytes.Clone(sample)
		for ; len(patch) >= 5; patch = patch[5:] {
			at := binary.LittleEndian.Uint32(patch)
			if at >= 1<<24 { // most patches should hit the slabs
				at = slabs + at%2048
			}
			data[int(at)%len(data)] ^= patch[4]
		}
		if sum { // let it past the checksum
			binary.LittleEndian.PutUint32(data[12:], crc32.Checksum(data[16:crashPage], castagnoli))
		}
		data = data[:len(data)-int(cut)%len(data)]
		im, err := parseImage(data)
		if err != nil {
			return
		}
		im.parseBig(big)
		im.finish()
		prev := im.Acked
		total := 0
		for _, r := range im.Records {
			if r.Ticket <= prev {
				t.Fatalf("ticket %d after %d", r.Ticket, prev)
			}
			prev = r.Ticket
			total += len(r.Data)
		}
		if total > 2*(len(data)+len(big)) {
			t.Fatalf("%d bytes of records from %d", total, len(data)+len(big))
		}
	})
}
