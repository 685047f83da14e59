//go:build linux || darwin

package slablog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// patch modifies the content of a file with f.
func patch(t *testing.T, path string, f func([]byte)) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f(b)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// keepStreams writes records of several streams into crash-safe slabs in dir. The destination
// hangs, so the records stay in the file.
func keepStreams(t *testing.T, dir string, d *dictSink, write func(w *pump)) {
	t.Helper()
	d.hang = make(chan struct{})
	w := mustSink(t, d, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}, MaxRecord: 200000})
	write(w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = w.Shutdown(ctx)
	close(d.hang)
	<-w.done
}

// recoverStreams recovers the records in dir, and returns Stats and the events.
func recoverStreams(t *testing.T, dir string, d *dictSink) (slab.Stats, []batch.Event) {
	t.Helper()
	var events []batch.Event
	w := mustSink(t, d, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}, OnError: func(e batch.Event) { events = append(events, e) }})
	closeNow(t, w)
	w.awaitEvents(t.Context())
	if err := w.Account().Check(); err != nil {
		t.Error(err)
	}
	return w.Stats(), events
}

// Stream 0 is translated like any other stream if the dictionary contains it.
func TestStreamZeroIsTranslated(t *testing.T) {
	dir := t.TempDir()
	keepStreams(t, dir, &dictSink{names: []string{"{app=a}", "{app=b}"}}, func(w *pump) {
		_ = w.WriteRecord([]byte("b\n"), batch.Meta{Stream: 1})
		_ = w.WriteRecord([]byte("a\n"), batch.Meta{})
	})
	d := &dictSink{names: []string{"{app=b}", "{app=a}"}}
	recoverStreams(t, dir, d)
	if got := strings.Join(d.got, ""); got != "{app=b}:b\n{app=a}:a\n" {
		t.Errorf("recovered %q", got)
	}
}

// noZero is a dictionary without stream 0.
type noZero struct{ *dictSink }

func (d noZero) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	if id == 0 {
		return dst, false
	}
	return d.dictSink.AppendStream(dst, id)
}

