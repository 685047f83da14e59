package diskqueue

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// On a full disk, Append fails and stores nothing. It succeeds once there is space again.
func TestNoSpace(t *testing.T) {
	mem := vfs.NewMem()
	fs := vfs.NewFaulty(mem, nil)
	s := mustOpen(t, fs, nil)
	hook, free := vfs.NoSpace(5000)
	fs.SetHook(hook)
	stored := 0
	for i := range 50 {
		_, err := s.Append(numbered(stored*5, 5, nil, nil))
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "spool: cannot"):
			t.Fatal(err)
		case i%10 == 9:
			free(2000)
		}
	}
	if stored < 4 {
		t.Fatalf("stored %d", stored)
	}
	check := func() {
		t.Helper()
		s.Rewind()
		got := drain(t, s, false)
		if err := consecutive(got, 0); err != nil || len(got) != stored*5 {
			t.Fatal(len(got), stored, err)
		}
		mustBalance(t, s)
	}
	check()
	// Ack needs no disk space, because the cursor file has its full size from the start.
	mem.ReleaseLocks()
	fs = vfs.NewFaulty(mem, nil)
	s = mustOpen(t, fs, nil)
	check()
	mustClose(t, s)
}

// If any single operation of the file system fails once, no batch whose Append returned nil is
// lost, and the spool continues to work.
func TestEveryOperationFails(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpCreate, vfs.OpWrite, vfs.OpTruncate, vfs.OpSync, vfs.OpSyncDir, vfs.OpRemove, vfs.OpRename, vfs.OpRead} {
		for _, policy := range []string{syncNever, syncAlways} {
			t.Run(fmt.Sprint(op, " ", policy), func(t *testing.T) {
				mem := vfs.NewMem()
				fs := vfs.NewFaulty(mem, nil)
				s := mustOpen(t, fs, &spool.Options{SegmentBytes: 4 << 10, Sync: policy})
				next := 0
				store := func() {
					if _, err := s.Append(numbered(next, 5, nil, nil)); err == nil {
						next += 5
					} else if !errors.Is(err, syscall.EIO) {
						t.Fatal(err)
					}
				}
				for range 10 {
					store()
				}
				fs.SetHook(func(c vfs.Call) (int, error) {
					if c.Op == op || c.Op == vfs.OpWrite && op == vfs.OpTruncate {
						return c.Len / 2, syscall.EIO
					}
					return 0, nil
				})
				first := 0
				for range 12 {
					store()
					_, seq, err := s.Next()
					if err == nil {
						_ = s.Ack(seq) // the batch is settled even if the cursor cannot be written
						first += 5
					}
				}
				_ = s.Sync()
				fs.SetHook(nil)
				store()
				mustBalance(t, s)
				s.Rewind()
				got := drain(t, s, false)
				if op == vfs.OpRead { // finally, the batch counts as unreadable; see TestUnreadablePlaceCountsAsDamaged
					if len(got) == 0 || got[len(got)-1] != next-1 {
						t.Error(got, next)
					}
				} else if err := consecutive(got, got[0]); err != nil || got[0] > first || got[len(got)-1] != next-1 {
					t.Errorf("records %d…%d, want %d…%d: %v", got[0], got[len(got)-1], first, next-1, err)
				}
				mem.ReleaseLocks()
				if op != vfs.OpRead {
					s = mustOpen(t, mem, nil)
					again := drain(t, s, false)
					if err := consecutive(again, again[0]); err != nil || again[0] > got[0] || again[len(again)-1] != next-1 {
						t.Errorf("after a restart: records %v: %v", again, err)
					}
					mustBalance(t, s)
				}
				mustClose(t, s)
			})
		}
	}
}

// With Options.Sync "always", a batch whose sync failed is not stored, and nothing more is appended
// to its segment.
func TestSyncAlwaysFails(t *testing.T) {
	mem := vfs.NewMem()
	fs := vfs.NewFaulty(mem, nil)
	s := mustOpen(t, fs, &spool.Options{Sync: syncAlways})
	mustAppend(t, s, 0, 5)
	fs.SetHook(vfs.FailOn(syscall.EIO, vfs.OpSync))
	if _, err := s.Append(numbered(5, 5, nil, nil)); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "not on stable storage") {
		t.Fatal(err)
	}
	fs.SetHook(nil)
	mustAppend(t, s, 10, 5)
	if st := s.Stats(); st.Segments != 2 || st.Records != 10 {
		t.Errorf("stats %+v", st)
	}
	if got := drain(t, s, true); len(got) != 10 || got[5] != 10 {
		t.Errorf("records %v", got)
	}
	mustClose(t, s)
}

