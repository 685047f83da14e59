package diskqueue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// List and Verify work while the spool is open.
func TestListOfAnOpenSpool(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: 4 << 10})
	for i := range 12 {
		if _, err := s.Append(numbered(i*5+1, 5, nil, formA)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, 4)
	for _, full := range []bool{false, true} {
		l, err := inspect(mem, testDir, full)
		if err != nil {
			t.Fatal(err)
		}
		if l.Acked != 4 || l.Pending != 40 || l.Damaged != 0 || l.Bytes != s.Stats().Bytes || len(l.Files) != s.Stats().Segments {
			t.Errorf("%+v", l)
		}
		batches := uint64(0)
		for _, f := range l.Files {
			if f.ContentType != "test/a" || f.Records != f.Batches*5 || f.Begun.IsZero() {
				t.Errorf("%+v", f)
			}
			batches += f.Batches
		}
		if batches < 8 || batches > 12 {
			t.Errorf("%d batches", batches)
		}
	}
	acked, pending := 0, 0
	for e, err := range scan(mem, testDir, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Acked {
			acked += e.Batch.Len()
			continue
		}
		if pending += e.Batch.Len(); pending == 15 {
			break // the caller of Scan may stop early
		}
	}
	if pending != 15 || acked%5 != 0 || acked > 20 {
		t.Errorf("%d pending, %d acknowledged", pending, acked)
	}
	mustClose(t, s)
	if _, err := List(t.TempDir()+"/none", false); err == nil {
		t.Error("a directory that is not there")
	}
	for _, err := range Scan(t.TempDir()+"/none", nil) {
		if err == nil {
			t.Error("a directory that is not there")
		}
	}
}

// A frame that is being written is reported as torn, not as damaged.
func TestListDuringAnAppend(t *testing.T) {
	mem := threeSegments(t)
	p := content(t, mem, segmentName(3))
	setContent(t, mem, segmentName(3), append(p, p[len(p)-100:len(p)-60]...))
	l, err := inspect(mem, testDir, true)
	if err != nil || l.Damaged != 0 || !l.Files[2].Torn || l.Pending != 120 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestReplay(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 10 {
		mustAppend(t, s, i*10, 10)
	}
	if _, _, err := s.Next(); err != nil { // Replay starts again with the first batch
		t.Fatal(err)
	}
	var got []int
	broken := errors.New("broken")
	send := func(_ context.Context, b *batch.Batch) batch.Outcome {
		if len(got) == 40 {
			return batch.FailedOutcome(broken)
		}
		ns, err := numbers(b, nil)
		if err != nil {
			t.Error(err)
		}
		got = append(got, ns...)
		return batch.Outcome{}
	}
	done, err := s.Replay(t.Context(), send)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "batch 5") || done != 40 {
		t.Fatalf("%d records, %v", done, err)
	}
	mustClose(t, s)
	s = mustOpen(t, mem, nil)
	if st := s.Stats(); st.Records != 60 {
		t.Errorf("stats %+v", st)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Replay(ctx, send); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got = got[:0]
	// If some records of a batch are not settled, Replay keeps the whole batch.
	for _, o := range []batch.Outcome{{Open: batch.From(9), Why: broken}, {Refused: batch.Of(3), Refusal: broken}, {Open: batch.From(11)}} {
		send := func(context.Context, *batch.Batch) batch.Outcome { return o }
		if done, err := s.Replay(t.Context(), send); err == nil || done != 0 || !errors.Is(err, broken) && o.Err() == broken {
			t.Errorf("%+v: %+v, %v", o, done, err)
		}
	}
	send = func(_ context.Context, b *batch.Batch) batch.Outcome {
		ns, err := numbers(b, nil)
		if err != nil {
			t.Error(err)
		}
		got = append(got, ns...)
		return batch.Outcome{}
	}
	if done, err := s.Replay(t.Context(), send); err != nil || done != 60 || consecutive(got, 40) != nil {
		t.Errorf("%+v, %v, %v", done, err, got)
	}
	mustBalance(t, s)
	mustClose(t, s)
	if _, err := s.Replay(t.Context(), send); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

func TestPurge(t *testing.T) {
	mem := threeSegments(t)
	setContent(t, mem, segmentName(9)+corruptSuffix, make([]byte, 100))
	setContent(t, mem, "something else", nil)
	if n, bytes, err := purge(mem, testDir, true); n != 1 || bytes != 100 || err != nil {
		t.Errorf("%d files, %d bytes, %v", n, bytes, err)
	}
	if n, bytes, err := purge(mem, testDir, false); n != 3 || bytes == 0 || err != nil {
		t.Errorf("%d files, %d bytes, %v", n, bytes, err)
	}
	if got := names(t, mem); !slices.Equal(got, []string{lockName, cursorName, "something else"}) {
		t.Errorf("left %v", got)
	}
	s := mustOpen(t, mem, nil)
	if st := s.Stats(); st.Recovered != 0 {
		t.Errorf("%+v", st)
	}
	mustAppend(t, s, 0, 5)
	if got := drain(t, s, true); len(got) != 5 {
		t.Error(got)
	}
	mustClose(t, s)
	if _, _, err := Purge(t.TempDir()+"/none", false); err == nil {
		t.Error("a directory that is not there")
	}
}

// Reading a spool needs memory for one batch, not for a segment.
func TestReadsInBoundedMemory(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, &spool.Options{SegmentBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := benchBatch(64 << 10)
	const batches = 256 // 16 MiB in one segment
	for range batches {
		if _, err := s.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	for name, read := range map[string]func() int{
		"Open and Next": func() int {
			s, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for range each(t, s) {
				s.mu.Lock()
				s.reader.handedOut.recycle(len(s.reader.handedOut.list)) // recycles buffers as Ack does, but keeps the batches for the next test
				s.mu.Unlock()
				n++
			}
			mustClose(t, s)
			return n
		},
		"Scan": func() int {
			n := 0
			for _, err := range Scan(dir, nil) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		},
		"Verify": func() int {
			l, err := List(dir, true)
			if err != nil {
				t.Fatal(err)
			}
			return int(l.Files[0].Batches)
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := read()
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; n != batches || used > 1<<20 {
			t.Errorf("%s: %d batches, %d bytes allocated", name, n, used)
		}
	}
}
