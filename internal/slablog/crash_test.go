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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

func crashWriter(t *testing.T, dir string, dst io.Writer, o slab.Options) *pump {
	t.Helper()
	o.Crash = &slab.Crash{Dir: dir, Required: true}
	return mustNew(t, dst, &o)
}

func TestCrashFileIsRemovedWhenAllIsDelivered(t *testing.T) {
	dir := t.TempDir()
	var m memory
	w := crashWriter(t, dir, &m, slab.Options{SlabBytes: 1024, WhenFull: slab.Block()})
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

// Records that Close cannot deliver stay in the file for the next process.
func TestUndeliveredRecordsAreKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		g := newGate()
		w := crashWriter(t, dir, g, slab.Options{SlabBytes: 1024})
		for i := range 20 {
			mustWrite(t, w, i, 100)
		}
		mustWrite(t, w, 20, 3000) // the record is larger than a slab
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err != nil || r.Dropped.Total() != 0 || r.Kept() != 21 || r.Check() != nil {
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

// If the destination has returned no error, the error of Close reports that there was not enough
// time.
func TestWhyNothingWasDelivered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := mustNew(t, new(memory), &slab.Options{SlabBytes: 1024, FlushInterval: time.Hour, OnError: quiet})
		mustWrite(t, w, 0, 100)
		synctest.Wait()
		w.giveUp() // the state shortly before a deadline
		r, err := w.Shutdown(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 record not delivered") || r.Dropped[batch.Shutdown] != 1 {
			t.Errorf("got %v, %v", err, r)
		}
	})
}

func recoverInto(t *testing.T, dir string) (string, batch.Account) {
	var m memory
	w := crashWriter(t, dir, &m, slab.Options{})
	closeNow(t, w)
	return m.String(), w.Account()
}

func TestRecoveredRecordsComeFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n := 0
		for range 3 { // three processes die one after the other
			g := newGate()
			w := crashWriter(t, dir, g, slab.Options{})
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
		w := crashWriter(t, dir, &m, slab.Options{})
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
	a := crashWriter(t, dir, g, slab.Options{})
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
	w := mustNew(t, io.Discard, &slab.Options{Crash: &slab.Crash{Dir: dir}, OnError: func(e batch.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Op == "recover" {
			errs = append(errs, e.Err)
		}
	}})
	mustWrite(t, w, 0, 10)
	closeNow(t, w)
	w.awaitEvents(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if len(errs) != 3 || !errors.Is(errs[0], crashfile.ErrDamaged) {
		t.Errorf("reported %v, want three damaged files", errs)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "*"+crashfile.BadSuffix)); len(aside) != 3 {
		t.Errorf("set aside %v", aside)
	}
}

func TestNoPlaceForTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(file, "dir")
	if _, err := newPump(consumerFor(io.Discard), &slab.Options{Crash: &slab.Crash{Dir: bad, Required: true}}); err == nil {
		t.Error("Required, and no error")
	}
	var m memory
	w := mustNew(t, &m, &slab.Options{Crash: &slab.Crash{Dir: bad}})
	mustWrite(t, w, 0, 10)
	if s := w.Stats(); s.CrashUnsafe == "" {
		t.Error("Stats does not say that the slabs are on the heap")
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, 1)
}

// If another process truncates the mapped file, this process survives, the slabs move to the heap,
// and every record is delivered or counted.
func TestTruncatedUnderTheMapping(t *testing.T) {
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprint("hung=", hung), func(t *testing.T) {
			dir := t.TempDir()
			g := newGate()
			if !hung {
				g.open()
			}
			w := crashWriter(t, dir, g, slab.Options{SlabBytes: 4096, SlabCount: 8, FlushInterval: time.Millisecond})
			for i := range 100 {
				mustWrite(t, w, i, 100)
			}
			if err := os.Truncate(w.store.crash.file.Path(), 0); err != nil {
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
				t.Error("CrashUnsafe is not set")
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
	w := mustSink(t, first, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
	w.WriteRecord([]byte("a\n"), batch.Meta{Stream: 1})
	w.WriteRecord([]byte("b\n"), batch.Meta{Stream: 2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Shutdown(ctx)
	close(first.hang)
	<-w.done
	second := &dictSink{names: []string{"", "other", "app.b", "app.a"}}
	w = mustSink(t, hasDict{second, second}, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
	closeNow(t, w)
	if got := strings.Join(second.got, ","); got != "app.a:a\n,app.b:b\n" {
		t.Errorf("recovered %q", got)
	}
}

// A hasDict is a destination with a separate dictionary.
type hasDict struct {
	sender
	dict batch.Dictionary
}

func (h hasDict) Dictionary() batch.Dictionary { return h.dict }

type dictSink struct {
	mu    sync.Mutex
	names []string
	got   []string
	hang  chan struct{}
}

func (d *dictSink) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	if d.hang != nil {
		<-d.hang
	}
	for _, r := range b.All() {
		d.got = append(d.got, d.names[r.Stream]+":"+string(r.Data))
	}
	return o
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
	w := crashWriter(t, t.TempDir(), io.Discard, slab.Options{})
	defer closeNow(t, w)
	p := make([]byte, 200)
	if n := allocsOf(func() { w.Write(p) }); n != 0 {
		t.Errorf("%d crash-safe writes allocate %v times", allocCalls, n)
	}
}

// crashSample returns the content of a crash-safe file with some records.
func crashSample(t testing.TB) []byte {
	dir := t.TempDir()
	g := newGate()
	w, err := newPump(consumerFor(g), &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.DropOldest(), OnError: quiet, Crash: &slab.Crash{Dir: dir, Required: true}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		w.Write(killLine(0, i, int(i)))
	}
	data, err := os.ReadFile(w.store.crash.file.Path())
	if err != nil {
		t.Fatal(err)
	}
	g.open()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzParseImage reads arbitrary content as a crash-safe file. Recovery must not panic or read
// beyond the end, tickets must ascend, and no settled record may be returned. The input consists of
// patches of a valid file, five bytes each with offset and value, because the fuzzer would not find
// a valid file of 70 KB.
func FuzzParseImage(f *testing.F) {
	sample := crashSample(f)
	slabs := uint32(len(sample) - 4*512)
	f.Add([]byte{}, []byte{}, uint32(0), true)
	f.Add([]byte{0, 0, 0, 0, 1}, []byte("big"), uint32(1), false)
	f.Add(binary.LittleEndian.AppendUint32(nil, slabs+511-31), []byte{}, uint32(3), true)
	f.Add(append(binary.LittleEndian.AppendUint32(nil, 60), 255), []byte{}, uint32(0), true)
	f.Add(append(binary.LittleEndian.AppendUint32(nil, crashfile.HeadsOff+8), 9), crashfile.AppendFrame(nil, []byte("x"), layout.Slot{Ticket: 99}), uint32(0), true)
	f.Fuzz(func(t *testing.T, patch, big []byte, cut uint32, sum bool) {
		data := bytes.Clone(sample)
		for ; len(patch) >= 5; patch = patch[5:] {
			at := binary.LittleEndian.Uint32(patch)
			if at >= 1<<24 { // most patches must change the slabs
				at = slabs + at%2048
			}
			data[int(at)%len(data)] ^= patch[4]
		}
		if sum { // correct the checksum
			binary.LittleEndian.PutUint32(data[12:], crc32.Checksum(data[16:crashfile.Page], crashfile.Castagnoli))
		}
		data = data[:len(data)-int(cut)%len(data)]
		im, err := crashfile.Parse(data, nil, big)
		if err != nil {
			return
		}
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
