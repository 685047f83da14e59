package diskqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A Spool is a queue of batches on disk. Its methods are safe for concurrent use. Only one Spool, in
// any process, can have a directory open.
type Spool struct {
	// mu is held during each method except Sync, Stats and Account, including its I/O. It guards the
	// parts of the spool, where they do not state otherwise. syncer.mu is held during a sync, and
	// acquired after mu by Close and restore. The locks of the queue and of the directory are leaves,
	// never held during I/O.
	//
	//	appender ─▶ queue ◀─ reader ─▶ cursor
	//	    │         ▲                  ▲
	//	    ▼         └───── syncer ─────┘
	//	directory ◀─ all parts
	mu sync.Mutex

	queue    *queue
	dir      *directory
	appender *appender
	reader   *reader
	syncer   *syncer
}

// Open opens the spool in dir, which it creates (0700) if needed. Next returns the batches of
// earlier processes first.
//
// Damage never makes Open fail: see [spool.Options.OnEvent] and [Spool.Stats]. Open returns
// [spool.ErrLocked], wrapped, if another process uses the spool, and the file system's error if dir
// cannot be read or written.
func Open(dir string, o *spool.Options) (*Spool, error) { return open(vfs.OS, dir, o) }

// open is Open with the file system as a parameter.
func open(fsys vfs.FS, path string, o *spool.Options) (*Spool, error) {
	opt, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	dir := &directory{fs: fsys, path: path}
	if err := dir.claim(); err != nil {
		return nil, err
	}
	q := &queue{opt: &opt, dir: dir}
	q.events.SetOutput(opt.Name, opt.OnEvent)
	q.drops.Init(&q.mu, &q.dropped, quotaError(&opt), q.events.PostEvent)
	cur := &cursor{}
	r := &recovery{queue: q, dir: dir, cursor: cur}
	if err := r.run(); err != nil {
		_ = cur.close()
		_ = dir.unlock()
		return nil, fmt.Errorf("spool: cannot open %s: %w", path, err)
	}
	s := &Spool{
		queue: q, dir: dir,
		appender: &appender{queue: q, dir: dir, next: r.next, defined: map[uint32]struct{}{}},
		reader:   &reader{queue: q, dir: dir, cursor: cur},
		syncer:   &syncer{queue: q, dir: dir, cursor: cur},
	}
	if g := q.active; g != nil {
		// The segment needs new stream definitions, because the stream numbers in its definitions
		// are those of an earlier process.
		if s.appender.f, err = dir.open(g.name, os.O_RDWR); err != nil {
			q.active = nil
		}
	}
	return s, nil
}

// restore creates the directory, the lock and the cursor again after files were deleted or moved,
// and reports the lost records. It fails without any change while another process uses the
// directory, or has left batches in it; the next Append tries again.
func (s *Spool) restore() error {
	s.syncer.mu.Lock()
	defer s.syncer.mu.Unlock()
	if err := s.dir.claim(); err != nil {
		return err
	}
	err := s.queue.checkOwner()
	if err == nil {
		now := s.queue.position()
		now.end = mark{} // unknown, because the segment may be deleted
		err = s.reader.cursor.restore(s.dir, now)
	}
	if err != nil {
		return errors.Join(err, s.dir.unlock())
	}
	// This is the last step, because it reports the loss. If an earlier step fails, the next Append
	// repeats all steps.
	s.queue.dropMissing()
	return nil
}

// Close closes the spool and unlocks its directory. Batches that are not acknowledged stay on disk
// for the next Open; batches that Next has returned may still be read. Unless Options.Sync is
// "never", it calls Sync first. It may be called twice, and concurrently with all other methods,
// which afterwards return [batch.ErrClosed], wrapped.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncer.mu.Lock()
	defer s.syncer.mu.Unlock()
	if s.queue.closed {
		return nil
	}
	s.queue.closed = true
	var err error
	if s.queue.opt.Sync != syncNever {
		err = s.syncer.syncAll()
	}
	// The cursor gets the end of the spool before the last segment is sealed, because sealing may
	// delete that segment.
	s.reader.closeFile()
	s.reader.cursor.noteEnd(s.queue.position())
	err = errors.Join(err, s.appender.seal())
	s.queue.sweep()
	err = errors.Join(err, s.reader.cursor.close(), s.dir.unlock())
	s.queue.endDrops()
	s.queue.events.Wait(context.Background())
	return err
}
