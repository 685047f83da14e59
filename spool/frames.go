package spool

import (
	"hash/crc32"
	"io"
	"slices"
)

// frames walks the frames of one segment. Each step is [frames.header] followed
// by body, verify or skip.
type frames struct {
	f    io.ReaderAt
	seed uint32
	head int   // bytes of a frame's header
	size int64 // bytes that may be read; raised while the segment grows

	off int64  // of the next frame
	seq uint64 // it must have
	rec uint64 // it must have

	before mark // where the next segment begins; zero: unknown

	ahead     [frameHeaderBytes]byte // its first head bytes are the header at off, if haveAhead
	haveAhead bool
}

// startFrames returns a walk over the segment that h begins.
func startFrames(f io.ReaderAt, size int64, h *segmentHeader) frames {
	return frames{f: f, seed: h.seed(), head: h.frameHeader(), size: size, off: h.bytes(), seq: h.firstSeq, rec: h.firstRec}
}

// header reads the header of the next frame. It returns io.EOF at a clean end, and before a
// frame that the next segment shows to be one of a failed Append. It returns errTorn where
// the file ends inside the frame (or is zeros from here on), a cause of [CorruptError] for
// damage, and otherwise the error of the read.
func (w *frames) header(h *frameHeader) error {
	left := w.size - w.off
	if left == 0 {
		return io.EOF
	}
	if left < int64(w.head) {
		return errTorn
	}
	ahead := w.ahead[:w.head]
	if !w.haveAhead {
		if err := readFull(w.f, ahead, w.off); err != nil {
			return err
		}
		w.haveAhead = true
	}
	if !h.parse(ahead, w.seed) {
		switch zero, err := w.zerosToEnd(); {
		case err != nil:
			return err
		case zero:
			return errTorn
		}
		return errFrame
	}
	switch {
	case h.body() > maxBatchBytes || h.records > h.entries:
		return errTooLong
	case h.seq != w.seq || h.rec != w.rec:
		return errSequence
	case h.seq < w.before.seq && h.rec+uint64(h.records) > w.before.rec:
		return io.EOF // its number went to a batch with fewer records, whose segment is gone
	case h.bytes() > left:
		return errTorn
	}
	return nil
}

// zerosToEnd reports whether nothing but zeros follows: room that a file system
// had given to the file when the power failed, but not filled yet.
func (w *frames) zerosToEnd() (bool, error) {
	if !allZero(w.ahead[:w.head]) || w.size >= maxSegmentFile { // no writer leaves that much
		return false, nil
	}
	buf := make([]byte, 64<<10)
	for off := w.off; off < w.size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), w.size-off)]
		if err := readFull(w.f, p, off); err != nil {
			return false, err
		}
		if !allZero(p) {
			return false, nil
		}
	}
	return true, nil
}

// skip steps over the frame that h begins without reading the rest of it.
func (w *frames) skip(h *frameHeader) {
	w.off += h.bytes()
	w.seq++
	w.rec += uint64(h.records)
	w.haveAhead = false
}

// streams reads the stream definitions of the frame that h begins into buf,
// which it may grow, and checks them. It does not step.
func (w *frames) streams(h *frameHeader, buf []byte) ([]byte, error) {
	buf = slices.Grow(buf[:0], int(h.dict))[:h.dict]
	if err := readFull(w.f, buf, w.off+int64(w.head)); err != nil {
		return buf, err
	}
	if crc32.Update(w.seed, castagnoli, buf) != h.dictCRC {
		return buf, errStreams
	}
	return buf, nil
}

// body reads the rest of the frame that h begins into buf, which it may grow,
// checks it and steps to the next frame.
func (w *frames) body(h *frameHeader, buf []byte) ([]byte, error) {
	n := h.body() // bounded by the file's size, see header
	ahead := int64(0)
	if w.size-w.off-h.bytes() >= int64(w.head) {
		ahead = int64(w.head) // one read for this body and the next header
	}
	buf = slices.Grow(buf[:0], int(n)+w.head)[:n+ahead]
	if err := readFull(w.f, buf, w.off+int64(w.head)); err != nil {
		return buf, err
	}
	body := buf[:n]
	if crc32.Update(w.seed, castagnoli, body) != h.bodyCRC {
		return body, errBody
	}
	w.skip(h)
	if ahead > 0 {
		copy(w.ahead[:], buf[n:])
		w.haveAhead = true
	}
	return body, nil
}

// verify checks the frame that h begins and steps to the next, holding no more
// of it than scratch has room for.
func (w *frames) verify(h *frameHeader, scratch []byte) error {
	crc := w.seed
	off := w.off + int64(w.head)
	for left := h.body(); left > 0; {
		p := scratch[:min(int64(len(scratch)), left)]
		if err := readFull(w.f, p, off); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, p)
		off += int64(len(p))
		left -= int64(len(p))
	}
	if crc != h.bodyCRC {
		return errBody
	}
	w.skip(h)
	return nil
}

// A position is the position of a walk.
type position struct {
	off      int64
	seq, rec uint64
}

// place returns the position of the walk, for back.
func (w *frames) place() position { return position{off: w.off, seq: w.seq, rec: w.rec} }

// back returns the walk to an earlier position.
func (w *frames) back(p position) {
	w.off, w.seq, w.rec, w.haveAhead = p.off, p.seq, p.rec, false
}
