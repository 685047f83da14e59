package spool

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

// writer is the end of the last segment; Spool.writeMu guards it.
type writer struct {
	seg     *segment            // equals Spool.active
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
)

// Append adds b at the end and returns its number. Numbers rise by one, except that the numbers of
// batches lost to damage or to a loss of power are skipped.
//
// When Append returns nil, b survives the death of the process. It survives a loss of power once a
// later [Spool.Sync] returns nil, or at once if Options.Sync is "always". On error nothing is
// stored, and a later call may succeed. The error wraps [ErrFull] or an error of the file system
// such as ENOSPC, or reports that the batch exceeds 256 MiB. An empty batch is not stored; its
// number is 0.
//
// Append copies b, including its Origin. Slots keep ticket, time, level, stream and flags.
func (s *Spool) Append(b *batch.Batch) (seq uint64, err error) {
	if b.Len() == 0 {
		return 0, nil
	}
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.isClosed() {
		return 0, errClosed
	}
	var records int
	s.w.index, records = appendIndex(s.w.index[:0], b)
	contentType, schema := form(b.Codec)
	if len(contentType) > maxContentType {
		s.failed()
		return 0, fmt.Errorf("spool: cannot append: content type of %d bytes, at most %d", len(contentType), maxContentType)
	}
	h := frameHeader{head: frameHeaderBytes, origin: b.Origin, entries: uint32(b.Len()), records: uint32(records), at: time.Now().UnixNano()}
	for {
		again, err := s.place(b, &h, contentType, schema)
		if err != nil {
			s.failed()
			return 0, err
		}
		if !again {
			break
		}
	}
	s.w.trim()
	s.wakeSyncer()
	return h.seq, nil
}

// form returns the wire form of a codec's batches.
func form(c batch.Codec) (contentType string, schema uint32) {
	if c == nil {
		return "", 0
	}
	if v, ok := c.(batch.Versioned); ok {
		schema = v.SchemaVersion()
	}
	return c.ContentType(), schema
}

// place finds room for the frame and writes it. again reports that a reader has found the segment
// damaged, so that the frame must be written to the next one.
func (s *Spool) place(b *batch.Batch, h *frameHeader, contentType string, schema uint32) (again bool, err error) {
	s.resume()
	if s.w.f != nil && time.Since(s.w.looked) >= lookEvery && s.isGone() {
		_ = s.seal()
	}
	for {
		need, err := s.frame(b, h)
		if err != nil {
			return false, err
		}
		began := s.w.seg != nil
		if began && !s.fits(need, contentType, schema) {
			_ = s.seal()
			continue
		}
		if err := s.room(need, contentType); err != nil {
			return false, err
		}
		if began == (s.w.seg != nil) {
			break
		} // else the segment was ended for its room: define all streams again
	}
	if s.w.seg == nil {
		if err := s.begin(contentType, schema); err != nil {
			return false, err
		}
	}
	if err := s.write(b, h); err != nil {
		err = fmt.Errorf("spool: cannot append to %s: %w", s.w.seg.name, err)
		s.undo(err)
		return false, err
	}
	return s.commit(h), nil
}

// lookEvery is how often the segment that is written to is looked up by its name.
const lookEvery = time.Second

// isGone reports whether the current segment was deleted or moved. Batches appended to it would be
// lost.
func (s *Spool) isGone() bool {
	s.w.looked = time.Now()
	f, err := s.fs.OpenFile(s.path(s.w.seg.name), os.O_RDONLY, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	_ = f.Close()
	return false
}

// resume opens the segment that recovery selected to be continued. If that fails, a new one is
// used.
func (s *Spool) resume() {
	if s.w.seg == nil || s.w.f != nil {
		return
	}
	f, err := s.fs.OpenFile(s.path(s.w.seg.name), os.O_RDWR, 0)
	if err != nil {
		_ = s.seal()
		return
	}
	// Its stream numbers have no meaning here: w.defined is empty, so all streams are defined
	// again.
	s.w.f = f
}

// fits reports whether a frame of need bytes fits into the current segment.
func (s *Spool) fits(need int64, contentType string, schema uint32) bool {
	g := s.w.seg
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.damage != nil || g.unsure != nil || g.contentType != contentType || g.schema != schema {
		return false
	}
	return g.size+need <= s.opt.SegmentBytes
}

// frame builds in scratch the part of a frame between its header and the payload, and
// returns the length of the whole frame.
func (s *Spool) frame(b *batch.Batch, h *frameHeader) (need int64, err error) {
	w := &s.w
	w.fresh = w.fresh[:0]
	w.scratch = append(w.scratch[:0], make([]byte, frameHeaderBytes)...)
	if s.opt.Streams != nil {
		if err := s.defineStreams(b); err != nil {
			return 0, err
		}
	}
	dict := w.scratch[frameHeaderBytes:]
	need = int64(frameHeaderBytes) + int64(len(dict)) + int64(len(w.index)) + int64(b.Bytes())
	if need-frameHeaderBytes > maxBatchBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, need-frameHeaderBytes, maxBatchBytes)
	}
	h.dict, h.index, h.payload = uint32(len(dict)), uint32(len(w.index)), uint32(b.Bytes())
	return need, nil
}

// defineStreams appends to scratch the definitions of the streams of b that the
// current segment has none for.
func (s *Spool) defineStreams(b *batch.Batch) error {
	w := &s.w
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
			if w.isDefined(id) {
				continue
			}
			var ok bool
			if def, ok = s.opt.Streams.AppendStream(def[:0], id); !ok && id != 0 {
				return fmt.Errorf("spool: cannot append: the dictionary does not know stream %d", id)
			}
			if ok {
				w.scratch = appendStream(w.scratch, id, def)
			}
			w.fresh = append(w.fresh, id)
		}
	}
	return nil
}

