package diskqueue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// smallQuota returns o with a quota of four segments of 4 KiB, each with about twenty records.
func smallQuota(o spool.Options) *spool.Options {
	o.MaxBytes, o.SegmentBytes = 16<<10, 4<<10
	return &o
}

// Over the quota, the oldest segments are dropped and their records are counted. The remaining
// records are the newest ones and have no gap.
func TestQuotaDropsOldest(t *testing.T) {
	mem := vfs.NewMem()
	var log eventLog
	s := mustOpen(t, mem, smallQuota(spool.Options{OnEvent: log.add}))
	for i := range 100 {
		mustAppend(t, s, i*5, 5)
		mustBalance(t, s)
		if st := s.Stats(); st.Bytes > 16<<10 {
			t.Fatalf("%d bytes", st.Bytes)
		}
		if i == 2 { // the third batch shares a segment with the second; an acknowledged record is not dropped with its segment
			for range 2 {
				if _, seq, err := s.Next(); err != nil || s.Ack(seq) != nil {
					t.Fatal(seq, err)
				}
			}
			s.Rewind()
		}
	}
	st := s.Stats()
	if st.DroppedQuota == 0 || st.Acked != 10 || st.Acked+st.Records+st.DroppedQuota != 500 {
		t.Fatalf("stats %+v", st)
	}
	if es := log.ofKind(t, s, "drop"); len(es) != 1 || es[0].Count == 0 || !strings.Contains(es[0].Err.Error(), "quota of 16 KiB is exceeded") {
		t.Errorf("events %v, want one for the first drops", es)
	}
	got := drain(t, s, true)
	if err := consecutive(got, int(st.Acked+st.DroppedQuota)); err != nil || got[len(got)-1] != 499 {
		t.Error(err, got)
	}
	mustBalance(t, s)
	mustClose(t, s)
	if es := log.ofKind(t, s, "drop-end"); len(es) != 1 || es[0].Count != st.DroppedQuota {
		t.Errorf("events %v, want one for %d records", es, st.DroppedQuota)
	}
}

// Batches that are handed out are not dropped.
func TestQuotaKeepsHandedOutBatches(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), smallQuota(spool.Options{}))
	mustAppend(t, s, 0, 5)
	first, seq, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 100; i++ {
		mustAppend(t, s, i*5, 5)
		mustBalance(t, s)
	}
	if ns, err := numbers(first, nil); err != nil || consecutive(ns, 0) != nil {
		t.Fatal(ns, err)
	}
	// After Rewind, the batch that was handed out is still there.
	s.Rewind()
	got := drain(t, s, false)
	st := s.Stats()
	if !slices.Equal(got[:5], []int{0, 1, 2, 3, 4}) || uint64(len(got))+st.DroppedQuota != 500 || !slices.IsSorted(got) {
		t.Errorf("records %v, dropped %d", got, st.DroppedQuota)
	}
	if err := s.Ack(seq); err != nil {
		t.Fatal(err)
	}
	mustBalance(t, s)
	if st := s.Stats(); st.Acked != 5 {
		t.Errorf("acked %d", st.Acked)
	}
	mustClose(t, s)
}

// Acknowledged records of a dropped segment never count as dropped, not even after a restart.
func TestQuotaCountsOnlyPending(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, smallQuota(spool.Options{}))
	for i := range 8 {
		mustAppend(t, s, i*5, 5)
	}
	settle(t, s, 2)
	mem.ReleaseLocks()
	s = mustOpen(t, mem, smallQuota(spool.Options{}))
	if st := s.Stats(); st.Recovered != 30 {
		t.Fatalf("stats %+v", st)
	}
	for i := 8; s.Stats().DroppedQuota == 0; i++ {
		mustAppend(t, s, i*5, 5)
	}
	mustBalance(t, s)
	got := drain(t, s, false)
	if st := s.Stats(); got[0] != 10+int(st.DroppedQuota) {
		t.Errorf("begins with %d, dropped %d", got[0], st.DroppedQuota)
	}
	mustClose(t, s)
}

func TestQuotaRefuses(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), smallQuota(spool.Options{OverQuota: refuseNew}))
	n, refused := 0, 0
	for i := range 200 {
		switch _, err := s.Append(numbered(i*5, 5, nil, nil)); {
		case err == nil && refused == 0:
			n++
		case errors.Is(err, errFull) && strings.Contains(err.Error(), "raise the quota"):
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
	st := s.Stats()
	if st.DroppedQuota != 0 {
		t.Errorf("stats %+v", st)
	}
	// Acknowledging batches makes room for new ones.
	if err := consecutive(drain(t, s, true)[:n*5], 0); err != nil {
		t.Error(err)
	}
	mustAppend(t, s, 0, 5)
	mustBalance(t, s)
	mustClose(t, s)
}

func TestQuotaTooLargeBatch(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), smallQuota(spool.Options{}))
	mustAppend(t, s, 0, 5)
	if _, err := s.Append(numbered(0, 200, nil, nil)); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
	if st := s.Stats(); st.Records != 5 || st.DroppedQuota != 0 {
		t.Errorf("other batches were dropped for a batch that never fits: %+v", st)
	}
	mustClose(t, s)
}