func TestStreamZeroOfNoStream(t *testing.T) {
	dir := t.TempDir()
	d := &dictSink{names: []string{"none", "app"}}
	d.hang = make(chan struct{})
	w := mustSink(t, hasDict{d, noZero{d}}, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
	_ = w.WriteRecord([]byte("a\n"), batch.Meta{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = w.Shutdown(ctx)
	close(d.hang)
	<-w.done
	d = &dictSink{names: []string{"none", "app"}}
	if s, _ := recoverStreams(t, dir, d); len(d.got) != 1 || d.got[0] != "none:a\n" || s.Recovery.Undefined != 0 {
		t.Errorf("recovered %q", d.got)
	}
}

// The dictionary in the file is extended by new streams, including those whose first record is
// larger than a slab. Each record is recovered with its stream.
func TestDictionaryGrows(t *testing.T) {
	dir := t.TempDir()
	const n = 200
	first := &dictSink{names: []string{""}}
	second := &dictSink{names: []string{""}}
	for i := 1; i <= n; i++ {
		first.names = append(first.names, fmt.Sprintf("first-%d-%s", i, strings.Repeat("x", 1000)))
		second.names = append(second.names, fmt.Sprintf("SECOND-%d", i))
	}
	second.names = append(second.names, first.names[1:]...)
	keepStreams(t, dir, first, func(w *pump) {
		for i := 1; i <= n; i++ {
			rec := fmt.Appendf(nil, "of first-%d-", i)
			if i == n {
				rec = append(rec, strings.Repeat("y", 100000)...)
			}
			if err := w.WriteRecord(rec, batch.Meta{Stream: uint32(i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if files, _ := crashfile.List(dir); len(files) != 1 || files[0].Bytes < crashfile.Size(layout.DefaultSlabBytes, defaults.SlabCount)+100000+int64(n-70)*1000 {
		t.Errorf("files %+v", files)
	}
	s, events := recoverStreams(t, dir, second)
	for i, g := range second.got {
		if want := fmt.Sprintf("first-%d-", i+1); !strings.HasPrefix(g, want) || !strings.Contains(g, ":of "+want) {
			t.Fatalf("%d: %.100q", i, g)
		}
	}
	if len(second.got) != n || s.Delivered != n || s.Recovery.Undefined != 0 {
		t.Errorf("%d recovered, %v, %v", len(second.got), s.Account, events)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Records of an undefined stream are never assigned to another stream. They are counted, reported
// and kept, even if recovery is interrupted several times.
func TestUndefinedStreamsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	names := []string{""}
	for i := 1; i <= 100; i++ {
		names = append(names, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 1000)))
	}
	keepStreams(t, dir, &dictSink{names: names}, func(w *pump) {
		for i := 1; i <= 100; i++ {
			_ = w.WriteRecord(fmt.Appendf(nil, "%d\n", i), batch.Meta{Stream: uint32(i)})
		}
	})
	path := oneFile(t, dir)
	patch(t, path+crashfile.StreamSuffix, func(b []byte) { b[500] ^= 1 }) // the first entry of the dictionary
	var fits int
	if im, err := crashfile.Read(path); err != nil || im.Undefined == 0 || !strings.Contains(im.Damage(), "of streams that are not defined") {
		t.Fatalf("%v, %v", err, im)
	} else {
		fits = len(im.Streams)
	}
	d := &dictSink{names: names}
	slices.Reverse(d.names[1:])
	s, events := recoverStreams(t, dir, d)
	lost := uint64(100 - fits)
	if len(d.got) != fits || s.Recovery.Undefined != lost || s.Dropped != drops(batch.Corrupt, lost) || s.Delivered != uint64(fits) {
		t.Errorf("%d recovered, %+v, %v", len(d.got), s.Recovery, s.Account)
	}
	for i, g := range d.got {
		if want := fmt.Sprintf("%d-", i+1); !strings.HasPrefix(g, want) || !strings.HasSuffix(g, fmt.Sprintf(":%d\n", i+1)) {
			t.Fatalf("%d: %.100q", i, g)
		}
	}
	if !hasEvent(events, "recover", fmt.Sprintf("%d records of streams that are not defined", lost)) {
		t.Errorf("events %v", events)
	}
	if _, err := os.Stat(path + crashfile.BadSuffix + crashfile.StreamSuffix); err != nil {
		t.Error(err)
	}
}

// bigKilled returns a directory with the file of a killed process, which contains five records
// larger than a slab.
func bigKilled(t *testing.T) string {
	t.Helper()
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 16, MaxRecord: 3000})
	t.Cleanup(func() { g.open(); w.Close() })
	for i := range 5 {
		mustWrite(t, w, i, 2000)
	}
	mustWrite(t, w, 5, 50)
	return killedCopy(t, w)
}

// Damaged and missing oversize records are counted, reported and kept. All other records are
// delivered.
func TestDamagedOversizeRecords(t *testing.T) {
	const frame = 2000 + crashfile.BigHeadLen
	for _, c := range []struct {
		name   string
		damage func([]byte) []byte // nil: the file is missing
		want   []int
	}{
		{"payload of the first", func(b []byte) []byte { b[100] ^= 1; return b }, []int{1, 2, 3, 4, 5}},
		{"payload of two in a row", func(b []byte) []byte { b[frame+100] ^= 1; b[2*frame+100] ^= 1; return b }, []int{0, 3, 4, 5}},
		{"length", func(b []byte) []byte { b[frame+5] ^= 1; return b }, []int{0, 2, 3, 4, 5}},
		{"length, beyond the end", func(b []byte) []byte { b[frame+7] ^= 0x40; return b }, []int{0, 2, 3, 4, 5}},
		{"ticket", func(b []byte) []byte { b[8] ^= 1; return b }, []int{1, 2, 3, 4, 5}},
		{"last", func(b []byte) []byte { b[4*frame+50] ^= 1; return b }, []int{0, 1, 2, 3, 5}},
		{"cut short", func(b []byte) []byte { return b[:3*frame+17] }, []int{0, 1, 2, 5}},
		{"zeros", func(b []byte) []byte { clear(b[:2*frame]); return b }, []int{2, 3, 4, 5}},
		{"gone", nil, []int{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := bigKilled(t)
			path := oneFile(t, dir)
			if c.damage == nil {
				os.Remove(path + crashfile.BigSuffix)
			} else {
				b, _ := os.ReadFile(path + crashfile.BigSuffix)
				if err := os.WriteFile(path+crashfile.BigSuffix, c.damage(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			lost := uint64(6 - len(c.want))
			im, err := crashfile.Read(path)
			if err != nil || im.DamagedBig != lost || im.Damaged != lost || im.Unreturned != 0 || im.Damage() == "" {
				t.Errorf("%v, %d damaged, %d unreturned, %q", err, im.DamagedBig, im.Unreturned, im.Damage())
			}
			got, s, events := recoverEvents(t, dir)
			if ns := numbers(t, got); !slices.Equal(ns, c.want) {
				t.Errorf("recovered %v", ns)
			}
			if s.Recovered != 6 || s.Dropped != drops(batch.Corrupt, lost) || s.Recovery.Damaged != lost || s.Recovery.DamagedFiles != 1 {
				t.Errorf("%v, %+v", s.Account, s.Recovery)
			}
			if !hasEvent(events, "recover", "larger than a slab; the file will be renamed") {
				t.Errorf("events %v", events)
			}
			if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(path + crashfile.BadSuffix + crashfile.BigSuffix); err != nil && c.damage != nil {
				t.Error(err)
			}
		})
	}
}

// Evicted, settled and incomplete records larger than a slab do not count as missing, regardless of
// when the process dies.
func TestOversizeRecordsAreNotMissed(t *testing.T) {
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 512, SlabCount: 580, WhenFull: slab.DropOldest(), MaxRecord: 3000})
	defer w.Close()
	checkFile := func(what string) {
		t.Helper()
		if im, err := crashfile.Read(oneFile(t, killedCopy(t, w))); err != nil || im.Damaged != 0 || im.Damage() != "" {
			t.Fatalf("%s: %v, %q", what, err, im.Damage())
		}
	}
	for i := range 600 { // more records than the state can list, and more than fit into memory
		mustWrite(t, w, i, 590)
		if i%50 == 0 || i > 495 && i%10 == 0 {
			checkFile(fmt.Sprint("write ", i))
		}
	}
	g.open()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkFile("all delivered")
	w.store.lock()
	if s := w.store.crash.file.State(); s.Big != [crashfile.BigTracked]uint64{} || s.BigMore != 0 {
		t.Errorf("still expected: %v and %d more", s.Big, s.BigMore)
	}
	w.store.unlock()
}

// bigMany returns a Writer with more pending oversize records than the state page of its file can
// list.
func bigMany(t *testing.T, dst any) *pump {
	t.Helper()
	w := mustSink(t, dst, &slab.Options{SlabBytes: 512, SlabCount: 1000, MaxRecord: 3000,
		Crash: &slab.Crash{Dir: t.TempDir(), Required: true}})
	for i := range 500 {
		mustWrite(t, w, i, 590)
	}
	return w
}

// The state page cannot list all oversize records. Those that it omits and that an interrupted
// recovery has delivered do not count as damaged.
func TestInterruptedRecoveryOfManyOversizeRecords(t *testing.T) {
	g := newGate()
	w := bigMany(t, g)
	defer func() {
		g.open()
		closeNow(t, w)
	}()
	for _, stop := range []int{0, 100, 390, 450, 499} {
		dir := killedCopy(t, w)
		path, n := oneFile(t, dir), 0
		sink := &recorder{answer: func(int, *batch.Batch) (o batch.Outcome) {
			if n++; n > stop {
				return failed()
			}
			return o
		}}
		if _, err := crashfile.Replay(t.Context(), path, sink.Send, &crashfile.ReplayOptions{Limits: batch.Limits{Records: 1}}); err == nil {
			t.Fatal("not interrupted")
		}
		if im, err := crashfile.Read(path); err != nil || im.Damage() != "" {
			t.Errorf("stopped after %d: %v, %q", stop, err, im.Damage())
		}
		got, s, _ := recoverEvents(t, dir)
		if ns := numbers(t, got); len(ns) != 500-stop || ns[len(ns)-1] != 499 {
			t.Errorf("stopped after %d: recovered %v", stop, ns)
		}
		if s.Dropped != (batch.Drops{}) || s.Recovery.DamagedFiles != 0 {
			t.Errorf("stopped after %d: %v, %+v", stop, s.Account, s.Recovery)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("stopped after %d: left behind: %v", stop, left)
		}
	}
}

// Settled oversize records do not count as damaged if the process dies while others are pending.
func TestSettledOversizeRecordsAreNotMissed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		sink := &recorder{limits: batch.Limits{Records: 495}}
		sink.answer = func(call int, _ *batch.Batch) (o batch.Outcome) {
			if call == 1 {
				<-open
			}
			return o
		}
		w := bigMany(t, sink)
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		im, err := crashfile.Read(oneFile(t, killedCopy(t, w)))
		if err != nil || im.Damage() != "" || len(im.Records) != 5 {
			t.Errorf("%v, %d records, %q", err, len(im.Records), im.Damage())
		}
		close(open)
		closeNow(t, w)
	})
}

// A changed byte in the state page of the file is reported. No record and no stream definition is
// lost, and all counts are right.
func TestFlippedByteOfTheState(t *testing.T) {
	dir := t.TempDir()
	sink := &dictSink{names: []string{"{app=a}", "{app=b}"}, hang: make(chan struct{})}
	w := mustSink(t, sink, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}, SlabBytes: 1024, SlabCount: 6, MaxRecord: 3000, WhenFull: slab.DropOldest()})
	defer func() {
		close(sink.hang)
		closeNow(t, w)
	}()
	for i := range 110 { // the first records are delivered, and most others are evicted
		if i == 10 {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case sink.hang <- struct{}{}:
					case <-stop:
						return
					}
				}
			}()
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(stop)
			<-stopped
		}
		size := 100
		if i%10 == 9 {
			size = 2000
		}
		if err := w.WriteRecord(line(i, size), batch.Meta{Stream: uint32(i % 2)}); err != nil {
			t.Fatal(err)
		}
	}
	dir = killedCopy(t, w)
	path := oneFile(t, dir)
	whole, err := crashfile.Read(path)
	if err != nil || whole.Damage() != "" || whole.Acked != 10 || whole.Evicted == 0 || whole.Oversize == 0 || len(whole.Streams) != 2 {
		t.Fatalf("%v, %+v", err, whole)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	words := []uintptr{crashfile.StateAcked, crashfile.StateAckedToo, crashfile.StateHeapHeld, crashfile.StateHeapFrom, crashfile.StateDictLen, crashfile.StateEvicted, crashfile.StateSkipped, crashfile.StateAhead, crashfile.StateDamaged, crashfile.StateBigMore}
	for i := range uintptr(8) {
		words = append(words, crashfile.StateBig+8*i)
	}
	for _, word := range words {
		for at := word; at < word+8; at++ {
			for _, flip := range []byte{1, 0x55, 0x80, 0xff} {
				b := bytes.Clone(sound)
				b[crashfile.Page+at] ^= flip
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				im, err := crashfile.Read(path)
				if err != nil {
					t.Fatalf("byte %d ^ %#x: %v", at, flip, err)
				}
				if im.HeapOnly != 0 || im.Damaged != 0 || im.DamagedBefore != 0 || im.Undefined != 0 || im.MovedToHeap ||
					im.Unreturned > 0 || im.Evicted > whole.Evicted || len(im.Streams) != 2 || string(im.Streams[1]) != "{app=b}" ||
					im.Damage() != "1 word of its state" && at >= crashfile.StateHeapHeld {
					t.Fatalf("byte %d ^ %#x: %q, %+v", at, flip, im.Damage(), im)
				}
				pending := im.Records
				if at < crashfile.StateHeapHeld { // a change before this offset may cause duplicates
					pending = pending[max(0, len(pending)-len(whole.Records)):]
				}
				if !slices.EqualFunc(pending, whole.Records, func(a, b batch.Record) bool { return a.Ticket == b.Ticket && bytes.Equal(a.Data, b.Data) }) {
					t.Fatalf("byte %d ^ %#x: %d records, %d in a whole file", at, flip, len(im.Records), len(whole.Records))
				}
			}
		}
	}
	_, s, events := recoverEvents(t, dir)
	if n := uint64(len(whole.Records)); s.Recovered != n || s.Delivered != n || s.Recovery.DamagedFiles != 1 || !hasEvent(events, "recover", "1 word of its state") {
		t.Errorf("%v, %+v, %v", s.Account, s.Recovery, events)
	}
	if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
		t.Error(err)
	}
}

