package diskqueue

import (
	"slices"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// run returns a batch of n records of an origin, with consecutive tickets that begin with first.
func run(origin byte, first, n int, c batch.Codec) *batch.Batch {
	b := &batch.Batch{Codec: c, Origin: [16]byte{origin}}
	for i := range n {
		b.Append(record(first+i), uint64(first+i), batch.Meta{})
	}
	return b
}

// mustRun appends the batch run(origin, first, n, c) to s.
func mustRun(t *testing.T, s *Spool, origin byte, first, n int, c batch.Codec) {
	t.Helper()
	if _, err := s.Append(run(origin, first, n, c)); err != nil {
		t.Fatal(err)
	}
}

// wantHeld checks the result of Held for the tickets 1 to 1000 of an origin.
func wantHeld(t *testing.T, s *Spool, origin byte, want ...layout.Tickets) {
	t.Helper()
	got := s.Held([16]byte{origin}, 1, 1000)
	slices.SortFunc(got, func(a, b layout.Tickets) int { return int(a.First) - int(b.First) })
	if !slices.Equal(got, want) {
		t.Errorf("origin %d: held %v, want %v", origin, got, want)
	}
}

// Held reports the records in the spool and the records acknowledged by any process, even after
// their segments are deleted.
func TestHeldAfterAckAndRestart(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: minSegmentBytes})
	mustRun(t, s, 1, 10, 5, nil)
	mustRun(t, s, 2, 10, 50, nil)
	mustRun(t, s, 1, 15, 5, nil)
	mustRun(t, s, 1, 30, 1, formA) // goes into another segment, because of its form
	wantHeld(t, s, 1, layout.Tickets{First: 10, Last: 14}, layout.Tickets{First: 15, Last: 19}, layout.Tickets{First: 30, Last: 30})
	wantHeld(t, s, 2, layout.Tickets{First: 10, Last: 59})
	wantHeld(t, s, 3)
	wantHeld(t, s, 0)
	if got := s.Held([16]byte{2}, 20, 30); !slices.Equal(got, []layout.Tickets{{First: 20, Last: 30}}) {
		t.Errorf("between 20 and 30: %v", got)
	}
	settle(t, s, 3)
	if slices.Contains(names(t, mem), segmentName(1)) {
		t.Fatal("the first segment is there")
	}
	for range 3 {
		wantHeld(t, s, 1, layout.Tickets{First: 10, Last: 19}, layout.Tickets{First: 30, Last: 30})
		wantHeld(t, s, 2, layout.Tickets{First: 10, Last: 59})
		if got := s.Held([16]byte{2}, 20, 30); !slices.Equal(got, []layout.Tickets{{First: 20, Last: 30}}) {
			t.Errorf("between 20 and 30: %v", got)
		}
		mustClose(t, s)
		s = mustOpen(t, mem, nil)
	}
	settle(t, s, 1)
	wantHeld(t, s, 1, layout.Tickets{First: 10, Last: 19}, layout.Tickets{First: 30, Last: 30}, layout.Tickets{First: 30, Last: 30})
	mustClose(t, s)
	if got := s.Held([16]byte{1}, 1, 100); got != nil {
		t.Errorf("after Close, Held returns %v", got)
	}
}

// Held omits records dropped over the quota, and includes parked records.
func TestHeldQuotaAndParked(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: minSegmentBytes, MaxBytes: 4 * minSegmentBytes})
	mustRun(t, s, 1, 1, 10, formB)
	for i := range 9 {
		mustRun(t, s, 2, 1+10*i, 10, formA)
	}
	if s.Stats().DroppedQuota == 0 {
		t.Fatal("nothing was dropped")
	}
	wantHeld(t, s, 1)
	mustClose(t, s)

	mem = vfs.NewMem()
	s = mustOpen(t, mem, nil)
	mustRun(t, s, 1, 1, 10, formB)
	mustRun(t, s, 2, 1, 10, formA)
	mustClose(t, s)
	for range 2 {
		s = mustOpen(t, mem, &spool.Options{Accepts: func(form string, _ uint32) bool { return form == formA.ContentType() }})
		if s.Stats().Parked != 10 {
			t.Fatal("nothing is parked")
		}
		wantHeld(t, s, 1, layout.Tickets{First: 1, Last: 10})
		wantHeld(t, s, 2, layout.Tickets{First: 1, Last: 10})
		mustClose(t, s)
	}
}

