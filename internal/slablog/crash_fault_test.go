//go:build linux || darwin

package slablog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

func truncate(t *testing.T, w *pump) {
	t.Helper()
	if err := os.Truncate(w.store.crash.file.Path(), 0); err != nil {
		t.Fatal(err)
	}
}

// Without a guard, a store into a truncated mapping ends the process. This shows that the other
// tests in this file test the guard.
func TestStoreWithoutGuardEndsTheProcess(t *testing.T) {
	if dir := os.Getenv("FOREBAY_SIGBUS"); dir != "" {
		w := crashWriter(t, dir, &memory{}, slab.Options{FlushInterval: -1})
		mustWrite(t, w, 0, 50)
		truncate(t, w)
		w.store.lock()
		w.front.cur.store([]byte("x"), batch.Meta{}, 2)
		t.Fatal("the process did not end")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreWithoutGuardEndsTheProcess$")
	cmd.Env = append(os.Environ(), "FOREBAY_SIGBUS="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SIGBUS") && !strings.Contains(string(out), "unexpected fault address") {
		t.Errorf("%v\n%.500s", err, out)
	}
}

// A caller's store faults because the file was truncated after its length was last checked.
func TestTruncatedStoreFaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var m memory
		w := crashWriter(t, t.TempDir(), &m, slab.Options{FlushInterval: -1})
		for i := range 10 {
			mustWrite(t, w, i, 100)
		}
		truncate(t, w)
		for i := 10; i < 20; i++ {
			mustWrite(t, w, i, 100)
		}
		if s := w.Stats(); s.CrashUnsafe == "" {
			t.Error("the store was not noticed: CrashUnsafe is not set")
		}
		closeNow(t, w)
		a := w.Account()
		// Records in the truncated file are lost and counted. Later records are delivered.
		wantSequence(t, numbers(t, m.String()), 10, 20)
		if a.Check() != nil || a.Accepted != 20 || a.Dropped != drops(batch.Corrupt, 10) {
			t.Errorf("account %v", a)
		}
	})
}

// flushGate is a gate whose Flush hangs while it is closed.
type flushGate struct{ *gate }

func (g flushGate) Write(p []byte) (int, error) { return g.memory.Write(p) }

func (g flushGate) Flush() error {
	g.entered <- struct{}{}
	<-g.opened
	return nil
}

// The file is truncated while writes wait for a slab. All unread records are lost, their slabs
// become free, and the waiting writes continue.
func TestTruncatedWhileWritesWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := crashWriter(t, t.TempDir(), flushGate{g}, slab.Options{SlabBytes: 1024, SlabCount: 2, WhenFull: slab.Block(), FlushInterval: -1})
		go w.Flush(t.Context())
		<-g.entered
		var done sync.WaitGroup
		for i := range 4 { // the first two records fill the slabs
			done.Go(func() { mustWrite(t, w, i, 900) })
		}
		synctest.Wait()
		if n := w.Stats().Waiting; n != 2 {
			t.Fatalf("%d writes wait", n)
		}
		truncate(t, w)
		g.open()
		done.Wait()
		closeNow(t, w)
		if a := w.Account(); a.Check() != nil || a.Delivered != 2 || a.Dropped != drops(batch.Corrupt, 2) {
			t.Errorf("account %v", a)
		}
	})
}

// The file is truncated while the destination hangs. The destination is not affected, because it
// reads a copy.
func TestTruncatedUnderTheDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		inMapping := false
		var w *pump
		w = crashWriter(t, t.TempDir(), writerFunc(func(p []byte) (int, error) {
			inMapping = inMapping || within(w.store.crash.file.Bytes(), p)
			return g.Write(p)
		}), slab.Options{FlushInterval: time.Millisecond})
		for i := range 10 {
			mustWrite(t, w, i, 1000)
		}
		<-g.entered
		truncate(t, w)
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, w, 10, 100)
		closeNow(t, w)
		wantSequence(t, numbers(t, g.String()), 0, 11)
		checkAccount(t, w, 11, 11, batch.Drops{})
		if inMapping {
			t.Error("the destination reads the mapping")
		}
		if w.Stats().CrashUnsafe == "" {
			t.Error("CrashUnsafe is not set")
		}
	})
}

// The file is truncated and extended again after the destination has received a part of a record.
// The rest of the record comes from the copy.
func TestTornRecordOfAnExtendedFile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var w *pump
		var m memory
		m.act = func(call int, p []byte) (int, error) {
			if call > 0 {
				return -1, nil
			}
			slabs := int64(len(w.store.crash.file.Bytes()) - 2*layout.DefaultSlabBytes)
			for _, size := range []int64{slabs, int64(len(w.store.crash.file.Bytes()))} {
				if err := os.Truncate(w.store.crash.file.Path(), size); err != nil {
					t.Error(err)
				}
			}
			return 10, errDown
		}
		w = crashWriter(t, t.TempDir(), &m, slab.Options{SlabCount: 2, WhenFull: slab.Block(), FlushInterval: time.Millisecond})
		for i := range 3 {
			mustWrite(t, w, i, 100)
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, w, 3, 100)
		closeNow(t, w)
		wantSequence(t, numbers(t, m.String()), 0, 4)
		checkAccount(t, w, 4, 4, batch.Drops{})
	})
}

