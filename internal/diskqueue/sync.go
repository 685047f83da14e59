package diskqueue

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// syncer syncs the spool: when Sync is called and, with the option "interval", SyncInterval after
// the first Append that no sync has covered. An idle spool is not synced.
//
// A sync covers everything appended before it began. The order is segments, cursor, names. After a
// loss of power in between, batches are delivered again, but the cursor is never ahead of the
// stored batches.
type syncer struct {
	queue  *queue
	dir    *directory
	cursor *cursor

	mu      sync.Mutex  // held during a sync
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
	if s.queue.closed {
		return errClosed
	}
	return s.syncAll()
}

// syncAll syncs the spool and counts the result. The caller holds mu.
func (s *syncer) syncAll() error {
	err := s.syncFiles()
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if err != nil {
		s.queue.count.SyncErrors++
	} else {
		s.queue.count.Syncs++
	}
	return err
}

// syncFiles syncs segments, the oldest first, then the cursor, then the names. It stops at the first
// segment that fails, so that the batches on stable storage have no gap.
func (s *syncer) syncFiles() error {
	segs, unsure := s.queue.unsynced()
	for _, g := range segs {
		if err := s.syncSegment(g); err != nil {
			return err
		}
	}
	// The cursor follows its batches: if power is lost now, they are delivered again.
	err := s.cursor.f.Sync()
	if err != nil {
		err = fmt.Errorf("spool: cannot sync the cursor: %w", err)
	}
	return errors.Join(unsure, err, s.dir.sync())
}

// unsynced returns the segments that are not on stable storage yet. unsure is the error of an
// earlier sync of a segment with pending batches. A second sync of that file would succeed although
// the system has dropped its pages.
func (q *queue) unsynced() (segs []*segment, unsure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.segs {
		switch {
		case g.syncErr != nil && !g.done(g.settled(q.acked)):
			unsure = g.syncErr
		case g.syncErr == nil && g.synced < g.size:
			segs = append(segs, g)
		}
	}
	return segs, unsure
}

// syncSegment syncs one segment, and stores the result in it. It opens the file by its name, so the
// appender does not have to wait: a sync covers all writes to a file, also through other handles.
// If the file does not exist, it has been acknowledged, dropped or renamed.
func (s *syncer) syncSegment(g *segment) error {
	for {
		s.queue.mu.Lock()
		name, size := g.name, g.size
		s.queue.mu.Unlock()
		f, err := s.dir.open(name, os.O_RDWR)
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
			err = fmt.Errorf("spool: cannot sync %s: %w", name, err)
		}
		s.queue.mu.Lock()
		renamed := g.name != name
		switch {
		case errors.Is(err, errNotSynced):
			g.syncErr = err
		case err == nil && !renamed:
			g.synced = max(g.synced, size)
		}
		s.queue.mu.Unlock()
		if err != nil || !renamed {
			return err
		}
	}
}