// isDefined reports whether id has a definition in the segment or in the frame
// being built.
func (w *writer) isDefined(id uint32) bool {
	if w.seg != nil {
		if _, ok := w.defined[id]; ok {
			return true
		}
	}
	for _, v := range w.fresh {
		if v == id {
			return true
		}
	}
	return false
}

// begin makes the next segment.
func (s *Spool) begin(contentType string, schema uint32) error {
	s.mu.Lock()
	h := segmentHeader{version: formatVersion, contentType: contentType, schema: schema, firstSeq: s.next.seq, firstRec: s.next.rec, created: time.Now().UnixNano()}
	s.mu.Unlock()
	_, _ = rand.Read(h.uuid[:]) // never fails
	f, err := s.create(&h)
	if err != nil {
		return err
	}
	g := &segment{segmentHeader: h, name: segmentName(h.id), size: h.bytes(), disk: h.bytes()}
	g.end = g.start()
	if _, err := f.WriteAt(h.append(nil), 0); err != nil {
		err = errors.Join(err, f.Close())
		s.remove(g.name)
		return fmt.Errorf("spool: cannot make segment %s: %w", g.name, err)
	}
	clear(s.w.defined)
	s.w.f, s.w.seg, s.w.looked = f, g, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segs = append(s.segs, g)
	s.active = g
	s.names++
	return nil
}

// create makes the file of the next segment and gives h its number.
func (s *Spool) create(h *segmentHeader) (vfs.File, error) {
	s.mu.Lock()
	id := s.lastID + 1
	s.mu.Unlock()
	for ; ; id++ {
		f, err := s.fs.OpenFile(s.path(segmentName(id)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // not ours
		}
		if err != nil {
			return nil, fmt.Errorf("spool: cannot make segment %s: %w", segmentName(id), err)
		}
		h.id = id
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lastID = id
		return f, nil
	}
}

// write appends the frame.
func (s *Spool) write(b *batch.Batch, h *frameHeader) error {
	w := &s.w
	seed := w.seg.seed()
	s.mu.Lock()
	off := w.seg.size
	h.seq, h.rec = s.next.seq, s.next.rec
	s.mu.Unlock()

	h.dictCRC = crc32.Update(seed, castagnoli, w.scratch[frameHeaderBytes:])
	w.scratch = append(w.scratch, w.index...)
	payload := int(h.payload)
	joined := payload <= copyBelow || payload/len(b.Runs) <= copyBelow
	if joined {
		w.scratch = b.AppendTo(w.scratch)
	}
	h.bodyCRC = crc32.Update(seed, castagnoli, w.scratch[frameHeaderBytes:])
	if !joined {
		for i := range b.Runs {
			h.bodyCRC = crc32.Update(h.bodyCRC, castagnoli, b.Runs[i].Data())
		}
	}
	h.put(w.scratch[:frameHeaderBytes], seed)
	if _, err := w.f.WriteAt(w.scratch, off); err != nil {
		return err
	}
	if !joined {
		off += int64(len(w.scratch))
		for i := range b.Runs {
			p := b.Runs[i].Data()
			if _, err := w.f.WriteAt(p, off); err != nil {
				return err
			}
			off += int64(len(p))
		}
	}
	if s.opt.Sync == syncAlways {
		return s.syncTail()
	}
	return nil
}

// syncTail syncs the frame just written, and the names it needs. After a failed sync the content of
// the file is unknown, so its segment is not continued.
func (s *Spool) syncTail() error {
	err := s.w.f.Sync()
	if err == nil {
		err = s.syncNames()
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
func (s *Spool) undo(cause error) {
	if err := s.w.f.Truncate(s.w.seg.size); err != nil || errors.Is(cause, errNotSynced) {
		_ = s.seal()
	}
}

// commit makes the frame visible to readers. again reports that a reader has found the segment
// damaged: frames after the damage cannot be reached.
func (s *Spool) commit(h *frameHeader) (again bool) {
	g := s.w.seg
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.damage != nil {
		return true
	}
	for _, id := range s.w.fresh {
		s.w.defined[id] = struct{}{}
	}
	if g.pending(g.settled(s.acked)) == 0 {
		g.since = time.Now().UnixNano()
	}
	g.size += h.bytes()
	g.disk = g.size
	if s.opt.Sync == syncAlways {
		g.synced = g.size
	}
	g.end = mark{seq: h.seq + 1, rec: h.rec + uint64(h.records)}
	s.next = g.end
	s.count.appended += uint64(h.records)
	s.count.batches++
	return false
}

// failed counts an Append that stored nothing.
func (s *Spool) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.appendErrors++
}

// seal ends the current segment, if there is one. An error is reported by an event; later appends
// do not depend on it.
func (s *Spool) seal() error {
	if s.w.seg == nil {
		return nil
	}
	var err error
	if s.w.f != nil {
		err = s.w.f.Close()
	}
	if err != nil {
		s.events.Post(batch.Event{Output: s.opt.Name, Op: "sync", Err: fmt.Errorf("spool: cannot close %s: %w", s.w.seg.name, err)})
	}
	s.w.f, s.w.seg = nil, nil
	s.mu.Lock()
	s.active = nil
	s.mu.Unlock()
	s.sweep()
	return err
}

// trim drops buffers that an unusually large batch has grown.
func (w *writer) trim() {
	if cap(w.scratch) > keepScratch {
		w.scratch = nil
	}
	if cap(w.index) > keepScratch {
		w.index = nil
	}
}