// The file is truncated and extended again, so that a lease is made of zeros. Until its copy shows the
// damage, the progress in the file and the answer to a Flush do not depend on the zeros.
func TestLeaseOfAnExtendedFile(t *testing.T) {
	o := &slab.Options{SlabCount: 4, OnError: quiet, Crash: &slab.Crash{Dir: t.TempDir()}}
	w, l, err := New(o, Consumer{Limits: batch.Limits{Records: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if err := w.WriteRecord(line(i, 20), batch.Meta{}); err != nil {
			t.Fatal(err)
		}
	}
	ticket, _ := l.Flush()
	older, _ := l.Next()
	s, f := w.store, w.store.crash.file
	for _, size := range []int64{2 * crashfile.Page, int64(len(f.Bytes()))} {
		if err := os.Truncate(f.Path(), size); err != nil {
			t.Fatal(err)
		}
	}
	s.lock()
	damaged := l.reader.takeLocked()
	s.unlock()
	if l.Leased(ticket) {
		t.Error("all records are leased")
	}
	older.Settle(2)
	if acked := f.State().Acked; acked != 2 {
		t.Errorf("the file is settled up to ticket %d", acked)
	}
	if damaged.copyOut() {
		t.Error("the copy is used")
	}
	l.reader.corrupt(damaged)
	if a := l.Account(batch.Account{Delivered: 2}); a.Dropped != drops(batch.Corrupt, 4) || a.Check() != nil {
		t.Errorf("account %v", a)
	}
	l.Close()
	l.End(t.Context(), true)
	l.Leave()
}

// A consumer never gets mapped memory, because it may pass the memory to goroutines that do not
// catch faults.
func TestConsumersGetCopies(t *testing.T) {
	var r recorder
	var w *pump
	hold, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.answer = func(_ int, b *batch.Batch) (o batch.Outcome) {
		once.Do(func() { close(entered); <-hold })
		for _, rec := range b.All() {
			if p := w.store.crash.file.Bytes(); len(rec.Data) > 0 && within(p, rec.Data) {
				t.Error("a record is in mapped memory")
			}
		}
		return o
	}
	w = mustSink(t, &r, &slab.Options{SlabBytes: 1024, Crash: &slab.Crash{Dir: t.TempDir(), Required: true}, FlushInterval: time.Millisecond, WhenFull: slab.Block()})
	const n = 500
	for i := range 3 {
		mustWrite(t, w, i, 100)
	}
	<-entered
	close(hold)
	for i := 3; i < n; i++ {
		mustWrite(t, w, i, i%300)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, r.joined()), 0, n)
	for i, ticket := range r.tickets {
		if ticket != uint64(i+1) {
			t.Fatalf("ticket %d at %d", ticket, i)
		}
	}
}

// within reports whether p is in the memory of mem.
func within(mem, p []byte) bool {
	lo, at := uintptr(unsafe.Pointer(&mem[0])), uintptr(unsafe.Pointer(&p[0]))
	return at >= lo && at < lo+uintptr(len(mem))
}

// If the file is truncated after all records were delivered, nothing is lost, and later records are
// delivered.
func TestTruncatedWithoutPendingRecords(t *testing.T) {
	for _, replaced := range []bool{false, true} { // if set, the file is replaced instead of truncated
		t.Run(fmt.Sprint("replaced=", replaced), func(t *testing.T) {
			var m memory
			w := crashWriter(t, t.TempDir(), &m, slab.Options{})
			mustWrite(t, w, 0, 50)
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			truncate(t, w)
			if replaced {
				os.Remove(w.store.crash.file.Path())
			}
			for i := 1; i < 100; i++ {
				mustWrite(t, w, i, 50)
				if i%10 == 0 {
					if err := w.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			closeNow(t, w)
			wantSequence(t, numbers(t, m.String()), 0, 100)
			if a := w.Account(); a.Check() != nil || a.Delivered != 100 {
				t.Errorf("account %v", a)
			}
		})
	}
}

// If the write that evicts a slab faults, the account stays exact.
func TestTruncatedWhileEvicting(t *testing.T) {
	for _, size := range []int{40, 150, 400} {
		g := newGate()
		w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.DropOldest(), FlushInterval: -1, MaxRecord: 5000})
		i := 0
		for ; i < 100; i++ {
			mustWrite(t, w, i, size)
			if i%20 == 19 {
				mustWrite(t, w, i, 3000)
			}
		}
		truncate(t, w)
		for ; i < 200; i++ {
			w.Write(line(i, size))
			if i%20 == 19 {
				w.Write(line(i, 3000))
			}
		}
		g.open()
		closeNow(t, w)
		if a := w.Account(); a.Check() != nil || a.Accepted != 210 || a.Pending.Total() != 0 {
			t.Errorf("size %d: %v, %v", size, a.Check(), a)
		}
	}
}

// A write that evicts a slab faults when it stores its record or the progress. The evicted records
// are counted once, the new record is stored on the heap, and no slab is lost.
func TestFaultDuringEvictionCountsOnce(t *testing.T) {
	for name, page := range map[string]func(w *pump) []byte{
		"the slab":  func(w *pump) []byte { return w.front.cur.mem[:4096] },
		"the state": func(w *pump) []byte { return w.store.crash.file.Bytes()[crashfile.Page : 2*crashfile.Page] },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 8192, SlabCount: 2, WhenFull: slab.DropOldest(), FlushInterval: -1})
			n := 0
			write := func(size int) {
				mustWrite(t, w, n, size)
				n++
			}
			for w.Stats().SlabsInUse < 2 {
				write(10)
			}
			<-g.entered
			for w.Account().Pending.Slab < 190 {
				write(10)
			}
			w.store.lock()
			p := page(w)
			w.store.unlock()
			if err := unix.Mprotect(p, unix.PROT_NONE); err != nil {
				t.Fatal(err)
			}
			write(4000)
			if err := unix.Mprotect(p, unix.PROT_READ|unix.PROT_WRITE); err != nil {
				t.Fatal(err)
			}
			if s := w.Stats(); s.CrashUnsafe == "" || s.Dropped[batch.Full] != 190 || s.Pending.Slab != 1 {
				t.Errorf("%q, %v", s.CrashUnsafe, s.Account)
			}
			g.open()
			closeNow(t, w)
			if ns := numbers(t, g.String()); ns[len(ns)-1] != n-1 {
				t.Errorf("the last record that arrived is %d of %d", ns[len(ns)-1], n)
			}
			checkAccount(t, w, uint64(n), uint64(n-190), drops(batch.Full, 190))
			if s := w.Stats(); s.SlabsInUse != 0 {
				t.Errorf("%d slabs are lost", s.SlabsInUse)
			}
		})
	}
}

