package diskqueue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// The quota does not delete the segment that the reader has open, although none of its batches is
// handed out.
func TestQuotaKeepsTheOpenSegment(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), smallQuota(spool.Options{}))
	for i := range 10 {
		mustAppend(t, s, i*5+1, 5)
	}
	settle(t, s, 1)
	for i := 10; i < 30; i++ {
		mustAppend(t, s, i*5+1, 5)
	}
	got := drain(t, s, true)
	if got[0] != 6 || s.Stats().DroppedQuota == 0 {
		t.Errorf("records %v, stats %+v", got, s.Stats())
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// If all other segments contain batches that are handed out, the quota drops the active segment.
// The next segment defines its streams again.
func TestQuotaDropsTheActiveSegment(t *testing.T) {
	d := newTestDict(0)
	o := smallQuota(spool.Options{Streams: d})
	s := mustOpen(t, vfs.NewMem(), o)
	next := 1
	add := func() {
		if _, err := s.Append(numbered(next, 5, d, nil)); err != nil {
			t.Fatal(err)
		}
		next += 5
	}
	if _, err := s.Append(numbered(next, 36, d, nil)); err != nil { // larger than half the quota
		t.Fatal(err)
	}
	next += 36
	for s.Stats().Segments < 3 {
		add()
	}
	for s.queue.read.seq < s.queue.active.first.seq {
		if _, _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for s.Stats().DroppedQuota == 0 {
		add()
	}
	s.Rewind()
	var got []int
	for {
		b, _, err := s.Next()
		if err != nil {
			break
		}
		ns, err := numbers(b, d)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ns...)
	}
	if st := s.Stats(); st.Corrupt != 0 || uint64(len(got))+st.DroppedQuota != uint64(next-1) || !slices.IsSorted(got) {
		t.Errorf("%d records of %d, stats %+v", len(got), next-1, st)
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// Stream definitions in settled batches are also checked, because a damaged one could give later
// records a wrong stream.
func TestDefinitionsOfSettledBatchesAreChecked(t *testing.T) {
	mem := vfs.NewMem()
	d := newTestDict(0)
	s := mustOpen(t, mem, &spool.Options{Streams: d})
	for i := range 4 {
		if _, err := s.Append(numbered(1+i*30, 30, d, nil)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, 1)
	mustClose(t, s)
	// Open reads the last segment completely and would find the damage there, so another segment is
	// added.
	s = mustOpen(t, mem, &spool.Options{Streams: d})
	if _, err := s.Append(numbered(200, 5, d, formA)); err != nil {
		t.Fatal(err)
	}
	mem.ReleaseLocks()
	flip(t, mem, segmentName(1), frameOffsets(t, mem, segmentName(1))[0]+frameHeaderBytes+4)
	s = mustOpen(t, mem, &spool.Options{Streams: d})
	for {
		b, _, err := s.Next()
		if err != nil {
			break
		}
		if _, err := numbers(b, d); err != nil {
			t.Fatal(err)
		}
	}
	mustBalance(t, s)
	if st := s.Stats(); st.Corrupt != 90 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
}

// Batches that Next returned before a Rewind remain readable.
func TestRewindKeepsBatchesReadable(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	for i := range 6 {
		mustAppend(t, s, 1+i*20, 20)
	}
	var out []*batch.Batch
	for range 3 {
		for range 6 {
			b, _, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		s.Rewind()
	}
	for i, b := range out {
		if ns, err := numbers(b, nil); err != nil || consecutive(ns, 1+i%6*20) != nil {
			t.Fatal(i, ns, err)
		}
	}
	mustClose(t, s)
}

// Sync covers the cursor, and batches that an earlier process did not sync.
func TestSyncCoversEverything(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, nil)
	mustAppend(t, s, 1, 10)
	mustAppend(t, s, 11, 10)
	mem.ReleaseLocks()
	s = mustOpen(t, mem, nil)
	settle(t, s, 1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	r := testSeed(t)
	c := mustOpen(t, mem.CrashClone(r, 0), nil)
	if err := consecutive(drain(t, c, false), 11); err != nil || c.Stats().Records != 10 {
		t.Errorf("stats %+v: %v", c.Stats(), err)
	}
	mustClose(t, c)
	mustClose(t, s)
}

// Sync skips segments that are on stable storage.
func TestSyncIsNotRepeated(t *testing.T) {
	fs := vfs.NewFaulty(vfs.NewMem(), nil)
	s := mustOpen(t, fs, nil)
	mustAppend(t, s, 1, 10)
	for round, want := range []int{1, 0, 1} {
		if round == 2 {
			mustAppend(t, s, 11, 10)
		}
		synced := 0
		fs.SetHook(func(c vfs.Call) (int, error) {
			if c.Op == vfs.OpSync && strings.HasSuffix(c.Name, segmentName(1)) {
				synced++
			}
			return 0, nil
		})
		if err := s.Sync(); err != nil || synced != want {
			t.Errorf("round %d: the segment was synced %d times, want %d: %v", round, synced, want, err)
		}
	}
	fs.SetHook(nil)
	mustClose(t, s)
}

// A failed deletion of a segment is repeated later.
func TestDeletionIsTriedAgain(t *testing.T) {
	mem := threeSegments(t)
	fs := vfs.NewFaulty(mem, nil)
	s := mustOpen(t, fs, nil)
	fs.SetHook(vfs.FailOn(errInjected, vfs.OpRemove))
	settle(t, s, 9)
	if got := names(t, mem); len(got) != 5 {
		t.Fatal(got)
	}
	fs.SetHook(nil)
	drain(t, s, true)
	mustClose(t, s)
	if got := names(t, mem); !slices.Equal(got, []string{lockName, cursorName}) {
		t.Errorf("left %v", got)
	}
}

// If a settled segment cannot be deleted, its file still counts as a file of this process, so
// Append continues after the active segment was deleted. A different file with the same name is not
// deleted.
func TestUndeletedSegmentIsKnownByItsContent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := threeSegments(t)
		fs := vfs.NewFaulty(mem, nil)
		s := mustOpen(t, fs, nil)
		fs.SetHook(vfs.FailOn(errInjected, vfs.OpRemove))
		settle(t, s, 4)
		if got := names(t, mem); got[0] != segmentName(1) {
			t.Fatal(got)
		}
		if err := mem.Remove(testDir + "/" + segmentName(3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		mustAppend(t, s, 500, 10)
		other := content(t, threeSegments(t), segmentName(1))
		setContent(t, mem, segmentName(1), other)
		fs.SetHook(nil)
		drain(t, s, true)
		mustClose(t, s)
		if got := names(t, mem); !slices.Equal(got, []string{segmentName(1), lockName, cursorName}) {
			t.Errorf("left %v", got)
		}
		if !slices.Equal(content(t, mem, segmentName(1)), other) {
			t.Error("the other file has changed")
		}
	})
}

// A loss of power can remove batches that the cursor has marked as acknowledged. New batches get
// higher numbers, so they do not count as acknowledged.
func TestNumbersContinueAfterTheCursor(t *testing.T) {
	for _, lose := range []func(mem *vfs.Mem){
		func(mem *vfs.Mem) { setContent(t, mem, segmentName(3), nil) },
		func(mem *vfs.Mem) {
			for i := range 3 {
				_ = mem.Remove(testDir + "/" + segmentName(uint64(i+1)))
			}
		},
	} {
		mem := threeSegments(t)
		s := mustOpen(t, mem, nil)
		settle(t, s, 11)
		mem.ReleaseLocks()
		lose(mem)
		for range 2 {
			s = mustOpen(t, mem, nil)
			if st := s.Stats(); st.Recovered != 0 {
				t.Fatalf("stats %+v", st)
			}
			if seq := mustAppend(t, s, 500, 10); seq != 12 {
				t.Errorf("number %d, want 12", seq)
			}
			mem.ReleaseLocks()
			s = mustOpen(t, mem, nil)
			if got := drain(t, s, false); len(got) != 10 || got[0] != 500 {
				t.Errorf("records %v", got)
			}
			mustBalance(t, s)
			mustClose(t, s)
			if _, _, err := purge(mem, testDir, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Events are reported before Close returns. A hanging callback delays Close only briefly.
func TestCloseReportsEvents(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			reported := 0
			s, err := open(vfs.NewMem(), "dir", &spool.Options{MaxBytes: 4 * minSegmentBytes, OnEvent: func(batch.Event) {
				if hangs {
					<-release
				}
				time.Sleep(10 * time.Millisecond)
				reported++
			}})
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; s.Stats().DroppedSegments == 0; n += 50 {
				mustAppend(t, s, n, 50)
			}
			began := time.Now()
			mustClose(t, s)
			switch d := time.Since(began); {
			case !hangs && reported != 2: // drop and drop-end
				t.Errorf("%d events reported", reported)
			case hangs && d > 2*callback.Grace:
				t.Errorf("closing took %s", d)
			}
			close(release)
			time.Sleep(time.Second)
		})
	}
}

// A segment that contains only the frame of a failed Append is never read, even if the batches
// before it are lost. The next segment uses the batch number of that frame again.
func TestFailedAppendAfterAGap(t *testing.T) {
	for _, restart := range []bool{false, true} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		var log eventLog
		o := &spool.Options{SegmentBytes: minSegmentBytes, MaxBytes: 4 * minSegmentBytes, OnEvent: log.add}
		s := mustOpen(t, fs, o)
		add := func(first, n int, c batch.Codec) error {
			_, err := s.Append(numbered(first, n, nil, c))
			return err
		}
		if err := add(1, 5, formA); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Next(); err != nil { // the quota does not drop a batch that is handed out
			t.Fatal(err)
		}
		if err := add(10, 20, formB); err != nil {
			t.Fatal(err)
		}
		fs.SetHook(func(c vfs.Call) (int, error) {
			if c.Op == vfs.OpWrite && c.Len > 100 || c.Op == vfs.OpTruncate {
				return c.Len, errInjected
			}
			return 0, nil
		})
		if err := add(40, 5, formA); !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		fs.SetHook(nil)
		if err := add(50, 5, formA); err != nil {
			t.Fatal(err)
		}
		for n := 55; s.Stats().DroppedSegments == 0; n += 5 { // drops the segment with records 10 to 29
			if err := add(n, 5, formA); err != nil {
				t.Fatal(err)
			}
		}
		if restart {
			mem.ReleaseLocks()
			s = mustOpen(t, mem, o)
		} else {
			s.Rewind()
		}
		got := drain(t, s, true)
		if len(got) < 10 || consecutive(got[:5], 1) != nil || consecutive(got[5:], 50) != nil {
			t.Errorf("restart %t: records %v", restart, got)
		}
		mustBalance(t, s)
		if es := log.ofKind(t, s, "corrupt"); len(es) != 0 || s.Stats().Corrupt != 0 {
			t.Errorf("restart %t: %v", restart, es)
		}
		mustClose(t, s)
	}
}