// version1 returns the path of a file of version 1 with records of two streams. Some records were
// evicted, and some are larger than a slab.
func version1(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "18ea6766f30187eb-6f17f079.slab")
	for _, suffix := range []string{"", crashfile.BigSuffix} {
		f, err := os.Open("testdata/v1.slab" + suffix + ".gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(z)
		if err == nil {
			err = os.WriteFile(path+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// Files of version 1 can be read. Counts that version 1 does not store are 0.
func TestVersion1IsRead(t *testing.T) {
	path := version1(t)
	for _, word := range []uintptr{0, crashfile.StateHeapHeld, crashfile.StateDictLen, crashfile.StateDamaged, crashfile.StateBigMore} {
		if word > 0 {
			patch(t, path, func(b []byte) { b[crashfile.Page+word+7] ^= 0x55 })
		}
		im, err := crashfile.Read(path)
		if err != nil || len(im.Records) != 28 || im.Evicted != 22 || im.Oversize != 3 || len(im.Streams) != 2 || im.Unreturned+im.HeapOnly+im.Damaged+im.DamagedBefore+im.Undefined > 0 {
			t.Fatalf("word %d: %v, %+v", word, err, im)
		}
		if word > 0 {
			patch(t, path, func(b []byte) { b[crashfile.Page+word+7] ^= 0x55 })
		}
	}
	sink := &dictSink{names: []string{"{app=b}", "{app=a}"}}
	s, events := recoverStreams(t, filepath.Dir(path), sink)
	if s.Recovered != 28 || s.Delivered != 28 || s.Recovery.DamagedFiles != 0 {
		t.Errorf("%v, %+v, %v", s.Account, s.Recovery, events)
	}
	for i, g := range sink.got {
		ns := numbers(t, g[strings.Index(g, ":")+1:])
		if want := []string{"{app=a}:", "{app=b}:"}[ns[0]%2]; !strings.HasPrefix(g, want) {
			t.Errorf("record %d is %.20q", i, g)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// damagedFile returns a directory with a file whose first slab is damaged, and the number of
// records in the file.
func damagedFile(t *testing.T) (dir string, n int) {
	t.Helper()
	dir, n = sealedFile(t)
	patch(t, oneFile(t, dir), func(b []byte) {
		base := crashfile.HeadsOff + crashfile.HeadsBytes(16)
		for i := range 16 {
			if binary.LittleEndian.Uint64(b[crashfile.HeadsOff+64*i:]) == 1 {
				b[base+1024*i] ^= 1
			}
		}
	})
	return dir, n
}

// If the stored progress (the ticket up to which all records are settled) is damaged, no record is
// lost.
func TestDamagedProgress(t *testing.T) {
	for _, at := range []int{5, 8 + 5} {
		dir, n := sealedFile(t)
		patch(t, oneFile(t, dir), func(b []byte) { b[crashfile.Page+at] ^= 1 })
		got, _ := recoverInto(t, dir)
		wantSequence(t, numbers(t, got), 0, n)
	}
}

// Damage is counted once, even if the first recovery is interrupted before it reaches the damage.
func TestDamageIsCountedOnce(t *testing.T) {
	dir, n := sealedFile(t)
	path := oneFile(t, dir)
	patch(t, path, func(b []byte) { b[bytes.Index(b, line(30, 100))] ^= 1 })
	sink := &recorder{answer: func(call int, _ *batch.Batch) (o batch.Outcome) {
		if call%2 == 1 {
			return failed()
		}
		return o
	}}
	for round := range 20 {
		done, err := crashfile.Replay(t.Context(), path, sink.Send, &crashfile.ReplayOptions{Limits: batch.Limits{Records: 5}})
		if done.Damaged != 7 {
			t.Errorf("round %d: %d damaged", round, done.Damaged)
		}
		if err == nil {
			break
		}
	}
	if got := len(numbers(t, sink.joined())); got != n-7 {
		t.Errorf("%d of %d arrived", got, n)
	}
	if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
		t.Error(err)
	}
}

// A damaged file is kept, even if the recovery that found the damage is then interrupted.
func TestDamageIsNotForgotten(t *testing.T) {
	for _, tool := range []bool{false, true} {
		t.Run(fmt.Sprint("replay=", tool), func(t *testing.T) {
			dir, n := damagedFile(t)
			path := oneFile(t, dir)
			calls := 0
			sink := &recorder{limits: batch.Limits{Records: 5}}
			sink.answer = func(int, *batch.Batch) (o batch.Outcome) {
				if calls++; calls > 2 && calls < 1000 {
					return failed()
				}
				return o
			}
			for round := range 2 {
				var damaged uint64
				if tool {
					done, _ := crashfile.Replay(t.Context(), path, sink.Send, &crashfile.ReplayOptions{Limits: sink.limits})
					damaged = done.Damaged
				} else {
					bubble.Test(t, func(t *testing.T) {
						var events []batch.Event
						w := mustSink(t, sink, &slab.Options{SlabBytes: 1024, Crash: &slab.Crash{Dir: dir, Required: true},
							OnError: func(e batch.Event) { events = append(events, e) }})
						w.Close()
						synctest.Wait()
						if r := w.Stats().Recovery; r.DamagedFiles != 1 {
							t.Errorf("round %d: %+v, %v", round, r, events)
						}
						if err := w.Account().Check(); err != nil {
							t.Error(err)
						}
					})
					damaged = 7
				}
				if damaged != 7 {
					t.Errorf("round %d: %d damaged", round, damaged)
				}
				if im, err := crashfile.Read(path); round == 0 && (err != nil || im.DamagedBefore != 7 || !strings.Contains(im.Damage(), "7 records that an earlier recovery")) {
					t.Errorf("%v, %+v", err, im)
				}
				calls = 1000
			}
			wantSequence(t, numbers(t, sink.joined()), 7, n)
			if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
				t.Error(err)
			}
		})
	}
}
