//go:build linux || darwin

package slablog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/slab"
)

// A pipe does not get mapped memory, because its reader is a different goroutine, which cannot
// catch a fault.
func TestTruncatedUnderAPipe(t *testing.T) {
	if kind := os.Getenv("FOREBAY_PIPE"); kind != "" {
		var dst io.WriteCloser
		var src io.Reader
		if kind == "io" {
			src, dst = io.Pipe()
		} else {
			a, b := net.Pipe()
			src, dst = a, b
		}
		w := crashWriter(t, os.Getenv("FOREBAY_PIPE_DIR"), dst, slab.Options{FlushInterval: time.Millisecond})
		mustWrite(t, w, 0, 20000)
		for w.Stats().Pending.Inflight == 0 {
			time.Sleep(time.Millisecond) // real time, because the process is a real one
		}
		time.Sleep(10 * time.Millisecond)
		truncate(t, w)
		got := make(chan int64)
		go func() { n, _ := io.Copy(io.Discard, src); got <- n }()
		closeNow(t, w)
		dst.Close()
		if n := <-got; n != 20000 {
			t.Error(n, "bytes")
		}
		return
	}
	for _, kind := range []string{"io", "net"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTruncatedUnderAPipe$")
		cmd.Env = append(os.Environ(), "FOREBAY_PIPE="+kind, "FOREBAY_PIPE_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%.1000s", kind, err, out)
		}
	}
}

// A fault in the caller's memory panics in the caller. The Writer continues to work.
func TestFaultInCallerMemoryPanicsInTheCaller(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		var out memory
		w := crashWriter(t, t.TempDir(), &out, slab.Options{FlushInterval: -1})
		bad := func() {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			w.Write(m[:100])
		}
		bad() // with the slow path
		mustWrite(t, w, 0, 50)
		bad() // with the fast path
		mustWrite(t, w, 1, 50)
		closeNow(t, w)
		wantSequence(t, numbers(t, out.String()), 0, 2)
		checkAccount(t, w, 2, 2, batch.Drops{})
		if s := w.Stats().CrashUnsafe; s != "" {
			t.Error(s)
		}
	})
}

// New returns soon and uses little memory, even if files with the names of crash-safe files have
// unexpected content.
func TestUnexpectedFilesDoNotDelayNew(t *testing.T) {
	dir := t.TempDir()
	sparse := filepath.Join(dir, "1.slab")
	if err := os.WriteFile(sparse, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, crashfile.MaxBytes); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2.slab", "3.slab.new"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "4.slab")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "5.slab"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{})
	mustWrite(t, w, 0, 50)
	copyKilled(t, w, dir)
	g.open()
	closeNow(t, w)
	if err := unix.Mkfifo(filepath.Join(dir, filepath.Base(w.store.crash.file.Path())+crashfile.BigSuffix), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, s, events := recoverEvents(t, dir)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	wantSequence(t, numbers(t, got), 0, 1)
	if s.Recovery.DamagedFiles != 1 || !hasEvent(events, "recover", "does not begin with") || !hasEvent(events, "recover", "not a regular file") {
		t.Errorf("%+v, %v", s.Recovery, events)
	}
	if _, err := crashfile.List(dir); err != nil {
		t.Error(err)
	}
}

// Listing the files does not lock a file that another process is creating.
func TestListingDoesNotDisturbNewFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "1.slab"+crashfile.NewSuffix)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := mapped.Lock(f); err != nil {
		t.Fatal(err)
	}
	files, err := crashfile.List(dir)
	if err != nil || len(files) != 1 || !files[0].Incomplete || files[0].Alive {
		t.Errorf("%v, %+v", err, files)
	}
}

