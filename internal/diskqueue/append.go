package diskqueue

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

// appender writes batches as frames to the last segment file. It also creates that file and, when
// the file is full, closes (seals) it.
//
//	frame: | header | stream definitions | index | payload |
//	       └───────────── scratch ───────────────┘
//
// A frame that readers can see is never changed. If a write fails, the partial frame is truncated,
// or the segment ends before it. A kill leaves at most one torn frame, at the end of the last
// segment. Spool.mu guards the fields.
type appender struct {
	queue *queue
	dir   *directory

	f         vfs.File            // file of queue.active, the segment to which frames are added
	next      mark                // mark of the next frame
	checkedAt time.Time           // time of the last check that the file still exists, see checkEvery
	defined   map[uint32]struct{} // streams with a definition in that segment or in the frame
	scratch   []byte              // reused: the frame, without a large payload
}

const (
	// copyBelow is the size in bytes up to which a payload is copied to scratch, because the copy
	// costs less than another system call. A larger payload is also copied if its contiguous parts
	// (runs) have at most this size on average.
	copyBelow = 16 << 10
	// keepScratch is the largest buffer in bytes that is kept for reuse.
	keepScratch = 4 << 20
	// checkEvery is how often the segment is looked up by its name. Writes to a deleted file
	// succeed, so without this check all records after an operator's rm would be lost.
	checkEvery = time.Second
)

// Append adds b at the end and returns its number. Numbers rise by one, except that the numbers of
// batches lost to damage or to a loss of power are skipped.
//
// When Append returns nil, b survives the death of the process. It survives a loss of power once a
// later [Spool.Sync] returns nil, or at once if Options.Sync is "always". On error nothing is
// stored, and a later call may succeed. The error wraps errFull or an error of the file system such
// as ENOSPC, or reports that the batch exceeds 256 MiB or that another process has replaced the
// directory. For an empty batch, Append stores nothing and returns 0.
//
// Append copies b, including its Origin. The copy of each record keeps its ticket, time, level,
// stream and flags.
func (s *Spool) Append(b *batch.Batch) (seq uint64, err error) {
	if b.Len() == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.closed {
		return 0, errClosed
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

// append implements Spool.Append for a batch that is not empty. If files of the spool were deleted,
// it returns errGone; the caller restores them and calls append again.
func (a *appender) append(b *batch.Batch) (seq uint64, err error) {
	f := formOf(b.Codec)
	if len(f.contentType) > maxContentType {
		return 0, fmt.Errorf("spool: cannot append: content type of %d bytes, at most %d", len(f.contentType), maxContentType)
	}
	if g := a.queue.active; g != nil && time.Since(a.checkedAt) >= checkEvery {
		if a.checkedAt = time.Now(); !a.dir.has(g) {
			_ = a.seal() // batches appended to a deleted segment would be lost
			return 0, errGone
		}
	}
	at := a.next
	defer func() {
		// If the frame is not stored, for example after a panic of the dictionary, its definitions
		// are not either.
		if a.next == at {
			clear(a.defined)
		}
	}()
	if err := a.place(b, f); err != nil {
		return 0, err
	}
	// A single large batch must not keep its buffer for the lifetime of the spool.
	if cap(a.scratch) > keepScratch {
		a.scratch = nil
	}
	return at.seq, nil
}

// place finds room for the frame and writes it, in these steps:
//
//	frame   build it, with the stream definitions that the active segment needs
//	seal    if the frame does not fit into the segment
//	room    delete files over the quota, which may also seal the segment
//	begin   create a segment, if none is active
//	write   and sync, with Options.Sync "always"
//	commit  make the frame visible
//
// If a segment was sealed, place starts again with the first step, because the next segment must
// define all streams of the frame.
func (a *appender) place(b *batch.Batch, f form) error {
	h := frameHeader{head: frameHeaderBytes, origin: b.Origin, at: a.next, time: time.Now().UnixNano()}
	for placed := false; !placed; {
		seg := a.queue.active
		if err := a.startFrame(b, &h); err != nil {
			return err
		}
		need := h.bytes()
		if seg != nil && !a.queue.fits(need, f) {
			_ = a.seal()
			continue
		}
		if err := a.room(need, f); err != nil {
			return err
		}
		placed = a.queue.active == seg
	}
	if a.queue.active == nil {
		if err := a.begin(f); err != nil {
			return err
		}
	}
	if err := a.write(b, &h); err != nil {
		g := a.queue.active
		err = fmt.Errorf("spool: cannot append to %s: %w", g.name, err)
		// Remove the partial frame. If that fails, or if a failed sync leaves the content of the
		// file unknown, the segment ends here: readers stop before the partial frame, and later
		// frames go to the next segment.
		if e := a.f.Truncate(g.size); e != nil || errors.Is(err, errNotSynced) {
			_ = a.seal()
		}
		return err
	}
	a.queue.commit(&h)
	a.next = h.end()
	return nil
}

// startFrame begins to build the frame of b in scratch: room for the header, the definitions of
// those streams that the segment does not define yet, and the index. It sets the sizes in h.
func (a *appender) startFrame(b *batch.Batch, h *frameHeader) error {
	a.scratch = append(a.scratch[:0], make([]byte, frameHeaderBytes)...)
	if a.queue.opt.Streams != nil {
		if err := a.defineStreams(b); err != nil {
			return err
		}
	}
	dict := len(a.scratch) - frameHeaderBytes
	var records int
	a.scratch, records = appendIndex(a.scratch, b)
	index := len(a.scratch) - frameHeaderBytes - dict
	body := int64(dict) + int64(index) + int64(b.Bytes())
	if body > maxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, body, maxBatchBytes)
	}
	h.dict, h.index, h.payload = uint32(dict), uint32(index), uint32(b.Bytes())
	h.entries, h.records = uint32(b.Len()), uint32(records)
	return nil
}

