package diskqueue

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A Spool is a queue of batches on disk. Its methods are safe for concurrent use. Only one Spool, in
// any process, can have a directory open.
type Spool struct {
	// Each part has its own state and lock. The locks of the appender, the reader and the syncer are
	// held during their I/O; only lockAll acquires several of them, in this order. The locks of the
	// queue and of the directory are leaves, never held during I/O.
	//
	//	appender ─▶ queue ◀─ reader ─▶ cursor
	//	    │         ▲                  ▲
	//	    ▼         └───── syncer ─────┘
	//	directory ◀─ all parts

	queue    *queue
	dir      *directory
	events   *reporter
	appender *appender
	reader   *reader
	cursor   *cursor
	syncer   *syncer
}

// Open opens the spool in dir, which it creates (0700) if needed. Next returns the batches of
// earlier processes first.
//
// Damage never makes Open fail: see [spool.Options.OnEvent] and [Spool.Stats]. Open returns [spool.ErrLocked],
// wrapped, if another process uses the spool, and the file system's error if dir cannot be read or
// written.
func Open(dir string, o *spool.Options) (*Spool, error) { return open(vfs.OS, dir, o) }

// open is Open with the file system as a parameter.
func open(fsys vfs.FS, path string, o *spool.Options) (*Spool, error) {
	opt, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(fsys, path)
	if err != nil {
		return nil, err
	}
	events := new(reporter)
	events.SetOutput(opt.Name, opt.OnEvent)
	q := &queue{opt: &opt, dir: dir, events: events}
	cur := &cursor{}
	r := &recovery{queue: q, dir: dir, events: events, cursor: cur}
	if err := r.run(); err != nil {
		_ = cur.close()
		_ = dir.unlock()
		return nil, fmt.Errorf("spool: cannot open %s: %w", path, err)
	}
	s := &Spool{
		queue: q, dir: dir, events: events, cursor: cur,
		appender: &appender{queue: q, dir: dir, events: events, seg: q.active, defined: map[uint32]struct{}{}},
		reader:   &reader{queue: q, dir: dir, cursor: cur},
		syncer:   &syncer{queue: q, dir: dir, cursor: cur, events: events},
	}
	if g := q.active; g != nil {
		// The segment needs new stream definitions, because the stream numbers in its definitions
		// are those of an earlier process.
		if s.appender.f, err = dir.open(g.name, os.O_RDWR); err != nil {
			s.appender.seg = nil
			q.seal()
		}
	}
	return s, nil
}

// Append adds b at the end and returns its number. Numbers rise by one, except that the numbers of
// batches lost to damage or to a loss of power are skipped.
//
// When Append returns nil, b survives the death of the process. It survives a loss of power once a
// later [Spool.Sync] returns nil, or at once if Options.Sync is "always". On error nothing is
// stored, and a later call may succeed. The error wraps errFull or an error of the file system
// such as ENOSPC, or reports that the batch exceeds 256 MiB or that another process has replaced the
// directory. An empty batch is not stored; its
// number is 0.
//
// Append copies b, including its Origin. The copy of each record keeps its ticket, time, level,
// stream and flags.
func (s *Spool) Append(b *batch.Batch) (seq uint64, err error) {
	if b.Len() == 0 {
		return 0, nil
	}
	if seq, err = s.appender.append(b); err == errGone {
		if err = s.restore(); err == nil {
			seq, err = s.appender.append(b)
		}
	}
	if err == nil {
		s.syncer.wake()
	}
	return seq, err
}

// restore creates the directory, the lock and the cursor again after files were deleted or moved, and
// reports the lost records. It fails without any change while another process uses the directory, or
// has left batches in it; the next Append tries again.
func (s *Spool) restore() error {
	defer s.lockAll()()
	if s.queue.isClosed() {
		return errClosed
	}
	if err := s.dir.claim(); err != nil {
		return err
	}
	err := s.queue.checkOwner()
	if err == nil {
		now := s.queue.position()
		now.end = mark{} // unknown, because the segment may be deleted
		err = s.cursor.restore(s.dir, now)
	}
	if err != nil {
		return errors.Join(err, s.dir.unlock())
	}
	// This is the last step, because it reports the loss. If an earlier step fails, the next Append
	// repeats all steps.
	s.queue.dropMissing()
	return nil
}

