package diskqueue

import (
	"bytes"
	"io"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// firstRecord is the number of the first record in the seeds. Records from this number on are
// short, which keeps the seeds small and fuzzing fast.
const firstRecord = 395

// validSegment returns the content of a segment file with some batches.
func validSegment(tb testing.TB, batches int) []byte {
	tb.Helper()
	mem := vfs.NewMem()
	s := mustOpen(tb, mem, &spool.Options{Streams: newTestDict(3)})
	d := s.queue.opt.Streams.(*testDict)
	for i := range batches {
		if _, err := s.Append(numbered(firstRecord+i*2, 2, d, formA)); err != nil {
			tb.Fatal(err)
		}
	}
	mustClose(tb, s)
	return content(tb, mem, segmentName(1))
}

// readAll opens a spool whose only segment is data, and reads it to the end, before and after a
// restart, and with Scan. It returns the record numbers. It fails the test if the content of record
// n is not record(n).
func readAll(t *testing.T, data []byte) (ns []int) {
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1), data)
	if _, err := inspect(mem, testDir, true); err != nil {
		t.Fatal(err)
	}
	outside := 0
	for e, err := range scan(mem, testDir, nil) {
		if err == nil {
			outside += e.Batch.Len()
		} else if !isCorrupt(err) {
			t.Fatal(err)
		}
	}
	for range 2 {
		ns = ns[:0]
		s := mustOpen(t, mem, &spool.Options{Streams: newTestDict(0)})
		var held []int
		for i := range 8 {
			for _, r := range s.Held(testOrigin(firstRecord+2*i), 0, 1<<62) {
				held = append(held, int(r.First-1)/2, int(r.Last-1)/2)
			}
		}
		for range len(data) { // a frame is longer than a byte, so there are fewer frames than bytes
			b, _, err := s.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range b.All() {
				if !bytes.Contains(data, r.Data) {
					t.Fatalf("record %q was not stored", r.Data)
				}
				n, err := recordNumber(r.Data)
				if err != nil {
					t.Fatal(err)
				}
				ns = append(ns, n)
			}
		}
		for _, n := range held {
			if !slices.Contains(ns, n) {
				t.Fatalf("record %d is held, but not returned: %v", n, ns)
			}
		}
		mustBalance(t, s)
		if outside < len(ns) {
			t.Fatalf("%d records, from outside %d", len(ns), outside)
		}
		mustClose(t, s)
	}
	return ns
}

// FuzzSegment reads arbitrary bytes as a segment. Readers must not panic or hang, must allocate at
// most a multiple of the file size, and must not return a record that was not stored.
func FuzzSegment(f *testing.F) {
	valid := validSegment(f, 3)
	old, err := os.ReadFile(goldenSegment(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(old)
	f.Add(old[:len(old)-7])
	f.Add([]byte{})
	f.Add([]byte(segmentMagic))
	f.Add(valid)
	f.Add(valid[:len(valid)-7])
	f.Add(append(bytes.Clone(valid), make([]byte, 100)...))
	f.Add(append(bytes.Clone(valid), valid[segmentHeaderBytes+len("test/a"):]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ns := readAll(t, data)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20+200*uint64(len(data)) {
			t.Fatalf("%d bytes allocated for a file of %d", used, len(data))
		}
		if len(ns) > 0 && consecutive(ns, ns[0]) != nil {
			t.Fatalf("records %v are out of order", ns)
		}
	})
}

// FuzzMutated damages a valid segment at random. The batches before the damage must be returned.
func FuzzMutated(f *testing.F) {
	for seed := range int64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		r := rand.New(rand.NewSource(seed))
		valid := validSegment(t, 1+r.Intn(8))
		data := bytes.Clone(valid)
		first := len(data)
		for range 1 + r.Intn(4) {
			at := r.Intn(len(data))
			switch r.Intn(6) {
			case 0:
				data[at] ^= 1 << r.Intn(8)
			case 1:
				data[at] = byte(r.Intn(256))
			case 2:
				data = data[:at]
			case 3:
				k := min(len(data)-at, r.Intn(100))
				clear(data[at : at+k])
			case 4: // copy a piece from another offset
				from := r.Intn(len(valid))
				copy(data[at:], valid[from:min(len(valid), from+r.Intn(300))])
			default:
				k := r.Intn(50)
				data = append(data[:at:at], append(make([]byte, k), data[at:]...)...)
			}
			if len(data) == 0 {
				break
			}
		}
		for i := range valid {
			if i == len(data) || data[i] != valid[i] {
				first = i
				break
			}
		}
		want := 0 // number of complete frames before the first change
		mem := vfs.NewMem()
		setContent(t, mem, segmentName(1), valid)
		for i, off := range frameOffsets(t, mem, segmentName(1)) {
			if off <= int64(first) {
				want = i * 2
			}
		}
		ns := readAll(t, data)
		if err := consecutive(ns, firstRecord); err != nil || len(ns) != want {
			t.Fatalf("seed %d: %d records, want %d: %v", seed, len(ns), want, err)
		}
	})
}

// FuzzCursor opens a spool with an arbitrary cursor file. Open must succeed, and each batch that
// the cursor does not mark as acknowledged must be returned.
func FuzzCursor(f *testing.F) {
	c := cursorState{gen: 5, acked: mark{seq: 3, rec: 8}, segment: 1}
	f.Add(c.append(nil))
	f.Add([]byte{})
	f.Add(make([]byte, cursorFileBytes))
	f.Fuzz(func(t *testing.T, data []byte) {
		mem := vfs.NewMem()
		setContent(t, mem, segmentName(1), validSegment(t, 4))
		setContent(t, mem, cursorName, data)
		s := mustOpen(t, mem, &spool.Options{Streams: newTestDict(0)})
		want := cursorState{acked: mark{seq: 1}}
		for off := 0; off+cursorSlotBytes <= len(data); off += cursorStride {
			var slot cursorState
			if slot.parse(data[off:off+cursorSlotBytes]) && slot.gen > want.gen {
				want = slot
			}
		}
		var ns []int
		for _, b := range each(t, s) {
			for _, r := range b.All() {
				n, err := recordNumber(r.Data)
				if err != nil {
					t.Fatal(err)
				}
				ns = append(ns, n)
			}
		}
		if n := 2 * (4 - min(4, int(want.acked.seq-1))); len(ns) != n {
			t.Fatalf("%d records, want %d after cursor %+v", len(ns), n, want)
		}
		mustBalance(t, s)
		seq := mustAppend(t, s, 100, 1)
		if seq < want.acked.seq || seq < 5 {
			t.Fatalf("number %d was used again", seq)
		}
		if b, got, err := s.Next(); err != nil || got != seq || b.Len() != 1 {
			t.Fatalf("an appended batch is not returned: %v", err)
		}
		mustClose(t, s)
	})
}
