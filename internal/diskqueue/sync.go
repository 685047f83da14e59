package diskqueue

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// syncer syncs the spool: when Sync is called and, with the option "interval", SyncInterval after the
// first Append that no sync has covered. An idle spool is not synced.
//
// A sync covers everything appended before it began. The order is segments, cursor, names. A loss of
// power in between leaves batches that are delivered again, never a cursor ahead of its batches.
type syncer struct {
	queue  *queue
	dir    *directory
	cursor *cursor

	mu            sync.Mutex    // held during a sync
	count, failed atomic.Uint64 // number of syncs since Open

	due     atomic.Bool // a timer will call syncDue
	failing atomic.Bool // the last syncDue has failed
}

// wake makes a timer sync the spool after an interval, with the option "interval". It never waits.
func (s *syncer) wake() {
	if s.queue.opt.Sync == syncInterval && !s.due.Swap(true) {
		time.AfterFunc(s.queue.opt.SyncInterval, s.syncDue)
	}
}

// syncDue runs on the goroutine of a timer. If it fails, it tries again after each interval. It
// reports the first failure, and the first success after it.
func (s *syncer) syncDue() {
	s.due.Store(false) // set before the sync, which may not cover the Appends from now on
	err := s.sync()
	if errors.Is(err, errClosed) {
		return
	}
	// Only the first error of a series is reported, and the first success after it.
	if bad := err != nil; s.failing.Swap(bad) != bad {
		s.queue.events.Post("sync", err, 0)
	}
	if err != nil {
		s.wake()
	}
}

// Sync syncs all batches appended so far, and the acknowledgements.
//
// After an error it is unknown which of them are on disk, and the system may have dropped the pages
// it could not write. A later Sync therefore also fails, until those batches are acknowledged.
func (s *Spool) Sync() error { return s.syncer.sync() }

// sync implements Spool.Sync. Concurrent calls run one after another, because each must cover all
// batches appended before it.
func (s *syncer) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.closed.Load() {
		return errClosed
	}
	return s.syncAll()
}

// syncAll syncs segments, the oldest first, then the cursor, then the names, and counts the result.
// It stops at the first segment that fails, so that the batches on stable storage have no gap. The
// caller holds mu.
func (s *syncer) syncAll() error {
	jobs, unsure := s.queue.unsynced()
	for _, j := range jobs {
		if err := s.segment(j); err != nil {
			s.failed.Add(1)
			return err
		}
	}
	err := s.cursor.f.Sync()
	if err != nil {
		err = fmt.Errorf("spool: cannot sync the cursor: %w", err)
	}
	if err = errors.Join(unsure, err, s.dir.sync()); err != nil {
		s.failed.Add(1)
	} else {
		s.count.Add(1)
	}
	return err
}

// segment syncs one segment. It opens the file by its name, so the appender does not have to wait:
// a sync covers all writes to a file, also through other handles. If the file does not exist, it
// has been acknowledged or dropped.
func (s *syncer) segment(j syncJob) error {
	for {
		f, err := s.dir.open(j.name, os.O_RDWR)
		if err == nil {
			if err = f.Sync(); err != nil {
				err = fmt.Errorf("%w: %w", errNotSynced, err)
			}
			err = errors.Join(err, f.Close())
		}
		if isNotExist(err) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("spool: cannot sync %s: %w", j.name, err)
		}
		if again := s.queue.synced(&j, err); !again {
			return err
		}
	}
}

// A syncJob is a segment to sync, up to a size.
type syncJob struct {
	seg  *segment
	name string
	size int64
}

// unsynced returns the segments that are not on stable storage yet. unsure is the error of an
// earlier sync of a segment with pending batches. A second sync of that file would succeed although
// the system has dropped its pages.
func (q *queue) unsynced() (jobs []syncJob, unsure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.segs {
		switch {
		case g.syncErr != nil:
			if !g.done(g.settled(q.acked)) {
				unsure = g.syncErr
			}
		case g.synced < g.size:
			jobs = append(jobs, syncJob{g, g.name, g.size})
		}
	}
	return jobs, unsure
}

// synced stores the result of a sync in the segment. It returns true if the segment was renamed
// meanwhile, so that the sync must be repeated.
func (q *queue) synced(j *syncJob, err error) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case errors.Is(err, errNotSynced):
		j.seg.syncErr = err
	case err == nil && j.seg.name != j.name:
		j.name = j.seg.name
		return true
	case err == nil:
		j.seg.synced = max(j.seg.synced, j.size)
	}
	return false
}
