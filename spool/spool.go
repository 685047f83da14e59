package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A Spool is a queue of batches on disk. Its methods are safe for concurrent use.
type Spool struct {
	fs     vfs.FS
	dir    string
	opt    Options
	lock   io.Closer
	events *callback.Runner[batch.Event]

	// The locks are acquired in the order writeMu, readMu, syncMu, mu; the holder of readMu
	// acquires writeMu only with TryLock.

	// writeMu is held while the last segment grows. It guards w.
	writeMu sync.Mutex
	w       writer

	// readMu is held while batches are handed out or settled. It guards the fields
	// up to moved.
	readMu sync.Mutex
	r      reader
	cur    cursor
	handed []*handout // handed out and not acknowledged, oldest first
	free   []*handout
	moved  []*segment // late segments that are settled further than their name states

	// syncMu is held during Sync.
	syncMu sync.Mutex
	syncer syncer // set by Open

	// mu guards the rest. It is a leaf lock: no I/O and no other lock inside it.
	mu      sync.Mutex
	closed  bool
	segs    []*segment // ascending
	active  *segment   // the one Append adds to; nil before the first
	lastID  uint64     // highest segment number given out
	next    mark       // of the next Append
	acked   mark       // everything before it is settled
	read    mark       // of the next batch to hand out
	readSeg *segment   // the one Next is in
	names   uint64     // changes of names in the directory
	namesOK uint64     // of them, those on stable storage
	parents []string   // directories that lead to dir and may not be there
	aside   []aside    // damaged files, ascending
	garbage []string   // files whose deletion failed; tried again

	// tailMissed reports that Open has found fewer batches than the cursor has.
	tailMissed bool
	count      counters
}

// aside is a damaged file that was set aside.
type aside struct {
	name string
	id   uint64
	disk int64
}

// keepAside is how many damaged files are kept; older ones are deleted.
const keepAside = 8

// Open opens the spool in dir, which it creates (0700) if needed. Next returns the batches of
// earlier processes first.
//
// Damage never makes Open fail: see [Options.OnEvent] and [Spool.Stats]. Open returns [ErrLocked],
// wrapped, if another process uses the spool, and the file system's error if dir cannot be read or
// written.
func Open(dir string, o *Options) (*Spool, error) { return open(vfs.OS, dir, o) }

func open(fsys vfs.FS, dir string, o *Options) (*Spool, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Spool{fs: fsys, dir: dir, opt: opt, events: callback.New(opt.OnEvent, 0)}
	s.w.defined = map[uint32]struct{}{}
	if s.parents, err = vfs.MakeDirs(fsys, dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: cannot make directory %s: %w", dir, err)
	}
	if s.parents == nil { // an earlier process may have had no sync
		s.parents = []string{filepath.Dir(filepath.Clean(dir))}
	}
	if s.lock, err = lockDir(fsys, dir); err != nil {
		return nil, fmt.Errorf("spool: cannot open %s: %w", dir, err)
	}
	if err := s.recover(); err != nil {
		s.releaseFiles()
		s.events.Close()
		return nil, fmt.Errorf("spool: cannot open %s: %w", dir, err)
	}
	s.startSyncer()
	return s, nil
}

// lockDir acquires the lock of a spool directory.
func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	l, err := fsys.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, ErrLocked
	}
	return l, err
}

// Close closes the spool and unlocks its directory. Batches that are not acknowledged stay on disk
// for the next Open; batches that Next has returned may still be read. Unless Options.Sync is
// "never", it calls Sync first. It may be called twice, and concurrently with all other methods,
// which afterwards return [batch.ErrClosed], wrapped.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stopSyncer()

	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.readMu.Lock()
	defer s.readMu.Unlock()
	var err error
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.opt.Sync != syncNever {
		err = s.syncAll()
	}
	s.r.close()
	s.noteEnd()
	err = errors.Join(err, s.seal())
	s.sweep()
	err = errors.Join(err, s.releaseFiles())
	s.events.Close()
	s.events.WaitBriefly(context.Background())
	return err
}

// noteEnd stores the end of the last segment in the cursor for the next Open. If that fails, the
// next Open does not detect batches cut off at the end; that is not an error.
func (s *Spool) noteEnd() {
	s.mu.Lock()
	acked, lastID, end := s.acked, s.lastID, s.tailLocked()
	s.mu.Unlock()
	if c := &s.cur.state; c.end != end || c.acked != acked {
		_ = s.cur.write(acked, lastID, end)
	}
}

// releaseFiles closes the cursor and gives the lock up.
func (s *Spool) releaseFiles() error {
	var err error
	if s.cur.f != nil {
		err = s.cur.f.Close()
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Spool) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Spool) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// report passes damage to OnEvent.
func (s *Spool) report(e *CorruptError) {
	s.mu.Lock()
	s.count.damages++
	s.mu.Unlock()
	s.events.Post(batch.Event{Output: s.opt.Name, Op: "corrupt", Err: e, Count: e.Records})
}

// remove deletes a file of the directory. If that fails, it is tried again later.
func (s *Spool) remove(name string) {
	if err := s.fs.Remove(s.path(name)); err != nil && !isNotExist(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.garbage = append(s.garbage, name)
		return
	}
	s.touch()
}

// touch notes that names in the directory changed.
func (s *Spool) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
}

// setAside renames a damaged segment file so that no Open looks at it again. If
// that fails the file stays, and the next Open finds the same damage.
func (s *Spool) setAside(name string, id uint64, disk int64) {
	to := name + corruptSuffix
	for i := 1; i < 1000; i++ {
		if _, err := s.fs.Size(s.path(to)); isNotExist(err) {
			break
		}
		to = fmt.Sprintf("%s.%d%s", name, i, corruptSuffix)
	}
	if err := s.fs.Rename(s.path(name), s.path(to)); err != nil {
		to = name
	}
	s.mu.Lock()
	s.names++
	s.aside = append(s.aside, aside{name: to, id: id, disk: disk})
	s.mu.Unlock()
	s.pruneAside(keepAside)
}

// pruneAside deletes the oldest damaged files until at most n are left.
func (s *Spool) pruneAside(n int) {
	s.mu.Lock()
	var old []aside
	if k := len(s.aside) - n; k > 0 {
		old = append(old, s.aside[:k]...)
		s.aside = append(s.aside[:0], s.aside[k:]...)
	}
	s.mu.Unlock()
	for _, a := range old {
		s.remove(a.name)
	}
}

// sweep deletes, or sets aside, the segments that are settled.
func (s *Spool) sweep() {
	s.mu.Lock()
	var done []*segment
	keep := s.segs[:0]
	for _, g := range s.segs {
		if g != s.active && g.done(g.noted(s.acked)) {
			g.gone = true
			done = append(done, g)
		} else {
			keep = append(keep, g)
		}
	}
	clear(s.segs[len(keep):])
	s.segs = keep
	garbage := s.garbage
	s.garbage = nil
	s.mu.Unlock()
	for _, name := range garbage {
		s.remove(name)
	}
	for _, g := range done {
		if g.damage != nil {
			s.setAside(g.name, g.id, g.disk)
		} else {
			s.remove(g.name)
		}
	}
}