// While a Send hangs, the checksums of the waiting slabs are computed.
func TestHungSendHasChecksums(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 16})
		sums := func() (n int) {
			b, err := os.ReadFile(w.store.crash.file.Path())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 16 {
				if binary.LittleEndian.Uint64(b[crashfile.HeadsOff+64*i+16:]) != 0 {
					n++
				}
			}
			return n
		}
		i := 0
		for want := range 3 {
			for ; i < 22*(want+1); i++ {
				mustWrite(t, w, i, 90) // eight records fit into a slab
			}
			time.Sleep(3 * watchAfter)
			synctest.Wait()
			if n := sums(); n != (i-1)/8 {
				t.Errorf("after %d records %d slabs have a checksum", i, n)
			}
		}
		dir := killedCopy(t, w)
		patch(t, oneFile(t, dir), func(b []byte) { b[bytes.Index(b, []byte("\n9."))+1] = '8' })
		if im, err := crashfile.Read(oneFile(t, dir)); err != nil || im.DamagedSlabs != 1 || im.Damaged != 8 {
			t.Errorf("%v, %q", err, im.Damage())
		}
		g.open()
		closeNow(t, w)
		wantSequence(t, numbers(t, g.String()), 0, i)
	})
}

// If the records of a slab are settled while its checksum is computed, the slab is then given to a
// caller that waits for one.
func TestSumsWhileWritersWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := 0
		w := crashWriter(t, t.TempDir(), writerFunc(func(p []byte) (int, error) {
			time.Sleep(watchAfter)
			n += bytes.Count(p, []byte("\n"))
			return len(p), nil
		}), slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.Block()})
		for i := range 300 {
			mustWrite(t, w, i, 90)
		}
		closeNow(t, w)
		if n != 300 {
			t.Error(n)
		}
		checkAccount(t, w, 300, 300, batch.Drops{})
	})
}

// A file that is deleted, or truncated and extended again, is no longer used. This is detected even
// while the destination hangs, and no record is read as zeros.
func TestDeletedAndExtended(t *testing.T) {
	for _, what := range []string{"deleted", "replaced", "extended", "half extended"} {
		for _, hung := range []bool{false, true} {
			t.Run(fmt.Sprint(what, hung), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					g := newGate()
					w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 64, FlushInterval: -1})
					first := 1
					if hung {
						first = 20
					}
					for i := range first {
						mustWrite(t, w, i, 90)
					}
					synctest.Wait()
					size := int64(len(w.store.crash.file.Bytes()))
					at := int64(0)
					switch what {
					case "replaced":
						os.Remove(w.store.crash.file.Path())
						if err := os.WriteFile(w.store.crash.file.Path(), []byte("of somebody else"), 0o600); err != nil {
							t.Fatal(err)
						}
					case "deleted":
						os.Remove(w.store.crash.file.Path())
					case "half extended":
						at = crashfile.HeadsOff + crashfile.Page
						fallthrough
					default:
						if err := errors.Join(os.Truncate(w.store.crash.file.Path(), at), os.Truncate(w.store.crash.file.Path(), size)); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(3 * watchAfter)
					synctest.Wait()
					if hung && what != "half extended" && w.Stats().CrashUnsafe == "" {
						t.Error("the change was not detected while the destination hangs")
					}
					for i := first; i < 60; i++ {
						mustWrite(t, w, i, 90)
					}
					g.open()
					closeNow(t, w)
					a := w.Account()
					if a.Check() != nil || a.Accepted != 60 || a.Pending.Total() != 0 || strings.Contains(g.String(), "\x00") {
						t.Errorf("%v, %.40q", a, g.String())
					}
					if strings.HasPrefix(what, "del") || what == "replaced" {
						wantSequence(t, numbers(t, g.String()), 0, 60)
					}
					if w.Stats().CrashUnsafe == "" {
						t.Error("CrashUnsafe is not set")
					}
					if _, err := os.Stat(w.store.crash.file.Path()); what == "replaced" && err != nil {
						t.Error("a file of another process was deleted")
					}
				})
			})
		}
	}
}

// Recovery reports a file that is older than the last boot of the machine. It delivers nothing from
// pages that never reached the disk.
func TestOtherBoot(t *testing.T) {
	if mapped.BootID() == [16]byte{} {
		t.Skip("SKIPPED: this system has no boot id")
	}
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 16384, SlabCount: 8})
	for i := range 60 {
		mustWrite(t, w, i, 190)
	}
	dir := killedCopy(t, w)
	g.open()
	closeNow(t, w)
	path := oneFile(t, dir)
	patch(t, path, func(b []byte) {
		b[32] ^= 0xff
		binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b[16:crashfile.Page], crashfile.Castagnoli))
		at := bytes.Index(b, line(20, 190)) &^ (crashfile.Page - 1)
		clear(b[at : at+crashfile.Page])
	})
	got, s, events := recoverEvents(t, dir)
	if strings.Contains(got, "\x00") || s.Recovery.OtherBoot != 1 || s.Recovery.Damaged == 0 || s.Recovery.Damaged > 23 || s.Delivered != 60-s.Recovery.Damaged {
		t.Errorf("%+v, %v", s.Recovery, s.Account)
	}
	if !hasEvent(events, "recover", "written before the last boot") || !hasEvent(events, "recover", "never reached the disk") {
		t.Errorf("%v", events)
	}
	if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
		t.Error(err)
	}
}

