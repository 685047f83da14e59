package spool

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// syncer syncs the spool: when called and, if the options want it, in the background.
type syncer struct {
	queue  *queue
	dir    *directory
	cursor *cursor
	events *reporter

	mu            sync.Mutex // held during a sync
	count, failed atomic.Uint64

	appended chan struct{} // holds one: something was appended; nil without a goroutine
	stop     chan struct{}
	done     chan struct{}
}

// start starts the goroutine if the policy wants one.
func (s *syncer) start() {
	if s.queue.opt.Sync != syncInterval {
		return
	}
	s.appended, s.stop, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go s.loop(s.queue.opt.SyncInterval)
}

// end ends the goroutine and waits for it.
func (s *syncer) end() {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
}

// wake makes the goroutine sync an interval later.
func (s *syncer) wake() {
	select {
	case s.appended <- struct{}{}: // never, where there is no goroutine
	default:
	}
}

// loop syncs an interval after the first Append since the last sync.
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
		case <-s.appended: // this sync covers the latest Append, too
		default:
		}
		err := s.sync()
		if errors.Is(err, errClosed) {
			return
		}
		if err != nil != failing { // transitions only
			failing = err != nil
			s.events.post("sync", err, 0)
		}
		if err != nil {
			s.wake() // try again
		}
	}
}

// sync is Spool.Sync.
func (s *syncer) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.isClosed() {
		return errClosed
	}
	return s.syncAll()
}

// syncAll syncs segments oldest first, then the cursor, then the names, and counts that. The caller
// holds mu.
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

// segment syncs one segment. It opens the file by its name, because a sync covers all writes to a
// file, also through other handles. A file that does not exist has been acknowledged or dropped.
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

// syncJob is a segment to sync.
type syncJob struct {
	seg  *segment
	name string
	size int64
}

// unsynced returns the segments that are not on stable storage yet. unsure is the error of an
// earlier sync after which the content of a segment with open batches is unknown.
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

// synced notes the result of a sync. It reports whether the segment was renamed since, so that the
// sync may not have found it and must be repeated.
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
