//go:build linux || darwin

package slablog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/slab"
)

// oneFile returns the only crash-safe file in dir.
func oneFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := crashfile.List(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	return files[0].Path
}

// Recovery has separate counts for evicted records, records that were only in memory, and records
// larger than a slab.
func TestRecoveryCountsEachKindOfLoss(t *testing.T) {
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 8, WhenFull: slab.DropOldest(), MaxRecord: 3000})
	defer w.Close()
	defer g.open()
	mustWrite(t, w, 0, 50)
	if _, err := w.Write(line(1, 2000)); err != nil { // larger than a slab
		t.Fatal(err)
	}
	<-g.entered
	for i := 2; i < 100; i++ {
		mustWrite(t, w, i, 90)
	}
	// The next record is larger than a slab and cannot be written to disk.
	w.conf.o.Crash.Required = false
	w.store.crash.file.Big.Fault = errDown
	mustWrite(t, w, 100, 2000)
	w.store.crash.file.Big.Fault = nil
	for i := 101; i < 105; i++ {
		mustWrite(t, w, i, 90)
	}
	if s := w.Stats(); s.HeapOnly != 1 {
		t.Errorf("%d are on the heap only", s.HeapOnly)
	}
	evicted := w.Account().Dropped[batch.Full]
	dir := killedCopy(t, w)
	im, err := crashfile.Read(oneFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if evicted == 0 || im.Evicted != evicted || im.HeapOnly != 1 || im.Oversize != 1 || im.Unreturned != 0 ||
		im.Holes != evicted+1 || len(im.Records) != 104-int(evicted) {
		t.Errorf("%d were evicted: evicted=%d heap=%d oversize=%d unreturned=%d holes=%d records=%d", evicted,
			im.Evicted, im.HeapOnly, im.Oversize, im.Unreturned, im.Holes, len(im.Records))
	}
	_, s, events := recoverEvents(t, dir)
	r := s.Recovery
	if r.Files != 1 || r.Records != uint64(len(im.Records)) || r.Oversize != 1 || r.Evicted != evicted || r.HeapOnly != 1 || r.Unreturned != 0 {
		t.Errorf("recovery %+v", r)
	}
	if !hasEvent(events, "recover", "1 records larger than a slab were only in the memory") {
		t.Errorf("events %v", events)
	}
}

func hasEvent(events []batch.Event, op, text string) bool {
	for _, e := range events {
		if e.Op == op && e.Err != nil && strings.Contains(e.Err.Error(), text) {
			return true
		}
	}
	return false
}

// When recovery counts evicted records, it ignores those that are older than settled records.
func TestEvictedBeforeProgress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 4, WhenFull: slab.DropOldest()})
		for i := range 100 {
			mustWrite(t, w, i, 90)
		}
		if w.Account().Dropped[batch.Full] == 0 {
			t.Fatal("nothing was evicted")
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		im, err := crashfile.Read(oneFile(t, killedCopy(t, w)))
		if err != nil || im.Acked != 100 || im.Evicted != 0 || len(im.Records) != 0 || im.Unreturned != 0 {
			t.Errorf("%v, %+v", err, im)
		}
		// A later gap in the tickets does not count as an evicted record. Here, the call of the
		// missing record has not written its frame.
		g.opened, g.once = make(chan struct{}), sync.Once{}
		for i := range 3 {
			mustWrite(t, w, i, 90)
		}
		mustWrite(t, w, 3, 2000)
		mustWrite(t, w, 4, 90)
		dir := killedCopy(t, w)
		os.Remove(oneFile(t, dir) + crashfile.BigSuffix)
		patch(t, oneFile(t, dir), func(b []byte) { clear(b[crashfile.Page+1024 : 2*crashfile.Page]) })
		im, err = crashfile.Read(oneFile(t, dir))
		if err != nil || im.Evicted != 0 || len(im.Records) != 4 || im.Unreturned != 1 {
			t.Errorf("%v, %+v", err, im)
		}
		g.open()
		closeNow(t, w)
	})
}