// A batch that fills the quota exactly is stored. A batch that is one byte larger is not.
func TestQuotaExactFit(t *testing.T) {
	const quota = 16 << 10
	appended := func(o *spool.Options, n int) (bytes int64, err error) {
		s := mustOpen(t, vfs.NewMem(), o)
		defer mustClose(t, s)
		b := &batch.Batch{}
		b.Add(layout.NewRun(make([]byte, n), []layout.Slot{{Ticket: 1, Len: uint32(n)}}))
		_, err = s.Append(b)
		return s.Stats().Bytes, err
	}
	size, err := appended(nil, quota/2)
	if err != nil {
		t.Fatal(err)
	}
	fits := quota/2 + int(quota-size)
	if size, err := appended(&spool.Options{MaxBytes: quota, SegmentBytes: 4 << 10}, fits); err != nil || size != quota {
		t.Errorf("of a quota of %d bytes %d are used: %v", quota, size, err)
	}
	if _, err := appended(&spool.Options{MaxBytes: quota, SegmentBytes: 4 << 10}, fits+1); !errors.Is(err, errFull) {
		t.Errorf("a batch larger than the quota: %v", err)
	}
}

// Damaged files count toward the quota and are deleted first.
func TestQuotaDeletesDamagedFilesFirst(t *testing.T) {
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1)+corruptSuffix, make([]byte, 8<<10))
	s := mustOpen(t, mem, smallQuota(spool.Options{}))
	for i := 0; s.Stats().AsideFiles == 1; i++ {
		mustAppend(t, s, i*5, 5)
	}
	if st := s.Stats(); st.DroppedQuota != 0 || slices.Contains(names(t, mem), segmentName(1)+corruptSuffix) {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
}

// A lower quota applies to existing segments.
func TestQuotaLowered(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, &spool.Options{SegmentBytes: 4 << 10})
	for i := range 40 {
		mustAppend(t, s, i*5, 5)
	}
	mem.ReleaseLocks()
	s = mustOpen(t, mem, smallQuota(spool.Options{}))
	mustAppend(t, s, 200, 5)
	mustBalance(t, s)
	if st := s.Stats(); st.Bytes > 16<<10 || st.Recovered != 200 || st.Records+st.DroppedQuota != 205 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
}

// If handed-out batches leave too little room for a new batch, no batch is dropped for it.
func TestQuotaDropsNothingInVain(t *testing.T) {
	mem := vfs.NewMem()
	setContent(t, mem, segmentName(1)+corruptSuffix, make([]byte, 1<<10))
	s := mustOpen(t, mem, smallQuota(spool.Options{}))
	mustAppend(t, s, 1, 36) // larger than half the quota
	if _, _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		mustAppend(t, s, 40+i*5, 5)
	}
	if _, err := s.Append(numbered(100, 36, nil, nil)); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
	if st := s.Stats(); st.DroppedQuota != 0 || st.Records != 51 || st.AsideFiles != 1 {
		t.Errorf("other batches were dropped for a batch that cannot fit: %+v", st)
	}
	for i := range 20 { // smaller batches may drop other batches
		mustAppend(t, s, 200+i*5, 5)
	}
	if st := s.Stats(); st.DroppedQuota == 0 || st.Bytes > st.MaxBytes || st.AsideFiles != 0 {
		t.Errorf("stats %+v", st)
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// While records are dropped over the quota, one event per 10 s reports them, not one per segment.
func TestQuotaEventsAreASeries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log eventLog
		s := mustOpen(t, vfs.NewMem(), smallQuota(spool.Options{OnEvent: log.add}))
		for i := range 250 { // 25 s
			mustAppend(t, s, i*5, 5)
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.Stats().DroppedSegments; n < 20 {
			t.Fatalf("%d segments dropped", n)
		}
		time.Sleep(25 * time.Second)
		sum := uint64(0)
		drops, ends := log.ofKind(t, s, "drop"), log.ofKind(t, s, "drop-end")
		for _, e := range drops {
			sum += e.Count
		}
		n := s.Stats().DroppedQuota
		if len(drops) > 4 || sum != n || len(ends) != 1 || ends[0].Count != n || ends[0].Dropped != (batch.Drops{batch.Quota: n}) {
			t.Errorf("%d records dropped, events %v, %v", n, drops, ends)
		}
		mustClose(t, s)
	})
}
