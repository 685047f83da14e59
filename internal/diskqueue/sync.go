package diskqueue

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// syncer syncs the spool: when Sync is called and, with the option "interval", in a goroutine.
//
//	Append ──wake──▶ appended (holds one) ──▶ loop: waits SyncInterval ──▶ sync
//
// A sync covers everything appended before it began. The order is segments, cursor, names. A loss of
// power in between leaves batches that are delivered again, never a cursor ahead of its batches.
type syncer struct {
	queue  *queue
	dir    *directory
	cursor *cursor
	events *reporter

	mu            sync.Mutex    // held during a sync
	count, failed atomic.Uint64 // syncs since Open

	// These are nil without a goroutine.
	appended chan struct{} // holds a value after an Append, at most one
	stop     chan struct{} // closed to end the goroutine
	done     chan struct{} // closed when it has ended
}

// start starts the goroutine, if the options ask for one.
func (s *syncer) start() {
	if s.queue.opt.Sync != syncInterval {
		return
	}
	s.appended, s.stop, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go s.loop(s.queue.opt.SyncInterval)
}

// end ends the goroutine and waits until it has ended. A sync in progress is completed.
func (s *syncer) end() {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
}

// wake makes the goroutine sync an interval later. It never waits. Without a goroutine, the nil
// channel is never ready.
func (s *syncer) wake() {
	select {
	case s.appended <- struct{}{}:
	default:
	}
}

// loop syncs an interval after the first Append since the last sync. An idle spool is not synced. A
// failure is reported once, and so is the first success after it. Until then it tries again each
// interval.
func (s *syncer) loop(interval time.Duration) {
	defer close(s.done)
	timer := time.NewTimer(interval)
	timer.Stop()
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-s.stop:
			return
		case <-s.appended:
		}
		timer.Reset(interval)
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		select {
		// Appends during the interval are covered by this sync.
		case <-s.appended:
		default:
		}
		err := s.sync()
		if errors.Is(err, errClosed) {
			return
		}
		// Only transitions are reported, not each repeated failure.
		if err != nil != failing {
			failing = err != nil
			s.events.Post("sync", err, 0)
		}
		if err != nil {
			s.wake() // try again
		}
	}
}

// sync is Spool.Sync. Concurrent calls wait for each other, because each must cover the batches that
// were appended before it.
func (s *syncer) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.isClosed() {
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

// segment syncs one segment. It opens the file by its name: a sync covers all writes to a file, also
// through other handles, and the appender does not have to wait. A file that does not exist has been
// acknowledged or dropped since.
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

// unsynced returns the segments that are not on stable storage yet. unsure is the error of an earlier
// sync of a segment with pending batches: a second sync of that file would succeed without its pages.
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

// synced stores the result of a sync in the segment. It returns true if the segment was renamed in the
// meantime, so that the sync may not have found the file and must be repeated.
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
