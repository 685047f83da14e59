package diskqueue

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

func TestRoundTrip(t *testing.T) {
	mem := vfs.NewMem()
	d := newTestDict(0)
	s := mustOpen(t, mem, &spool.Options{Streams: d, Codec: testCodecs})
	marker := &batch.Batch{Codec: formB}
	marker.Add(layout.NewRun([]byte("gone"), []layout.Slot{{Ticket: 9, Len: 4, Flags: layout.FlagMarker}}))
	appends := []*batch.Batch{
		numbered(1, 50, d, formA),
		numbered(51, 1, d, formA),
		numbered(52, 200, d, formB), // goes into another segment
		marker,
		numbered(252, 10, d, nil), // goes into another segment
		numbered(262, 10, d, testCodec{opaque: "test/c", schema: 1}), // each form has a separate segment
		numbered(272, 10, d, testCodec{opaque: "test/c", schema: 2}),
	}
	for i, b := range appends {
		seq, err := s.Append(b)
		if err != nil || seq != uint64(i+1) {
			t.Fatalf("batch %d: number %d, %v", i, seq, err)
		}
	}
	if seq, err := s.Append(&batch.Batch{}); seq != 0 || err != nil {
		t.Fatalf("empty batch: %d, %v", seq, err)
	}
	if st := s.Stats(); st.Records != 281 || st.Segments != 5 || st.Batches != 7 || st.Oldest.IsZero() {
		t.Fatalf("stats %+v", st)
	}
	check := func(s *Spool, d *testDict) {
		t.Helper()
		for i, want := range appends {
			b, seq, err := s.Next()
			if err != nil || seq != uint64(i+1) || b.Len() != want.Len() || b.Bytes() != want.Bytes() {
				t.Fatalf("batch %d: %d records, number %d, %v", i, b.Len(), seq, err)
			}
			if want == marker {
				if b.Runs[0].Slot(0).Flags != layout.FlagMarker || string(b.At(0).Data) != "gone" {
					t.Error("marker lost its flag")
				}
				continue
			}
			ns, err := numbers(b, d)
			if err != nil {
				t.Fatal(err)
			}
			wantNs, _ := numbers(want, nil)
			if !slices.Equal(ns, wantNs) {
				t.Errorf("batch %d: records %v", i, ns)
			}
			if want.Codec == nil {
				want.Codec = testCodec{}
			}
			if b.Codec != want.Codec {
				t.Errorf("batch %d: codec %v, want %v", i, b.Codec, want.Codec)
			}
		}
		if _, _, err := s.Next(); err != io.EOF {
			t.Fatalf("after the last: %v", err)
		}
	}
	check(s, d)
	s.Rewind()
	check(s, d)
	mustClose(t, s)

	// Another process uses other stream numbers.
	d2 := newTestDict(1000)
	s = mustOpen(t, mem, &spool.Options{Streams: d2, Codec: testCodecs})
	if st := s.Stats(); st.Recovered != 281 || st.Records != 281 {
		t.Fatalf("stats %+v", st)
	}
	check(s, d2)
	if err := s.Ack(7); err != nil {
		t.Fatal(err)
	}
	mustBalance(t, s)
	if st := s.Stats(); st.Records != 0 || st.Acked != 281 {
		t.Fatalf("stats %+v", st)
	}
	mustClose(t, s)
	if got := names(t, mem); !slices.Equal(got, []string{lockName, cursorName}) {
		t.Errorf("an empty spool leaves %v", got)
	}
}

func TestAckSurvivesRestart(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 10 {
		mustAppend(t, s, i*10, 10)
	}
	for range 4 {
		if _, _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ack(7); err == nil || !strings.Contains(err.Error(), "last one handed out is 4") {
		t.Errorf("Ack beyond what was handed out: %v", err)
	}
	if err := s.Ack(3); err != nil {
		t.Fatal(err)
	}
	if err := s.Ack(2); err != nil {
		t.Errorf("Ack of what is settled: %v", err)
	}
	// The process dies without Close.
	mem.ReleaseLocks()
	s = mustOpen(t, mem, nil)
	if err := consecutive(drain(t, s, false), 30); err != nil {
		t.Fatal(err)
	}
	if seq := mustAppend(t, s, 100, 1); seq != 11 {
		t.Errorf("number %d after a restart, want 11", seq)
	}
	if st := s.Stats(); st.Segments != 1 {
		t.Errorf("%d segments: the small one should have been continued", st.Segments)
	}
	mustClose(t, s)
}

// Handed-out batches stay valid while others are read and acknowledged.
func TestHandedOutBatchesStayValid(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), &spool.Options{SegmentBytes: 8 << 10})
	for i := range 40 {
		mustAppend(t, s, i*20, 20)
	}
	type out struct {
		b     *batch.Batch
		seq   uint64
		first int
	}
	var window []out
	first := 0
	for {
		b, seq, err := s.Next()
		if err == nil {
			window = append(window, out{b, seq, first})
			first += 20
		}
		if len(window) == 0 {
			break
		}
		if len(window) < 4 && err == nil {
			continue
		}
		for _, o := range window {
			ns, err := numbers(o.b, nil)
			if err != nil || consecutive(ns, o.first) != nil {
				t.Fatalf("batch %d changed: %v", o.seq, err)
			}
		}
		if err := s.Ack(window[0].seq); err != nil {
			t.Fatal(err)
		}
		window = window[1:]
	}
	if first != 800 {
		t.Fatalf("%d records", first)
	}
	mustBalance(t, s)
	mustClose(t, s)
}

