package slablog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// mount mounts a file system, or skips the test.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Skipf("SKIPPED: a %s cannot be mounted here (%v); TestNoPlaceForTheFile stands in for it", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// If the file cannot be created and Required is set, New fails. If Required is not set, the slabs
// are on the heap, Stats reports that, and one event gives the reason.
func TestDirectoryWithoutCrashSafety(t *testing.T) {
	for _, c := range []struct {
		name, says string
		is         error
		dir        func(t *testing.T) string
	}{
		{"no room", "cannot allocate", unix.ENOSPC, func(t *testing.T) string { return mount(t, "tmpfs", "size=256k") }},
		{"no fallocate", "cannot allocate", unix.EOPNOTSUPP, func(t *testing.T) string { return mount(t, "ramfs", "") }},
		{"read-only", "read-only file system", unix.EROFS, func(t *testing.T) string {
			dir := mount(t, "tmpfs", "size=4m")
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Skipf("SKIPPED: cannot remount read-only: %v", err)
			}
			return dir
		}},
		{"NFS", "is on NFS, which cannot keep mapped pages", nil, func(t *testing.T) string {
			var st unix.Statfs_t
			dir := t.TempDir()
			if err := unix.Statfs(dir, &st); err != nil {
				t.Fatal(err)
			}
			mapped.NetworkFS[int64(st.Type)] = "NFS" // New takes the file system for NFS
			t.Cleanup(func() { delete(mapped.NetworkFS, int64(st.Type)) })
			return dir
		}},
		{"a file", "not a directory", unix.ENOTDIR, func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := c.dir(t)
			_, err := newPump(consumerFor(&memory{}), &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("Required: %v", err)
			}
			var mu sync.Mutex
			var events []batch.Event
			var m memory
			w := mustNew(t, &m, &slab.Options{Crash: &slab.Crash{Dir: dir}, OnError: func(e batch.Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}})
			for i := range 1000 {
				mustWrite(t, w, i, 200)
			}
			if s := w.Stats(); !strings.Contains(s.CrashUnsafe, c.says) {
				t.Errorf("CrashUnsafe is %q", s.CrashUnsafe)
			}
			closeNow(t, w)
			wantSequence(t, numbers(t, m.String()), 0, 1000)
			mu.Lock()
			defer mu.Unlock()
			if len(events) != 1 || !hasEvent(events, "crash-safe", c.says) || !hasEvent(events, "crash-safe", "continuing with slabs on the heap") {
				t.Errorf("events %v", events)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// If the file cannot be created, the records of dead processes in the directory are still delivered
// first, with their origin. New records wait in their slabs until the records of the dead processes
// are settled.
func TestRecoveryBeforeSlabsOnTheHeap(t *testing.T) {
	var st unix.Statfs_t
	dir := t.TempDir()
	const old, all = 60, 200
	g := newGate()
	defer g.open()
	w := crashWriter(t, dir, g, slab.Options{SlabBytes: 1024, SlabCount: 32})
	for i := range old {
		mustWrite(t, w, i, 100)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Shutdown(ctx)
	<-w.reported

	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	mapped.NetworkFS[int64(st.Type)] = "NFS" // New takes the file system for NFS
	defer delete(mapped.NetworkFS, int64(st.Type))
	var r recorder
	entered, hold, most := make(chan struct{}), make(chan struct{}), make(chan struct{})
	seen, fresh := 0, 0
	r.answer = func(call int, b *batch.Batch) (o batch.Outcome) {
		if call == 0 {
			close(entered)
			<-hold
		}
		if b.Origin != w.store.crash.file.ID() {
			fresh += b.Len()
		}
		if seen < old+100 && seen+b.Len() >= old+100 {
			close(most)
		}
		seen += b.Len()
		return o
	}
	next := mustSink(t, &r, &slab.Options{SlabBytes: 1024, SlabCount: 32, Crash: &slab.Crash{Dir: dir}, FlushInterval: -1, WhenFull: slab.Block()})
	if next.store.crash != nil {
		t.Fatal("the slabs are not on the heap")
	}
	<-entered
	for i := old; i < all; i++ {
		mustWrite(t, next, i, 100)
	}
	close(hold)
	<-most // Flush and Close must not change that order
	closeNow(t, next)
	wantSequence(t, numbers(t, r.joined()), 0, all)
	if fresh != all-old {
		t.Errorf("%d records have another origin than the dead process, want %d", fresh, all-old)
	}
	if a := next.Account(); a.Check() != nil || a.Recovered != old || a.Accepted != all-old || a.Delivered != all {
		t.Errorf("account %v", a)
	}
}

// While the slabs are on the heap, Close stops waiting for a call of Accept that has records of a
// dead process. The file keeps the records, and the report contains them.
func TestGivenUpRecoveryOnTheHeap(t *testing.T) {
	var st unix.Statfs_t
	dir := t.TempDir()
	end := func(w *pump) batch.Report {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r, _ := w.Shutdown(ctx)
		return r
	}
	g := newGate()
	w := crashWriter(t, dir, g, slab.Options{})
	defer func() { g.open(); <-w.done }()
	for i := range 10 {
		mustWrite(t, w, i, 50)
	}
	if r := end(w); r.Kept() != 10 {
		t.Fatal(r.Account)
	}
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	mapped.NetworkFS[int64(st.Type)] = "NFS" // New takes the file system for NFS
	defer delete(mapped.NetworkFS, int64(st.Type))
	b := hesitant{newLeaseHolder(testkit.Rand(1), 1), make(chan struct{})}
	next := mustSink(t, b, &slab.Options{Crash: &slab.Crash{Dir: dir}})
	mustWrite(t, next, 10, 50)
	if r := end(next); next.store.crash != nil || r.Check() != nil || r.Kept() != 10 || r.Dropped != drops(batch.Shutdown, 1) {
		t.Errorf("%v; %v", r.Account, r.Check())
	}
	close(b.hang)
	<-next.done
}

// If the disk is full when an oversize record arrives, the slabs stay crash-safe. The record is not
// crash-safe, and Stats reports that while the record is pending.
func TestNoRoomForOversizeRecords(t *testing.T) {
	dir := mount(t, "tmpfs", "size=256k")
	g := newGate()
	w := crashWriter(t, dir, g, slab.Options{SlabBytes: 4096, SlabCount: 16, MaxRecord: 300 << 10})
	defer w.Close()
	defer g.open()
	mustWrite(t, w, 0, 100)
	<-g.entered
	w.conf.o.Crash.Required = false // also applies to files that New finds
	mustWrite(t, w, 1, 200<<10)
	mustWrite(t, w, 2, 100)
	if s := w.Stats(); s.HeapOnly != 1 || s.CrashUnsafe != "" {
		t.Errorf("heap only %d, %q", s.HeapOnly, s.CrashUnsafe)
	}
	im, err := crashfile.Read(w.store.crash.file.Path())
	if err != nil || len(im.Records) != 2 || im.HeapOnly != 1 || im.Unreturned != 0 {
		t.Errorf("%v, %+v", err, im)
	}
	g.open()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.HeapOnly != 0 {
		t.Errorf("heap only %d", s.HeapOnly)
	}
	mustWrite(t, w, 3, 50<<10) // the disk has space now
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, g.String()), 0, 4)
}