// Evicted oversize records are not recovered. Their file stays small, no matter how long the
// destination fails.
func TestEvictedOversizeRecords(t *testing.T) {
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 12, WhenFull: slab.DropOldest(), MaxRecord: 3000})
	defer w.Close()
	defer g.open()
	mustWrite(t, w, 0, 50)
	<-g.entered
	for i := 1; i < 200; i++ {
		mustWrite(t, w, i, 2500)
		if im, err := crashfile.Read(w.store.crash.file.Path()); err != nil || len(im.Records) != min(i, 4)+1 || im.Unreturned != 0 {
			t.Fatalf("after %d: %v, %d records, %d not returned", i, err, len(im.Records), im.Unreturned)
		}
	}
	st, err := os.Stat(w.store.crash.file.Path() + crashfile.BigSuffix)
	if err != nil || st.Size() > 2*10000+5*(2500+crashfile.BigHeadLen) {
		t.Errorf("%v, the file has %d bytes", err, st.Size())
	}
	dir := killedCopy(t, w)
	got, s, _ := recoverEvents(t, dir)
	want := append([]int{0}, 196, 197, 198, 199)
	if ns := numbers(t, got); fmt.Sprint(ns) != fmt.Sprint(want) || s.Recovery.Evicted != 195 || s.Recovery.Unreturned != 0 {
		t.Errorf("recovered %v, %+v", ns, s.Recovery)
	}
	// Delivered oversize records are removed from the file, although other records are always
	// pending.
	g.open()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		mustWrite(t, w, i, 2500)
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(w.store.crash.file.Path() + crashfile.BigSuffix); err != nil || st.Size() > 30000 {
		t.Errorf("%v, the file has %d bytes", err, st.Size())
	}
}

// sealedFile returns a directory with a copy of a file, and the number of its records. Its sealed
// slabs have checksums, because they waited while the destination failed.
func sealedFile(t *testing.T) (dir string, n int) {
	dir = t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		w := crashWriter(t, t.TempDir(), writerFunc(func([]byte) (int, error) { return 0, errDown }), slab.Options{SlabBytes: 1024, SlabCount: 16})
		for n = 0; n < 50; n++ {
			mustWrite(t, w, n, 100)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		copyKilled(t, w, dir)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = w.Shutdown(ctx)
	})
	return dir, n
}