func TestLargeBatchHasItsOwnSegment(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: 8 << 10})
	mustAppend(t, s, 0, 1)
	mustAppend(t, s, 1, 500)
	mustAppend(t, s, 501, 1)
	if st := s.Stats(); st.Segments != 3 {
		t.Errorf("%d segments, want 3", st.Segments)
	}
	if err := consecutive(drain(t, s, true), 0); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
}

func TestTooLarge(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	block := make([]byte, 1<<20)
	b := &batch.Batch{}
	for range maxBatchBytes >> 20 {
		b.Add(layout.NewRun(block, []layout.Slot{{Ticket: 1, Len: 1 << 20}}))
	}
	if _, err := s.Append(b); !errors.Is(err, errTooLarge) {
		t.Errorf("got %v", err)
	}
	long := testCodec{opaque: opaque(strings.Repeat("x", maxContentType+1))}
	if _, err := s.Append(numbered(0, 1, nil, long)); err == nil {
		t.Error("a content type that is too long was accepted")
	}
	if st := s.Stats(); st.Records != 0 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
}

func TestUnknownStream(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), &spool.Options{Streams: newTestDict(0)})
	var bl batch.Batch
	bl.Append([]byte("x"), 1, batch.Meta{Stream: 7})
	if _, err := s.Append(&bl); err == nil || !strings.Contains(err.Error(), "stream 7") {
		t.Errorf("got %v", err)
	}
	bl.Reset()
	bl.Append([]byte("x"), 1, batch.Meta{})
	if _, err := s.Append(&bl); err != nil {
		t.Errorf("stream 0 needs no definition: %v", err)
	}
	if b, _, err := s.Next(); err != nil || b.At(0).Stream != 0 {
		t.Error(err)
	}
	mustClose(t, s)
}

// panicsAt is a dictionary that panics for one stream.
type panicsAt struct {
	*testDict
	id uint32
}

func (d panicsAt) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	if id == d.id {
		panic("no")
	}
	return d.testDict.AppendStream(dst, id)
}

// If the frame of a batch is not stored, because of an error or a panic of the dictionary, a later
// frame contains the definitions that were in it.
func TestDefinitionsOfFailedAppend(t *testing.T) {
	d := panicsAt{newTestDict(0), 2}
	one, _ := d.Stream([]byte("one")), d.Stream([]byte("two"))
	for _, bad := range []uint32{2, 9} {
		mem := vfs.NewMem()
		s := mustOpen(t, mem, &spool.Options{Streams: d})
		var bl batch.Batch
		bl.Append([]byte("x"), 1, batch.Meta{Stream: one})
		bl.Append([]byte("y"), 2, batch.Meta{Stream: bad})
		func() {
			defer func() { _ = recover() }()
			if _, err := s.Append(&bl); err == nil {
				t.Error("no error")
			}
		}()
		bl.Reset()
		bl.Append([]byte("x"), 1, batch.Meta{Stream: one})
		if _, err := s.Append(&bl); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		later := newTestDict(50)
		s = mustOpen(t, mem, &spool.Options{Streams: later})
		if b, _, err := s.Next(); err != nil || later.name(b.At(0).Stream) != "one" {
			t.Errorf("after stream %d: %v", bad, err)
		}
		mustClose(t, s)
	}
}

// Batches that no codec can read are returned with their content type.
func TestUnknownFormKeepsItsContentType(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	if _, err := s.Append(numbered(1, 1, nil, formA)); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*spool.Options{{}, {Codec: func(string, uint32) batch.Codec { return nil }}} {
		mustClose(t, s)
		s = mustOpen(t, mem, o)
		b, _, err := s.Next()
		if err != nil || b.Codec.ContentType() != "test/a" {
			t.Fatalf("%v, %v", b, err)
		}
		if got := string(b.Codec.AppendJSON(nil, []byte("a\"b\n"), batch.Meta{})); got != `{"raw":"a\"b"}` {
			t.Errorf("got %s", got)
		}
		if got := b.Codec.AppendMarker(nil, batch.Drops{}, time.Time{}); len(got) != 0 {
			t.Errorf("marker %q in an unknown form", got)
		}
	}
	mustClose(t, s)
}

