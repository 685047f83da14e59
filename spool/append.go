package spool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

// appender is the end of the last segment, which grows.
type appender struct {
	queue  *queue
	dir    *directory
	events *reporter

	// mu is held while the segment grows. It guards the rest.
	mu      sync.Mutex
	seg     *segment            // equals queue.active
	f       vfs.File            // nil while seg is a segment of an earlier process that is continued
	looked  time.Time           // when the segment was last looked up by its name
	defined map[uint32]struct{} // streams with a definition in seg

	scratch []byte   // frame header, definitions, index, small payloads
	index   []byte   // of the batch being added
	fresh   []uint32 // streams that the batch being added defines
}

const (
	// copyBelow is the payload size up to which copying it after the index is cheaper than a second
	// write.
	copyBelow = 16 << 10
	// keepScratch is the ceiling of a buffer kept for reuse.
	keepScratch = 4 << 20
	// lookEvery is how often the segment that is written to is looked up by its name.
	lookEvery = time.Second
)

// append is Spool.Append for a batch that is not empty. It returns errGone if files of the spool
// were deleted: after a restore it may be called again.
func (a *appender) append(b *batch.Batch) (seq uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue.isClosed() {
		return 0, errClosed
	}
	f := formOf(b.Codec)
	if len(f.contentType) > maxContentType {
		return 0, fmt.Errorf("spool: cannot append: content type of %d bytes, at most %d", len(f.contentType), maxContentType)
	}
	var records int
	a.index, records = appendIndex(a.index[:0], b)
	h := frameHeader{head: frameHeaderBytes, origin: b.Origin, entries: uint32(b.Len()), records: uint32(records), at: time.Now().UnixNano()}
	for visible := false; !visible; {
		if visible, err = a.place(b, &h, f); err != nil {
			return 0, err
		}
	}
	a.trim()
	return h.seq, nil
}

// place finds room for the frame and writes it. It returns false if a reader has found the segment
// damaged, so that the frame must be written to the next one.
func (a *appender) place(b *batch.Batch, h *frameHeader, f form) (visible bool, err error) {
	a.resume()
	if a.f != nil && time.Since(a.looked) >= lookEvery {
		if a.looked = time.Now(); !a.dir.has(a.seg) {
			_ = a.seal() // batches appended to it would be lost
			return false, errGone
		}
	}
	for {
		need, err := a.frame(b, h)
		if err != nil {
			return false, err
		}
		began := a.seg != nil
		if began && !a.queue.fits(need, f) {
			_ = a.seal()
			continue
		}
		if err := a.room(need, f); err != nil {
			return false, err
		}
		if began == (a.seg != nil) {
			break
		} // else the segment was ended for its room: define all streams again
	}
	if a.seg == nil {
		if err := a.begin(f); err != nil {
			return false, err
		}
	}
	if err := a.write(b, h); err != nil {
		err = fmt.Errorf("spool: cannot append to %s: %w", a.seg.name, err)
		a.undo(err)
		return false, err
	}
	if !a.queue.commit(h) {
		return false, nil
	}
	for _, id := range a.fresh {
		a.defined[id] = struct{}{}
	}
	return true, nil
}

// resume opens the segment that recovery selected to be continued. If that fails, a new one is
// used.
func (a *appender) resume() {
	if a.seg == nil || a.f != nil {
		return
	}
	f, err := a.dir.open(a.seg.name, os.O_RDWR)
	if err != nil {
		_ = a.seal()
		return
	}
	// Its stream numbers have no meaning here: a.defined is empty, so all streams are defined
	// again.
	a.f = f
}

// frame builds in scratch the part of a frame between its header and the payload, and
// returns the length of the whole frame.
func (a *appender) frame(b *batch.Batch, h *frameHeader) (need int64, err error) {
	a.fresh = a.fresh[:0]
	a.scratch = append(a.scratch[:0], make([]byte, frameHeaderBytes)...)
	if a.queue.opt.Streams != nil {
		if err := a.defineStreams(b); err != nil {
			return 0, err
		}
	}
	dict := len(a.scratch) - frameHeaderBytes
	body := int64(dict) + int64(len(a.index)) + int64(b.Bytes())
	if body > maxBatchBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, body, maxBatchBytes)
	}
	h.dict, h.index, h.payload = uint32(dict), uint32(len(a.index)), uint32(b.Bytes())
	return h.bytes(), nil
}

// defineStreams appends to scratch the definitions of the streams of b that the
// current segment has none for.
func (a *appender) defineStreams(b *batch.Batch) error {
	last, first := uint32(0), true
	var def []byte
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			id := r.Slot(j).Stream
			if id == last && !first {
				continue
			}
			last, first = id, false
			if a.isDefined(id) {
				continue
			}
			var ok bool
			if def, ok = a.queue.opt.Streams.AppendStream(def[:0], id); !ok && id != 0 {
				return fmt.Errorf("spool: cannot append: the dictionary does not know stream %d", id)
			}
			if ok {
				a.scratch = appendStream(a.scratch, id, def)
			}
			a.fresh = append(a.fresh, id)
		}
	}
	return nil
}