func TestSealedSlabsHaveChecksums(t *testing.T) {
	dir, n := sealedFile(t)
	path := oneFile(t, dir)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	summed := 0
	for i := range 16 {
		if binary.LittleEndian.Uint64(data[crashfile.HeadsOff+64*i+16:]) != 0 {
			summed++
		}
	}
	if summed != 7 { // a slab holds seven records, and the eighth slab is being filled
		t.Errorf("%d slabs have a checksum", summed)
	}
	im, err := crashfile.Read(path)
	if err != nil || len(im.Records) != n || im.DamagedSlabs != 0 {
		t.Errorf("%v: %d records, %d slabs damaged", err, len(im.Records), im.DamagedSlabs)
	}
	// If a byte covered by a checksum is changed, recovery returns no record of that slab, but the
	// records of all other slabs.
	base := crashfile.HeadsOff + crashfile.HeadsBytes(16)
	for _, at := range []int{0, 350, 699, 1023, 1000, 1024 - 7*32} {
		for i := range 16 {
			if binary.LittleEndian.Uint64(data[crashfile.HeadsOff+64*i+16:]) == 0 {
				continue
			}
			bad := append([]byte(nil), data...)
			bad[base+1024*i+at] ^= 4
			im, err := crashfile.Parse(bad, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if im.DamagedSlabs != 1 || im.Damaged != 7 || len(im.Records) != n-7 {
				t.Errorf("byte %d of slab %d: %d slabs, %d records damaged, %d left", at, i, im.DamagedSlabs, im.Damaged, len(im.Records))
			}
		}
	}
}

// A damaged slab is skipped, reported and counted. The other slabs are delivered, and the file is
// kept.
func TestDamagedSlabIsSetAside(t *testing.T) {
	dir, n := sealedFile(t)
	path := oneFile(t, dir)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	base := int64(crashfile.HeadsOff + crashfile.HeadsBytes(16))
	for i := range int64(16) { // the slab with the first record
		var b [3]byte
		if _, err := f.ReadAt(b[:], base+1024*i); err != nil {
			t.Fatal(err)
		}
		if b == [3]byte{'0', '.', '.'} {
			if _, err := f.WriteAt([]byte("9"), base+1024*i); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Close()
	got, s, events := recoverEvents(t, dir)
	wantSequence(t, numbers(t, got), 7, n)
	a := s.Account
	if a.Recovered != uint64(n) || a.Delivered != uint64(n-7) || a.Dropped != drops(batch.Corrupt, 7) || s.Recovery.Damaged != 7 || s.Recovery.DamagedFiles != 1 {
		t.Errorf("%v, %+v", a, s.Recovery)
	}
	if !hasEvent(events, "recover", "damaged: lost 7 records in 1 slab;") {
		t.Errorf("events %v", events)
	}
	if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
		t.Error(err)
	}
}

// After Close all slabs are sealed, including the slab that was being filled and empty slabs.
func TestCloseMakesChecksums(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		g := newGate()
		w := crashWriter(t, dir, g, slab.Options{SlabBytes: 1024})
		for i := range 20 {
			mustWrite(t, w, i, 100)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = w.Shutdown(ctx)
		g.open()
		synctest.Wait()
		data, err := os.ReadFile(oneFile(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		summed, empty := 0, 0
		for i := range w.conf.o.SlabCount {
			switch binary.LittleEndian.Uint64(data[crashfile.HeadsOff+64*i+16:]) {
			case 0:
			case crashfile.EmptySum:
				empty++
			default:
				summed++
			}
		}
		if summed != 3 || empty != w.conf.o.SlabCount-3 {
			t.Errorf("%d slabs have a checksum, %d are sealed as empty", summed, empty)
		}
		got, _ := recoverInto(t, dir)
		wantSequence(t, numbers(t, got), 0, 20)
	})
}

// DropOldest drops sealed slabs, which are then refilled. A refilled slab has no checksum, because
// the old one would make the slab count as damaged after a kill.
func TestChecksumsOfDroppedSlabs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := crashWriter(t, t.TempDir(), writerFunc(func([]byte) (int, error) { return 0, errDown }),
			slab.Options{SlabBytes: 1024, SlabCount: 4, WhenFull: slab.DropOldest()})
		for i := range 300 {
			mustWrite(t, w, i, 100)
			if i%5 == 0 {
				time.Sleep(time.Second)
			}
			if i%7 == 0 {
				im, err := crashfile.Read(oneFile(t, killedCopy(t, w)))
				if err != nil || im.DamagedSlabs != 0 || im.Unreturned != 0 || im.Records[len(im.Records)-1].Ticket != uint64(i+1) {
					t.Fatalf("record %d: %v, %+v", i, err, im)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = w.Shutdown(ctx)
	})
}

// kind is a codec with a name and a schema version, for tests of content types.
type kind struct {
	batch.Codec
	name   string
	schema uint32
}

func (k kind) ContentType() string   { return k.name }
func (k kind) SchemaVersion() uint32 { return k.schema }
func (k kind) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte {
	return dst
}

// Files with records of a different content type stay in the directory, unless the destination
// accepts that content type.
func TestFilesOfOtherForms(t *testing.T) {
	a1, a2, b := kind{name: "a", schema: 1}, kind{name: "a", schema: 2}, kind{name: "b"}
	for _, c := range []struct {
		was, is kind
		takes   bool
		says    string // "": they are delivered
	}{
		{a1, a1, false, ""},
		{a1, a2, false, ""}, // an older version
		{a2, a1, false, `version 2 of type "a", but this output accepts up to version 1; the file is kept`},
		{a2, a1, true, ""},
		{a1, b, false, `records of type "a", but this output accepts "b"; the file is kept`},
		{a1, b, true, ""},
	} {
		t.Run(fmt.Sprint(c.was, c.is, c.takes), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				g := newGate()
				w := crashWriter(t, dir, g, slab.Options{Codec: c.was})
				mustWrite(t, w, 0, 50)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = w.Shutdown(ctx)
				g.open()
				synctest.Wait()

				var events []batch.Event
				var got []string
				sink := sendFunc(func(_ context.Context, b *batch.Batch) (o batch.Outcome) {
					got = append(got, fmt.Sprintf("%s:%d", b.Codec.ContentType(), b.Len()))
					return o
				})
				o := &slab.Options{Codec: c.is, Crash: &slab.Crash{Dir: dir, Required: true}, OnError: func(e batch.Event) { events = append(events, e) }}
				if c.takes {
					o.Crash.Codec = func(contentType string, schema uint32) (batch.Codec, bool) {
						return c.was, contentType == c.was.name && schema == c.was.schema
					}
				}
				w = mustSink(t, sink, o)
				mustWrite(t, w, 1, 50)
				closeNow(t, w)
				synctest.Wait()
				files, _ := crashfile.List(dir)
				if c.says == "" {
					if len(got) != 2 || got[0] != c.was.name+":1" || got[1] != c.is.name+":1" || len(files) != 0 {
						t.Errorf("got %v, files %v", got, files)
					}
				} else if len(got) != 1 || len(files) != 1 || files[0].Alive || files[0].Aside || !hasEvent(events, "recover", c.says) {
					t.Errorf("got %v, files %v, events %v", got, files, events)
				}
			})
		})
	}
}