func TestClosed(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	mustAppend(t, s, 1, 1)
	b, _, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	mustClose(t, s)
	if _, err := numbers(b, nil); err != nil {
		t.Error("a batch handed out must stay readable:", err)
	}
	if _, err := s.Append(numbered(1, 1, nil, nil)); !errors.Is(err, errClosed) {
		t.Error("Append:", err)
	}
	if _, _, err := s.Next(); !errors.Is(err, errClosed) {
		t.Error("Next:", err)
	}
	if err := s.Ack(1); !errors.Is(err, errClosed) {
		t.Error("Ack:", err)
	}
	if err := s.Sync(); !errors.Is(err, errClosed) {
		t.Error("Sync:", err)
	}
	s.Rewind()
	if s.Stats().Records != 1 {
		t.Error("Stats must work after Close")
	}
}

// Only the owner can read the directory and its files.
func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "spool")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, 1, 1)
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v", st.Mode(), err)
	}
	es, err := os.ReadDir(dir)
	if err != nil || len(es) != 3 {
		t.Fatalf("%v, %v", es, err)
	}
	for _, e := range es {
		if st, err := e.Info(); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", e.Name(), st.Mode(), err)
		}
	}
	mustClose(t, s)
}

func TestOptions(t *testing.T) {
	for _, o := range []spool.Options{
		{MaxBytes: 100}, {MaxBytes: -1}, {SegmentBytes: 1}, {SegmentBytes: 2 << 30}, {SyncInterval: -1}, {Sync: "often"}, {OverQuota: "drop"},
	} {
		if _, err := open(vfs.NewMem(), testDir, &o); err == nil || !strings.HasPrefix(err.Error(), "spool: ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	o, err := withDefaults(&spool.Options{MaxBytes: 1 << 20})
	if err != nil || o.SegmentBytes != 256<<10 {
		t.Errorf("SegmentBytes %d with a quota of 1 MiB: %v", o.SegmentBytes, err)
	}
	for p, want := range map[string]string{"": syncNever, "never": syncNever, "interval": syncInterval, "always": syncAlways} {
		if o, err := withDefaults(&spool.Options{Sync: p}); err != nil || o.Sync != want {
			t.Errorf("%q: %q, %v", p, o.Sync, err)
		}
	}
}

// The active segment is deleted if it is large and all its batches are acknowledged.
func TestLargeAcknowledgedSegmentIsDeleted(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: 32 << 10})
	mustAppend(t, s, 0, 5)
	drain(t, s, true)
	if s.Stats().Segments != 1 {
		t.Error("a new file for every batch")
	}
	mustAppend(t, s, 5, 50)
	drain(t, s, true)
	if st := s.Stats(); st.Segments != 0 || st.Bytes != 0 {
		t.Errorf("%d bytes of settled records stay", st.Bytes)
	}
	mustAppend(t, s, 55, 5)
	if err := consecutive(drain(t, s, true), 55); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
}

func TestSteadyStateAllocs(t *testing.T) {
	race.Skip(t)
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	b := numbered(1, 100, nil, nil)
	step := func() {
		if _, err := s.Append(b); err != nil {
			t.Fatal(err)
		}
		settle(t, s, 1)
	}
	for range 8 {
		step()
	}
	if n := allocs.PerRun(20, step); n > 0 {
		t.Errorf("%v allocations per Append, Next and Ack", n)
	}
}

// All methods can be called concurrently.
func TestConcurrent(t *testing.T) {
	mem := vfs.NewMem() // in memory, because on a real disk the syncs would take most of the time
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: 16 << 10, Sync: syncInterval, SyncInterval: time.Millisecond})
	const total = 1500
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; n < total; n += 5 {
			if _, err := s.Append(numbered(n, 5, nil, nil)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() {
		defer close(done)
		next, step := 0, 0
		for next < total {
			b, seq, err := s.Next()
			if err == io.EOF {
				runtime.Gosched()
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			if step++; step%17 == 0 {
				s.Rewind()
				continue
			}
			ns, err := numbers(b, nil)
			if err != nil || consecutive(ns, next) != nil {
				t.Error(ns, next, err)
				return
			}
			if err := s.Ack(seq); err != nil {
				t.Error(err)
				return
			}
			next += len(ns)
		}
	})
	for _, look := range []func() error{
		func() error { return s.Account().Check() },
		s.Sync,
		func() error { _, err := inspect(mem, testDir, false); return err },
	} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := look(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	mustBalance(t, s)
	if st := s.Stats(); st.Acked != total || st.Corrupt != 0 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
}
