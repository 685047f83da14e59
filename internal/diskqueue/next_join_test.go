package diskqueue

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// NextUpTo combines batches up to a damaged one. Batches in later segments are delivered as usual.
func TestNextUpToDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for first := 0; first < 60; first += 10 {
		b := numbered(first, 10, nil, formA)
		b.Origin = sharedOrigin(first)
		if _, err := s.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	next := func(bytes, records, want int, seq uint64) {
		t.Helper()
		b, got, err := s.NextUpTo(bytes, records)
		if want == 0 {
			if err != io.EOF {
				t.Fatalf("%v, %v", b, err)
			}
			return
		}
		if err != nil || b.Len() != want || got != seq {
			t.Fatalf("batch %d of %d records, %v; want %d of %d", got, b.Len(), err, seq, want)
		}
	}
	all := 1 << 30
	next(all, 29, 20, 2)
	next(all, all, 40, 6)
	s.Rewind()
	next(0, 0, 10, 1)
	if err := s.Ack(1); err != nil {
		t.Fatal(err)
	}
	s.Rewind()
	name := segmentName(1)
	data := content(t, mem, name)
	data[len(data)/2] ^= 1 // in the third or fourth batch
	setContent(t, mem, name, data)
	b, seq, err := s.NextUpTo(all, all)
	if err != nil || b.Len() >= 50 || b.Len()%10 != 0 || int(seq) != 1+b.Len()/10 {
		t.Fatalf("batch %d, %v", seq, err)
	}
	next(all, all, 0, 0) // the rest of the segment is skipped
	if got := s.Stats().Corrupt; int(got) != 50-b.Len() {
		t.Errorf("%d records are damaged", got)
	}
	if err := s.Ack(seq); err != nil {
		t.Fatal(err)
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// NextUpTo ends with the last batch of a segment, even if further frames in the file belong to
// failed Appends or were skipped as damaged.
func TestJoinEndsWithTheSegment(t *testing.T) {
	batchOf := func(first, n int) *batch.Batch {
		b := numbered(first, n, nil, nil)
		b.Origin = sharedOrigin(0)
		return b
	}
	mustHave := func(s *Spool, want ...int) {
		t.Helper()
		var got []int
		for {
			b, seq, err := s.NextUpTo(1<<30, 1<<30)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range b.All() {
				n, err := recordNumber(r.Data)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, n)
			}
			if err := s.Ack(seq); err != nil {
				t.Fatal(err)
			}
			mustBalance(t, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("records %v, want %v", got, want)
		}
		mustClose(t, s)
	}
	for _, refused := range []int{1, 2, 3} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		s := mustOpen(t, fs, &spool.Options{Sync: syncAlways})
		mustPut := func(b *batch.Batch) {
			if _, err := s.Append(b); err != nil {
				t.Fatal(err)
			}
		}
		mustPut(batchOf(0, 2))
		fs.SetHook(vfs.FailOn(syscall.EIO, vfs.OpSync, vfs.OpTruncate))
		if _, err := s.Append(batchOf(100, refused)); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		fs.SetHook(nil)
		mustPut(batchOf(200, 2))
		mustPut(batchOf(300, 2))
		mustClose(t, s)
		mustHave(mustOpen(t, mem, nil), 0, 1, 200, 201, 300, 301)
	}

	// A read fails while the spool is opened, but not later. Batches that Open could not read are
	// not returned.
	harmed := 0
	for nth := 1; nth < 20; nth++ {
		mem := vfs.NewMem()
		s := mustOpen(t, mem, nil)
		for i := range 6 {
			if _, err := s.Append(batchOf(10*i, 1)); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
		reads, opened := 0, false
		s, err := open(vfs.NewFaulty(mem, func(c vfs.Call) (int, error) {
			if c.Op == vfs.OpRead && !opened && strings.HasSuffix(c.Name, segmentSuffix) {
				if reads++; reads == nth {
					return 0, syscall.EIO
				}
			}
			return 0, nil
		}), testDir, nil)
		if opened = true; err != nil {
			continue
		}
		var want []int
		for i := range s.Stats().Records {
			want = append(want, 10*int(i))
		}
		if len(want) < 6 {
			harmed++
		}
		if _, err := s.Append(batchOf(100, 1)); err != nil {
			t.Fatal(err)
		}
		mustHave(s, append(want, 100)...)
	}
	if harmed == 0 {
		t.Error("no failed read hid a batch")
	}
}

// Buffers that are kept for reuse do not refer to batches combined in them.
func TestJoinKeepsNoMemory(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	for i := range 3 * joinMost {
		b := numbered(i, 1, nil, nil)
		b.Origin = sharedOrigin(0)
		if _, err := s.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	b, seq, err := s.NextUpTo(1<<30, 1<<30)
	if err != nil || b.Len() != joinMost+1 {
		t.Fatalf("%d records, %v", b.Len(), err)
	}
	if err := s.Ack(seq); err != nil {
		t.Fatal(err)
	}
	if len(s.reader.handedOut.free) != keepHandouts {
		t.Errorf("%d handouts are kept", len(s.reader.handedOut.free))
	}
	for _, o := range s.reader.handedOut.free {
		if len(o.batch.Runs) > 0 || cap(o.batch.Runs) > 1 {
			t.Errorf("a handout refers to %d batches", cap(o.batch.Runs))
		}
	}
	mustClose(t, s)
}

// Records that a destination refuses without naming them are not delivered again.
func TestReplayOfRefusedWithoutNames(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	mustAppend(t, s, 0, 10)
	mustAppend(t, s, 10, 10)
	done, err := s.Replay(t.Context(), func(context.Context, *batch.Batch) batch.Outcome {
		return batch.Outcome{Unnamed: 3, Refusal: errors.New("no good")}
	})
	if err != nil || done != 20 || s.Stats().Records != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	mustClose(t, s)
}