// Held omits the records of a damaged frame and of later frames, because Next does not return them.
func TestHeldEndsAtDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 4 {
		mustRun(t, s, byte(1+i), 1, 3, formA)
	}
	mustRun(t, s, 5, 1, 3, formB)
	mustClose(t, s)
	offs := frameOffsets(t, mem, segmentName(1))
	flip(t, mem, segmentName(1), offs[2]-1) // the last byte of the second frame
	s = mustOpen(t, mem, &spool.Options{OnEvent: func(batch.Event) {}})
	for range 2 {
		wantHeld(t, s, 1, layout.Tickets{First: 1, Last: 3})
		wantHeld(t, s, 2)
		wantHeld(t, s, 3)
		wantHeld(t, s, 4)
		wantHeld(t, s, 5, layout.Tickets{First: 1, Last: 3})
		for range each(t, s) {
		}
	}
	mustClose(t, s)
}

// A segment ends at the first batch number of the next segment. Batches after that are ignored.
func TestHeldEndsWithTheSegment(t *testing.T) {
	old, mem := vfs.NewMem(), vfs.NewMem()
	s := mustOpen(t, old, nil)
	mustRun(t, s, 1, 1, 3, formA)
	mustRun(t, s, 2, 1, 3, formA)
	mustClose(t, s)
	s = mustOpen(t, mem, nil)
	mustRun(t, s, 1, 1, 3, formA)
	mustRun(t, s, 3, 1, 3, formB)
	mustClose(t, s)
	setContent(t, mem, segmentName(1), content(t, old, segmentName(1)))
	s = mustOpen(t, mem, nil)
	wantHeld(t, s, 1, layout.Tickets{First: 1, Last: 3})
	wantHeld(t, s, 2)
	wantHeld(t, s, 3, layout.Tickets{First: 1, Last: 3})
	mustClose(t, s)
}

// The list of acknowledged tickets has a limited number of ranges; the oldest are removed. If the
// list is damaged, or an earlier version wrote the cursor, the list is empty.
func TestSettledTicketsAreBounded(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	for i := range 2 * maxSettled {
		mustRun(t, s, 1, 1+2*i, 1, nil)
	}
	mustRun(t, s, 2, 1, 1, nil)
	settle(t, s, 2*maxSettled)
	mustClose(t, s)
	setContent(t, mem, segmentName(1), nil) // so Held depends only on the cursor
	s = mustOpen(t, mem, &spool.Options{OnEvent: func(batch.Event) {}})
	got := s.Held([16]byte{1}, 1, 1000)
	if n := len(got); n < maxSettled-2 || n > maxSettled || !slices.Contains(got, layout.Tickets{First: 4*maxSettled - 1, Last: 4*maxSettled - 1}) {
		t.Errorf("%d ranges: %v", len(got), got)
	}
	wantHeld(t, s, 2)
	mustClose(t, s)
	for _, at := range []int64{cursorSlotBytes, cursorStride + cursorSlotBytes} {
		flip(t, mem, cursorName, at+settledHeadBytes+settledEntryBytes+3)
	}
	s = mustOpen(t, mem, &spool.Options{OnEvent: func(batch.Event) { t.Error("reported") }})
	wantHeld(t, s, 1)
	mustClose(t, s)
	setContent(t, mem, cursorName, content(t, mem, cursorName)[:cursorStride+cursorSlotBytes])
	s = mustOpen(t, mem, nil)
	wantHeld(t, s, 1)
	mustClose(t, s)
}