// If the frame of a failed Append cannot be truncated, it stays in its segment, and the next
// segment has a batch with the same number. Even after that batch is acknowledged and deleted, the
// frame is not read.
func TestFrameOfFailedAppendIsNotRead(t *testing.T) {
	for _, c := range []struct{ refused, stored, read int }{
		{refused: 7, stored: 3, read: 5 + 5},
		{refused: 3, stored: 7, read: 5 + 3 + 5}, // the frame cannot be distinguished from a stored batch
	} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		s := mustOpen(t, fs, &spool.Options{Sync: syncAlways})
		refuse := func(first, n int) {
			t.Helper()
			fs.SetHook(vfs.FailOn(syscall.EIO, vfs.OpSync, vfs.OpTruncate))
			defer fs.SetHook(nil)
			if _, err := s.Append(numbered(first, n, nil, nil)); !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
		}
		mustAppend(t, s, 0, 5)
		refuse(100, c.refused)
		if seq := mustAppend(t, s, 200, c.stored); seq != 2 {
			t.Fatal(seq)
		}
		refuse(300, 1)
		mustAppend(t, s, 400, 5)
		mustClose(t, s)
		if err := mem.Remove(filepath.Join(testDir, segmentName(2))); err != nil {
			t.Fatal(err)
		}

		scanned := 0
		for e, err := range scan(mem, testDir, nil) {
			if err != nil {
				t.Fatal(err)
			}
			scanned += e.Batch.Len()
		}
		l, err := inspect(mem, testDir, true)
		if err != nil {
			t.Fatal(err)
		}
		if scanned != c.read || l.Pending != uint64(c.read) || l.Damaged != 0 {
			t.Errorf("%+v: Scan finds %d records, List %+v", c, scanned, l)
		}
		s = mustOpen(t, mem, nil)
		if got := drain(t, s, false); len(got) != c.read || s.Stats().Recovered != uint64(c.read) {
			t.Errorf("%+v: records %v, %d recovered", c, got, s.Stats().Recovered)
		}
		mustBalance(t, s)
		mustClose(t, s)
	}
}

// An Append fails, its frame cannot be truncated, and the process is killed before it stores
// another batch. The next process then treats the frame as a batch. Held returns the tickets
// (numbers) of its records, so that the same records are not also recovered from a crash-safe file.
func TestFrameOfFailedAppendIsHeldAfterKill(t *testing.T) {
	for _, stored := range []int{0, 1} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		s := mustOpen(t, fs, &spool.Options{Sync: syncAlways})
		held := func() (n int) {
			for _, t := range s.Held(testOrigin(100), 1, math.MaxUint64) {
				n += int(t.Last - t.First + 1)
			}
			return n
		}
		mustAppend(t, s, 0, 5)
		fs.SetHook(vfs.FailOn(syscall.EIO, vfs.OpSync, vfs.OpTruncate))
		if _, err := s.Append(numbered(100, 3, nil, nil)); !errors.Is(err, syscall.EIO) || held() != 0 {
			t.Fatalf("%v; %d records are held", err, held())
		}
		fs.SetHook(nil)
		want := 3
		if stored > 0 {
			mustAppend(t, s, 200, stored)
			want = 0
		}
		fs.Kill()
		s = mustOpen(t, mem, nil)
		if n := held(); n != want || s.Stats().Recovered != uint64(5+want+stored) {
			t.Errorf("%d records are held, want %d: %+v", n, want, s.Stats())
		}
		mustClose(t, s)
	}
}

