package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

// syncer is the goroutine that syncs in the background.
type syncer struct {
	wake chan struct{} // holds one: something was appended
	stop chan struct{}
	done chan struct{}
}

// startSyncer starts the goroutine if the policy wants one.
func (s *Spool) startSyncer() {
	if s.opt.Sync != syncInterval {
		return
	}
	s.syncer = syncer{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go s.syncLoop()
}

// stopSyncer ends the goroutine and waits for it.
func (s *Spool) stopSyncer() {
	if s.syncer.stop != nil {
		close(s.syncer.stop)
		<-s.syncer.done
	}
}

// wakeSyncer wakes the goroutine that syncs.
func (s *Spool) wakeSyncer() {
	select {
	case s.syncer.wake <- struct{}{}: // never, where there is no goroutine
	default:
	}
}

// syncLoop syncs an interval after the first Append since the last sync.
func (s *Spool) syncLoop() {
	defer close(s.syncer.done)
	timer := time.NewTimer(s.opt.SyncInterval)
	timer.Stop()
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-s.syncer.stop:
			return
		case <-s.syncer.wake:
		}
		timer.Reset(s.opt.SyncInterval)
		select {
		case <-s.syncer.stop:
			return
		case <-timer.C:
		}
		select {
		case <-s.syncer.wake: // this Sync covers the latest Append, too
		default:
		}
		err := s.Sync()
		if errors.Is(err, errClosed) {
			return
		}
		if err != nil != failing { // transitions only
			failing = err != nil
			s.events.Post(batch.Event{Output: s.opt.Name, Op: "sync", Err: err})
		}
		if err != nil {
			s.wakeSyncer() // try again
		}
	}
}

// Sync syncs all batches appended so far, and the acknowledgements.
//
// After an error it is unknown which of them are on disk, and the system may have dropped the pages
// it could not write. A later Sync therefore also fails, until those batches are acknowledged.
func (s *Spool) Sync() error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.isClosed() {
		return errClosed
	}
	return s.syncAll()
}

// syncAll syncs segments oldest first, then the cursor, then the names. The
// caller holds syncMu.
func (s *Spool) syncAll() error {
	type job struct {
		g    *segment
		name string
		size int64
	}
	var jobs []job
	s.mu.Lock()
	var unsure error
	for _, g := range s.segs {
		switch {
		case g.unsure != nil:
			if !g.done(g.settled(s.acked)) {
				unsure = g.unsure
			}
		case g.synced < g.size:
			jobs = append(jobs, job{g, g.name, g.size})
		}
	}
	s.mu.Unlock()
	for _, j := range jobs {
		for again := true; again; {
			if err := syncFile(s.fs, s.path(j.name)); err != nil {
				err = fmt.Errorf("spool: cannot sync %s: %w", j.name, err)
				if errors.Is(err, errNotSynced) {
					s.mu.Lock()
					j.g.unsure = err
					s.mu.Unlock()
				}
				s.countSync(false)
				return err
			}
			s.mu.Lock()
			if again = j.g.name != j.name; again { // renamed since: it may not have been found
				j.name = j.g.name
			} else {
				j.g.synced = max(j.g.synced, j.size)
			}
			s.mu.Unlock()
		}
	}
	err := s.cur.f.Sync()
	if err != nil {
		err = fmt.Errorf("spool: cannot sync the cursor: %w", err)
	}
	err = errors.Join(unsure, err, s.syncNames())
	s.countSync(err == nil)
	return err
}

// syncFile syncs a file by name: a sync covers all writes to a file, also through other
// handles. A file that is gone has been acknowledged or dropped. The error is errNotSynced,
// wrapped, if the system may have dropped something.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		err = fmt.Errorf("%w: %w", errNotSynced, err)
	}
	return errors.Join(err, f.Close())
}

// syncNames syncs the directory, and those that lead to a new one, if names changed since
// the last time.
func (s *Spool) syncNames() error {
	s.mu.Lock()
	now, ok, parents := s.names, s.names == s.namesOK, s.parents
	s.mu.Unlock()
	if ok {
		return nil
	}
	for _, dir := range append(slices.Clone(parents), s.dir) {
		err := s.fs.SyncDir(dir)
		if errors.Is(err, fs.ErrPermission) && dir != s.dir {
			continue // not ours to read, so it was there before
		}
		if err != nil {
			return fmt.Errorf("spool: cannot sync directory %s: %w", dir, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namesOK, s.parents = max(s.namesOK, now), nil
	return nil
}

// countSync counts a sync of everything.
func (s *Spool) countSync(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.count.syncs++
	} else {
		s.count.syncErrors++
	}
}