// The id of the file and the ticket identify a record, regardless of the process that sends it.
func TestOrigin(t *testing.T) {
	type key struct {
		id     [16]byte
		ticket uint64
	}
	dir := t.TempDir()
	seen := map[key]string{}
	again := 0
	var fail batch.Outcome
	sink := sendFunc(func(_ context.Context, b *batch.Batch) (o batch.Outcome) {
		for _, r := range b.All() {
			k := key{b.Origin, r.Ticket}
			if old, ok := seen[k]; ok {
				again++
				if old != string(r.Data) {
					t.Errorf("%v is %q and %q", k, old, r.Data)
				}
			}
			seen[k] = string(r.Data)
		}
		return fail
	})
	for life := range 3 {
		fail = failed() // the record arrives, but its answer is lost
		bubble.Test(t, func(t *testing.T) {
			if life == 2 {
				fail = batch.Outcome{}
			}
			w := mustSink(t, sink, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
			for i := range 5 {
				mustWrite(t, w, life*5+i, 50)
			}
			time.Sleep(time.Second)
			w.Close()
		})
	}
	if len(seen) != 15 || again < 10 {
		t.Errorf("%d records, %d came again", len(seen), again)
	}
	for k := range seen {
		if k.id == [16]byte{} {
			t.Error("a record without an origin")
		}
	}
}

// Records on the heap also have an origin. Each Writer has a separate id, which partial answers and
// retries do not change.
func TestOriginOnTheHeap(t *testing.T) {
	seen := map[[16]byte]int{}
	for range 3 {
		bubble.Test(t, func(t *testing.T) {
			var id [16]byte
			w := mustSink(t, sendFunc(func(_ context.Context, b *batch.Batch) (o batch.Outcome) {
				if id == [16]byte{} {
					id = b.Origin
				}
				if b.Origin != id {
					t.Errorf("origin %x, then %x", id, b.Origin)
				}
				seen[b.Origin] += b.Len()
				if b.Len() > 1 {
					return partly(1)
				}
				return o
			}), nil)
			for i := range 3 {
				mustWrite(t, w, i, 50)
			}
			w.Flush(t.Context())
			w.Close()
		})
	}
	if len(seen) != 3 || seen[[16]byte{}] > 0 {
		t.Errorf("%d origins of 3 Writers: %v", len(seen), seen)
	}
}

// If crash safety is required, a record that cannot be made crash-safe is refused and counted.
func TestRequiredRefusesWhatItCannotKeep(t *testing.T) {
	for _, required := range []bool{true, false} {
		g := newGate()
		w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, MaxRecord: 3000})
		w.conf.o.Crash.Required = required
		mustWrite(t, w, 0, 50)
		<-g.entered
		w.store.crash.file.Big.Fault = errDown
		err := w.WriteRecord(line(1, 2000), batch.Meta{})
		if required != errors.Is(err, slab.ErrDropped) || !required && err != nil {
			t.Errorf("required=%v: %v", required, err)
		}
		mustWrite(t, w, 2, 50)
		if s := w.Stats(); required == (s.HeapOnly == 1) || s.Account.Check() != nil {
			t.Errorf("required=%v: %d on the heap only, %v", required, s.HeapOnly, s.Account)
		}
		if im, err := crashfile.Read(oneFile(t, killedCopy(t, w))); err != nil || im.Unreturned != 0 || im.Damaged != 0 {
			t.Errorf("required=%v: %v, %+v", required, err, im)
		}
		g.open()
		closeNow(t, w)
		if required {
			checkAccount(t, w, 3, 2, drops(batch.Failed, 1))
		} else {
			checkAccount(t, w, 3, 3, batch.Drops{})
		}
	}
}