// defineStreams appends to scratch the definitions of the streams of b that the current segment
// does not define. A stream without a definition is an error, because its records could not be
// delivered after a restart. Stream 0, which means no stream, needs none.
func (a *appender) defineStreams(b *batch.Batch) error {
	var last uint32
	var def []byte
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			id := r.Slot(j).Stream
			if id == last && i+j > 0 { // most records have the same stream as the previous record
				continue
			}
			last = id
			if _, ok := a.defined[id]; ok {
				continue
			}
			var ok bool
			if def, ok = a.queue.opt.Streams.AppendStream(def[:0], id); ok {
				a.scratch = appendStream(a.scratch, id, def)
			} else if id != 0 {
				return fmt.Errorf("spool: cannot append: the dictionary does not know stream %d", id)
			}
			a.defined[id] = struct{}{}
		}
	}
	return nil
}

// begin creates the next segment, with a number above those of all existing files, even of files
// that other programs have created. If no file can be created, the number is used again: without a
// gap in the numbers, Open detects batches that are missing at the end of the previous segment.
func (a *appender) begin(f form) error {
	// Without the lock, another process may create a segment of the same number.
	if a.dir.lock == nil {
		return errGone
	}
	h := segmentHeader{version: formatVersion, form: f, first: a.next, created: time.Now().UnixNano()}
	_, _ = rand.Read(h.uuid[:]) // never fails
	var file vfs.File
	err := fs.ErrExist
	// Another program may have created a file with the next number. O_EXCL keeps it, and the loop
	// tries the number after that.
	for h.id = a.queue.position().segment; errors.Is(err, fs.ErrExist); {
		h.id++
		file, err = a.dir.open(segmentName(h.id), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	}
	if isNotExist(err) {
		return errGone // the directory was deleted
	}
	g := &segment{segmentHeader: h, name: segmentName(h.id), size: h.bytes(), disk: h.bytes(), end: h.first}
	if err == nil {
		if _, err = file.WriteAt(h.append(nil), 0); err != nil {
			err = errors.Join(err, file.Close())
			a.queue.discard(g)
		}
	}
	if err != nil {
		return fmt.Errorf("spool: cannot make segment %s: %w", g.name, err)
	}
	// The name reaches stable storage with the next sync of the directory.
	a.f, a.checkedAt = file, time.Now()
	a.queue.begin(g)
	a.dir.touch()
	return nil
}

// write writes the frame at the end of the segment, and syncs it if Options.Sync is "always".
// Readers see it after queue.commit. write does not retain the memory of b.
func (a *appender) write(b *batch.Batch, h *frameHeader) error {
	seed := a.queue.active.seed()
	off := a.queue.active.size
	h.dictCRC = crc32.Update(seed, castagnoli, a.scratch[frameHeaderBytes:][:h.dict])
	runs := b.Runs
	if n := int(h.payload); n <= copyBelow || n/len(runs) <= copyBelow {
		a.scratch, runs = b.AppendTo(a.scratch), nil
	}
	h.bodyCRC = crc32.Update(seed, castagnoli, a.scratch[frameHeaderBytes:])
	for i := range runs {
		h.bodyCRC = crc32.Update(h.bodyCRC, castagnoli, runs[i].Data())
	}
	// The header comes last, because it contains the checksum of the body.
	h.put(a.scratch[:frameHeaderBytes], seed)
	if _, err := a.f.WriteAt(a.scratch, off); err != nil {
		return err
	}
	off += int64(len(a.scratch))
	for i := range runs {
		p := runs[i].Data()
		if _, err := a.f.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	if a.queue.opt.Sync == syncAlways {
		return a.sync()
	}
	return nil
}

// sync syncs the frame just written and the directory entries of its file.
func (a *appender) sync() error {
	err := a.f.Sync()
	if err == nil {
		err = a.dir.sync()
	}
	if err != nil {
		err = errors.Join(errNotSynced, err)
	}
	return err
}

// errNotSynced is wrapped by the error of a failed sync. The content of the file is then unknown,
// because the system may have dropped pages that it could not write. A later sync would succeed
// without those pages.
var errNotSynced = errors.New("not on stable storage")

// seal ends the current segment, if there is one. Close returns the error of seal. Other callers
// report it as an event, because later appends do not depend on it.
func (a *appender) seal() error {
	g := a.queue.active
	if g == nil {
		return nil
	}
	err := a.f.Close()
	if err != nil {
		a.queue.events.Post("sync", fmt.Errorf("spool: cannot close %s: %w", g.name, err), 0)
	}
	a.f, a.queue.active = nil, nil
	clear(a.defined)
	a.queue.sweep() // the segment may be deleted now
	return err
}