// lockAll acquires the locks of all parts, in the order stated in the type Spool. It waits for the
// calls in progress, and blocks others until unlock is called.
func (s *Spool) lockAll() (unlock func()) {
	s.appender.mu.Lock()
	s.reader.mu.Lock()
	s.syncer.mu.Lock()
	return func() {
		s.syncer.mu.Unlock()
		s.reader.mu.Unlock()
		s.appender.mu.Unlock()
	}
}

// Next returns the oldest batch that has not been returned yet, with its number. It never waits:
// it returns io.EOF if there is no such batch. After another Append it can be called again.
//
// The batch belongs to the caller until it is acknowledged or the spool rewound. The caller may
// hold several batches at once. Its Codec comes from [spool.Options.Codec]. Damaged batches are
// skipped and reported, see [spool.Options.OnEvent]. After any other error, which comes from the file
// system, the call can be repeated.
func (s *Spool) Next() (b *batch.Batch, seq uint64, err error) { return s.reader.next(0, 0) }

// NextUpTo is [Spool.Next], but combines several batches: the oldest one and the following ones,
// as long as they do not exceed the given numbers of payload bytes and records. All are from one
// segment, and so have one form, and all have one origin. seq is the number of the last batch; Ack
// of seq settles all of them. A batch that exceeds the limits is returned alone.
func (s *Spool) NextUpTo(bytes, records int) (b *batch.Batch, seq uint64, err error) {
	return s.reader.next(bytes, records)
}

// Rewind makes Next begin again with the oldest batch that is not acknowledged. Batches
// returned before stay readable, but Ack does not accept their numbers until they are
// returned again.
func (s *Spool) Rewind() { s.reader.rewind() }

// Ack settles all batches up to and including number seq, which must have been handed
// out. It may be called again for an earlier number. The caller must not read those
// batches afterwards, because their memory is reused.
//
// When Ack returns nil the batches are not handed out again after the death of the
// process. If the cursor cannot be written, Ack returns the error: the batches are settled
// in this process, but the next process may receive them again.
func (s *Spool) Ack(seq uint64) error {
	err := s.reader.ack(seq)
	s.appender.sealFinished()
	return err
}

// Held returns the tickets, from first to last, of the records of origin that are in the spool or
// have been acknowledged. It reads the indexes of all frames; calls of Next and Ack wait until it is
// done.
//
// The result contains no other ticket: a frame counts only if its segment is undamaged up
// to that frame, and records dropped over the quota do not count. It may omit some: for
// acknowledged records in deleted segments, only the last 60 ranges are known, which Ack
// stores in the cursor. Records in segments of version 1 have no origin.
func (s *Spool) Held(origin [16]byte, first, last uint64) []layout.Tickets {
	return s.reader.held(origin, first, last)
}

// Sync syncs all batches appended so far, and the acknowledgements.
//
// After an error it is unknown which of them are on disk, and the system may have dropped the pages
// it could not write. A later Sync therefore also fails, until those batches are acknowledged.
func (s *Spool) Sync() error { return s.syncer.sync() }

// Close closes the spool and unlocks its directory. Batches that are not acknowledged stay on disk
// for the next Open; batches that Next has returned may still be read. Unless Options.Sync is
// "never", it calls Sync first. It may be called twice, and concurrently with all other methods,
// which afterwards return [batch.ErrClosed], wrapped.
func (s *Spool) Close() error {
	if !s.queue.close() {
		return nil
	}
	defer s.lockAll()()
	var err error
	if s.queue.opt.Sync != syncNever {
		err = s.syncer.syncAll()
	}
	// The cursor gets the end of the spool before the last segment is sealed, because sealing may
	// delete that segment.
	s.reader.closeFile()
	s.cursor.noteEnd(s.queue.position())
	err = errors.Join(err, s.appender.seal())
	s.queue.sweep()
	err = errors.Join(err, s.cursor.close(), s.dir.unlock())
	s.events.Wait(context.Background())
	return err
}