// recoverEvents recovers the records in dir and returns them with Stats and the events.
func recoverEvents(t *testing.T, dir string) (string, slab.Stats, []batch.Event) {
	t.Helper()
	var m memory
	var mu sync.Mutex
	var events []batch.Event
	w := crashWriter(t, dir, &m, slab.Options{SlabBytes: 1024, OnError: func(e batch.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	closeNow(t, w)
	w.awaitEvents(t.Context())
	mu.Lock()
	defer mu.Unlock()
	s := w.Stats()
	if err := s.Account.Check(); err != nil {
		t.Error(err)
	}
	return m.String(), s, events
}

// killedCopy returns a directory with copies of the files of a running Writer, as a kill would
// leave them now.
func killedCopy(t *testing.T, w *pump) string {
	t.Helper()
	dir := t.TempDir()
	copyKilled(t, w, dir)
	return dir
}

func copyKilled(t *testing.T, w *pump, dir string) {
	t.Helper()
	w.store.lock()
	defer w.store.unlock()
	for _, suffix := range []string{"", crashfile.BigSuffix, crashfile.StreamSuffix} {
		b, err := os.ReadFile(w.store.crash.file.Path() + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(w.store.crash.file.Path())+suffix), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// After a fault that does not change the file, such as an I/O error, the process continues with
// slabs on the heap and notes this in the file. The next process reports that there were more
// records.
func TestRecoveryReportsTheMoveToTheHeap(t *testing.T) {
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 8})
	defer w.Close()
	defer g.open()
	for i := range 5 {
		mustWrite(t, w, i, 100)
	}
	<-g.entered
	w.store.lock()
	slabs := w.store.crash.file.Bytes()[crashfile.HeadsOff+crashfile.Page:]
	w.store.unlock()
	if err := unix.Mprotect(slabs, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for i := 5; i < 50; i++ {
		mustWrite(t, w, i, 100)
	}
	if s := w.Stats(); !strings.Contains(s.CrashUnsafe, "is damaged") {
		t.Errorf("CrashUnsafe is %q", s.CrashUnsafe)
	}
	if err := unix.Mprotect(slabs, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	got, s, events := recoverEvents(t, killedCopy(t, w))
	wantSequence(t, numbers(t, got), 0, 5)
	if s.Recovered != 5 || !hasEvent(events, "recover", "records accepted after that were only in memory") {
		t.Errorf("%v, %v", s.Account, events)
	}
	g.open()
	closeNow(t, w)
	if a := w.Account(); a.Check() != nil || a.Accepted != 50 || a.Delivered+a.Dropped[batch.Corrupt] != 50 {
		t.Errorf("account %v", a)
	}
}

// An incomplete file of a dead process is removed. An incomplete file that may belong to a running
// process is kept.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old": time.Hour, "young": time.Second} {
		path := filepath.Join(dir, name+crashfile.Suffix+crashfile.NewSuffix)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	closeNow(t, crashWriter(t, dir, &memory{}, slab.Options{}))
	files, err := crashfile.List(dir)
	if err != nil || len(files) != 1 || !files[0].Incomplete || !strings.Contains(files[0].Path, "young") {
		t.Errorf("%v, %+v", err, files)
	}
}