// isDefined reports whether id has a definition in the segment or in the frame
// being built.
func (a *appender) isDefined(id uint32) bool {
	if a.seg != nil {
		if _, ok := a.defined[id]; ok {
			return true
		}
	}
	return slices.Contains(a.fresh, id)
}

// begin makes the next segment.
func (a *appender) begin(f form) error {
	if a.dir.lock == nil {
		return errGone
	}
	from := a.queue.end()
	h := segmentHeader{version: formatVersion, contentType: f.contentType, schema: f.schema, firstSeq: from.seq, firstRec: from.rec, created: time.Now().UnixNano()}
	_, _ = rand.Read(h.uuid[:]) // never fails
	file, err := a.create(&h)
	if err != nil {
		return err
	}
	g := &segment{segmentHeader: h, name: segmentName(h.id), size: h.bytes(), disk: h.bytes(), end: from}
	if _, err := file.WriteAt(h.append(nil), 0); err != nil {
		err = errors.Join(err, file.Close())
		a.dir.remove(g.name)
		return fmt.Errorf("spool: cannot make segment %s: %w", g.name, err)
	}
	clear(a.defined)
	a.f, a.seg, a.looked = file, g, time.Now()
	a.queue.begin(g)
	a.dir.touch()
	return nil
}

// create makes the file of the next segment and gives h its number.
func (a *appender) create(h *segmentHeader) (vfs.File, error) {
	for h.id = a.queue.position().segment + 1; ; h.id++ {
		f, err := a.dir.open(segmentName(h.id), os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			continue // not ours
		}
		if isNotExist(err) {
			return nil, errGone
		}
		if err != nil {
			return nil, fmt.Errorf("spool: cannot make segment %s: %w", segmentName(h.id), err)
		}
		a.queue.takeID(h.id)
		return f, nil
	}
}

// write appends the frame.
func (a *appender) write(b *batch.Batch, h *frameHeader) error {
	seed := a.seg.seed()
	off := a.seg.size // changed only by commit and with mu
	at := a.queue.end()
	h.seq, h.rec = at.seq, at.rec

	h.dictCRC = crc32.Update(seed, castagnoli, a.scratch[frameHeaderBytes:])
	a.scratch = append(a.scratch, a.index...)
	payload := int(h.payload)
	joined := payload <= copyBelow || payload/len(b.Runs) <= copyBelow
	if joined {
		a.scratch = b.AppendTo(a.scratch)
	}
	h.bodyCRC = crc32.Update(seed, castagnoli, a.scratch[frameHeaderBytes:])
	if !joined {
		for i := range b.Runs {
			h.bodyCRC = crc32.Update(h.bodyCRC, castagnoli, b.Runs[i].Data())
		}
	}
	h.put(a.scratch[:frameHeaderBytes], seed)
	if _, err := a.f.WriteAt(a.scratch, off); err != nil {
		return err
	}
	if !joined {
		off += int64(len(a.scratch))
		for i := range b.Runs {
			p := b.Runs[i].Data()
			if _, err := a.f.WriteAt(p, off); err != nil {
				return err
			}
			off += int64(len(p))
		}
	}
	if a.queue.opt.Sync == syncAlways {
		return a.sync()
	}
	return nil
}

// sync syncs the frame just written, and the names it needs. After a failed sync the content of
// the file is unknown, so its segment is not continued.
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

var errNotSynced = errors.New("not on stable storage")

// undo cuts off the rest of a failed write. If that fails, too, or the file cannot be
// trusted any more, the segment ends here: later frames go into the next one, and readers
// know the end.
func (a *appender) undo(cause error) {
	if err := a.f.Truncate(a.seg.size); err != nil || errors.Is(cause, errNotSynced) {
		_ = a.seal()
	}
}

// seal ends the current segment, if there is one. An error is reported by an event; later appends
// do not depend on it.
func (a *appender) seal() error {
	if a.seg == nil {
		return nil
	}
	var err error
	if a.f != nil {
		err = a.f.Close()
	}
	if err != nil {
		a.events.post("sync", fmt.Errorf("spool: cannot close %s: %w", a.seg.name, err), 0)
	}
	a.f, a.seg = nil, nil
	a.queue.seal()
	return err
}

// sealFinished ends the current segment if it is finished, so that an empty spool does not keep
// megabytes of old records.
func (a *appender) sealFinished() {
	if !a.queue.activeFinished() || !a.mu.TryLock() { // an Append under way means there is more
		return
	}
	defer a.mu.Unlock()
	if a.queue.activeFinished() {
		_ = a.seal()
	}
}

// trim drops buffers that an unusually large batch has grown.
func (a *appender) trim() {
	if cap(a.scratch) > keepScratch {
		a.scratch = nil
	}
	if cap(a.index) > keepScratch {
		a.index = nil
	}
}