// A file of a later version does not count as damaged. It stays in the directory for a program that
// can read it.
func TestLaterVersionIsLeft(t *testing.T) {
	dir, _ := sealedFile(t)
	path := oneFile(t, dir)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{crashfile.Version + 1}, 8); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got, s, events := recoverEvents(t, dir)
	if got != "" || s.Recovered != 0 || !hasEvent(events, "recover", "a later version has written") {
		t.Errorf("%q, %v, %v", got, s.Account, events)
	}
	if oneFile(t, dir) != path {
		t.Error("it was renamed")
	}
}

func TestCrashOptions(t *testing.T) {
	for _, o := range []slab.Options{
		{Crash: &slab.Crash{}},
	} {
		if _, err := newPump(consumerFor(&memory{}), &o); err == nil || !strings.Contains(err.Error(), "Crash") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Replay, Purge and ReadLive do not change the file of a running process.
func TestReplayAndPurge(t *testing.T) {
	g := newGate()
	own := t.TempDir()
	w := crashWriter(t, own, g, slab.Options{SlabBytes: 1024, MaxRecord: 3000})
	defer w.Close()
	defer g.open()
	for i := range 20 {
		mustWrite(t, w, i, 100)
	}
	mustWrite(t, w, 20, 2000)
	path := oneFile(t, own)
	if files, _ := crashfile.List(own); !files[0].Alive || files[0].Bytes != crashfile.Size(1024, 8)+2000+crashfile.BigHeadLen {
		t.Errorf("%+v", files)
	}
	var r recorder
	if _, err := crashfile.Replay(t.Context(), path, r.Send, nil); !errors.Is(err, crashfile.ErrInUse) || len(r.got) > 0 {
		t.Errorf("replay: %v", err)
	}
	if err := crashfile.Purge(path); !errors.Is(err, crashfile.ErrInUse) {
		t.Errorf("purge: %v", err)
	}
	if im, err := crashfile.ReadLive(path); err != nil || len(im.Records) != 21 {
		t.Errorf("read: %v", err)
	}

	dir := killedCopy(t, w)
	path = oneFile(t, dir)
	o := &crashfile.ReplayOptions{Limits: batch.Limits{Records: 4}}
	r.answer = func(call int, _ *batch.Batch) (o batch.Outcome) {
		if call == 2 {
			return failed()
		}
		return o
	}
	done, err := crashfile.Replay(t.Context(), path, r.Send, o)
	if !errors.Is(err, errDown) || done.Records != 8 || done.Left != 13 {
		t.Errorf("%+v, %v", done, err)
	}
	done, err = crashfile.Replay(t.Context(), path, r.Send, o)
	if err != nil || done.Records != 13 || done.Left != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	wantSequence(t, numbers(t, r.joined()), 0, 21)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	dir = killedCopy(t, w)
	if err := crashfile.Purge(oneFile(t, dir)); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// ReadLive returns only whole records, although the process is writing.
func TestReadLiveIsNeverTorn(t *testing.T) {
	own := t.TempDir()
	w := crashWriter(t, own, &memory{act: func(call int, p []byte) (int, error) { return len(p), nil }}, slab.Options{SlabBytes: 1024, SlabCount: 4, FlushInterval: time.Microsecond, WhenFull: slab.DropOldest()})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				w.Write(killLine(0, i, int(i%70)))
			}
		}
	}()
	path := oneFile(t, own)
	n := 0
	for range 300 {
		im, err := crashfile.ReadLive(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range im.Records {
			if _, i, err := parseKillLine(string(r.Data)); err != nil || i+1 != r.Ticket {
				t.Fatalf("ticket %d: %v", r.Ticket, err)
			}
			n++
		}
	}
	close(stop)
	<-ended
	closeNow(t, w)
	t.Log(n, "records seen")
}

// FuzzSealedSlabs changes bytes of slabs with checksums. Each recovered record equals an original
// record.
func FuzzSealedSlabs(f *testing.F) {
	dir := f.TempDir()
	g := newGate()
	w, err := newPump(consumerFor(g), &slab.Options{SlabBytes: 512, SlabCount: 8, OnError: quiet, Crash: &slab.Crash{Dir: dir, Required: true}})
	if err != nil {
		f.Fatal(err)
	}
	for i := range uint64(40) {
		w.Write(killLine(0, i, int(i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = w.Shutdown(ctx)
	g.open()
	<-w.done
	sample, err := os.ReadFile(w.store.crash.file.Path())
	if err != nil {
		f.Fatal(err)
	}
	slabs := crashfile.HeadsOff + crashfile.Page
	sound, err := crashfile.Parse(sample, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	want := map[uint64]string{}
	for _, r := range sound.Records {
		want[r.Ticket] = string(r.Data)
	}
	if len(want) < 20 {
		f.Fatal(len(want), "records")
	}
	f.Add([]byte{0, 0, 1})
	f.Add([]byte{1, 255, 1})
	f.Add([]byte{7, 7, 7, 8, 8, 8})
	f.Fuzz(func(t *testing.T, patch []byte) {
		data := append([]byte(nil), sample...)
		for ; len(patch) >= 3; patch = patch[3:] {
			data[slabs+int(binary.LittleEndian.Uint16(patch))%(len(data)-slabs)] ^= patch[2]
		}
		im, err := crashfile.Parse(data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range im.Records {
			if want[r.Ticket] != string(r.Data) {
				t.Fatalf("ticket %d became %q", r.Ticket, r.Data)
			}
		}
		if len(im.Records)+int(im.Damaged) < len(want) {
			t.Fatalf("%d records and %d damaged of %d", len(im.Records), im.Damaged, len(want))
		}
	})
}

// Flush waits for the records of a dead process, even if nothing was written since the start.
func TestFlushWaitsForRecovered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := crashWriter(t, t.TempDir(), g, slab.Options{WhenFull: slab.Block()})
		for i := range 10 {
			mustWrite(t, w, i, 50)
		}
		dir := killedCopy(t, w)
		g.open()
		closeNow(t, w)
		g = newGate()
		w = crashWriter(t, dir, g, slab.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush returned %v, and there is %v", err, w.Account())
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if a := w.Account(); a.Delivered != 10 || a.Pending.Total() > 0 {
			t.Errorf("after Flush: %v", a)
		}
		closeNow(t, w)
	})
}