// If the creation of a segment fails and leaves a file that cannot be deleted, all later segments
// have higher numbers than that file. Otherwise Open would take the file for the successor of a
// good segment, and ignore the batches of that segment.
func TestSegmentsFollowFileOfFailedCreation(t *testing.T) {
	mem := vfs.NewMem()
	fs := vfs.NewFaulty(mem, nil)
	s := mustOpen(t, fs, nil)
	last := ""
	fs.SetHook(func(c vfs.Call) (int, error) {
		switch {
		case c.Op == vfs.OpWrite:
			last = c.Name
			return c.Len, syscall.EIO
		case c.Op == vfs.OpRemove && c.Name == last: // only the deletion of earlier files succeeds
			return 0, syscall.EIO
		}
		return 0, nil
	})
	for range 2 {
		if _, err := s.Append(numbered(100, 5, nil, nil)); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	fs.SetHook(nil)
	mustAppend(t, s, 0, 5)
	fs.Kill()
	s = mustOpen(t, mem, nil)
	if got := drain(t, s, true); len(got) != 5 || s.Stats().Damages != 0 {
		t.Errorf("records %v, files %v, stats %+v", got, names(t, mem), s.Stats())
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// The background sync runs one interval after an Append. It reports the first failure once and the
// recovery once.
func TestSyncIntervalReportsTransitions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		var log eventLog
		s := mustOpen(t, fs, &spool.Options{Sync: syncInterval, SyncInterval: time.Second, OnEvent: log.add})
		mustAppend(t, s, 0, 5)
		mustAppend(t, s, 5, 5)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if st := s.Stats(); st.Syncs != 0 {
			t.Fatalf("%d syncs before the interval", st.Syncs)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if st := s.Stats(); st.Syncs != 1 {
			t.Fatalf("%d syncs after the interval", st.Syncs)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := s.Stats(); st.Syncs != 1 {
			t.Fatalf("%d syncs of an idle spool", st.Syncs)
		}
		fs.SetHook(vfs.FailOn(syscall.EIO, vfs.OpSync))
		mustAppend(t, s, 10, 5)
		time.Sleep(time.Minute)
		fs.SetHook(nil)
		mustAppend(t, s, 15, 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := s.Stats(); st.Syncs != 1 {
			t.Error("Sync succeeds although the data of a failed sync is not safe")
		}
		settle(t, s, 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		es := log.ofKind(t, s, "sync")
		if len(es) != 2 || !errors.Is(es[0].Err, syscall.EIO) || es[1].Err != nil {
			t.Errorf("events %v", es)
		}
		if st := s.Stats(); st.SyncErrors < 50 || st.Syncs != 2 {
			t.Errorf("stats %+v", st)
		}
		mustClose(t, s)
		if st := s.Stats(); st.Syncs != 3 {
			t.Error("Close did not sync")
		}
	})
}

// A directory can be opened once, and again after Close or the death of the process.
func TestOneSpoolPerDirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, 0, 5)
	// The lock excludes other Spools in this process and in other processes.
	if _, err := Open(dir, nil); !errors.Is(err, spool.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if _, _, err := Purge(dir, false); !errors.Is(err, spool.ErrLocked) {
		t.Errorf("Purge: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childFirstEnv+"=1", childLagEnv+"=0")
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), spool.ErrLocked.Error()) {
		t.Errorf("another process printed %q, %v", out, err)
	}
	// List works while the spool is locked.
	if l, err := List(dir, false); err != nil || l.Pending != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	mustClose(t, s)
	s, err = Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		op  vfs.Op
		err error
	}{
		{vfs.OpMkdir, syscall.EROFS}, {vfs.OpLock, syscall.EROFS}, {vfs.OpLock, syscall.EACCES},
		{vfs.OpReadDir, syscall.EACCES}, {vfs.OpCreate, syscall.ENOSPC}, {vfs.OpWrite, syscall.ENOSPC},
	} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, vfs.FailOn(c.err, c.op))
		_, err := open(fs, testDir, nil)
		if !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), "spool: cannot ") || !strings.Contains(err.Error(), testDir) {
			t.Errorf("%s: %v", c.op, err)
		}
		fs.SetHook(nil)
		s := mustOpen(t, fs, nil) // the failed Open has released the lock
		mustClose(t, s)
	}
	if _, err := Open(os.Args[0], nil); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// Sync syncs only the segments written since the last Sync, so its cost does not grow with the
// spool.
func TestSyncLeavesSyncedSegmentsAlone(t *testing.T) {
	synced := map[string]int{}
	fs := vfs.NewFaulty(vfs.NewMem(), func(c vfs.Call) (int, error) {
		if c.Op == vfs.OpSync && strings.HasSuffix(c.Name, segmentSuffix) {
			synced[c.Name]++
		}
		return 0, nil
	})
	s := mustOpen(t, fs, smallQuota(spool.Options{}))
	for n := range 3 { // each round writes one or two segments
		mustAppend(t, s, 40*n, 40)
		for range 3 {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(synced) < 3 {
		t.Errorf("%d segments", len(synced))
	}
	for name, n := range synced {
		if n > 1 {
			t.Errorf("%s was synced %d times", name, n)
		}
	}
	mustClose(t, s)
}

// If a segment cannot be created, for example on a full disk, the next one gets its number. So the
// numbers have no gap, and Open detects that the end of the segment before it is missing.
func TestFailedCreationLeavesNoGap(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpWrite} {
		mem := vfs.NewMem()
		fs := vfs.NewFaulty(mem, nil)
		s := mustOpen(t, fs, nil)
		mustAppend(t, s, 0, 5)
		mustAppend(t, s, 5, 5)
		other := numbered(10, 5, nil, formB) // needs a new segment
		fs.SetHook(vfs.FailOn(syscall.ENOSPC, op))
		for range 3 {
			if _, err := s.Append(other); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
		fs.SetHook(nil)
		if _, err := s.Append(other); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		file := segmentName(1)
		p := content(t, mem, file)
		setContent(t, mem, file, p[:len(p)-10])
		s = mustOpen(t, mem, nil)
		if got, st := drain(t, s, false), s.Stats(); len(got) != 10 || st.Corrupt != 5 || st.Damages != 1 {
			t.Errorf("%s fails: files %v, records %v, %d lost in %d damages", op, names(t, mem), got, st.Corrupt, st.Damages)
		}
		mustBalance(t, s)
		mustClose(t, s)
	}
}
