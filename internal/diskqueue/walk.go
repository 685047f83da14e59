package diskqueue

import (
	"hash/crc32"
	"io"
	"slices"
)

// A walk iterates over the frames of one segment: header reads the header of the next frame,
// streams and body read parts of it, and skip advances past it. Open, Next, Held and the functions
// for inspection all use it, so they agree about damage and the end of a segment.
//
// Nothing in a file is trusted: sizes are checked against the size of the file before memory is
// allocated, and numbers against the expected numbers.
type walk struct {
	f    io.ReaderAt
	seed uint32
	head int   // size in bytes of a frame's header
	size int64 // number of bytes that may be read; raised while the segment grows

	off int64 // offset of the next frame in the file
	at  mark  // mark of the next frame, which its header must match

	limit mark // the frames of the segment end before this mark

	ahead   [frameHeaderBytes]byte // its first head bytes are the header of the frame at the offset aheadAt
	aheadAt int64                  // 0: no frame
}

// startWalk returns a walk over the first size bytes of f, the segment with the header h.
func startWalk(f io.ReaderAt, size int64, h *segmentHeader) walk {
	return walk{f: f, seed: h.seed(), head: h.frameHeader(), size: size, off: h.bytes(), at: h.first, limit: noLimit}
}

// noLimit is the limit of a walk over the last segment: it is above all numbers in use.
var noLimit = mark{seq: maxNumber, rec: maxNumber}

// header reads the header of the next frame. It returns
//   - io.EOF at the end of the frames, at the limit, and before a frame whose records exceed the
//     limit: its Append failed, and its number went to a batch of a later segment,
//   - errTorn if the file ends within the frame, or has only zeros from here on,
//   - a cause of [spool.CorruptError] for damage,
//   - the error of the file system if the read fails.
func (w *walk) header(h *frameHeader) error {
	left := w.size - w.off
	if left == 0 || w.at.seq >= w.limit.seq {
		return io.EOF
	}
	if left < int64(w.head) {
		return errTorn
	}
	p := w.ahead[:w.head]
	// The last read of a body may have fetched this header already.
	if w.aheadAt != w.off {
		w.aheadAt = 0
		if err := readFull(w.f, p, w.off); err != nil {
			return err
		}
		w.aheadAt = w.off
	}
	switch {
	case !h.parse(p, w.seed):
		zero, err := onlyZeros(w.f, p, w.off, w.size)
		if zero {
			err = errTorn
		} else if err == nil {
			err = errFrame
		}
		return err
	case h.body() > maxBatchBytes || h.records > h.entries:
		return errTooLong
	// The checksum is right, so the frame was written for this segment, but not at this position.
	case h.at != w.at:
		return errSequence
	case h.end().rec > w.limit.rec:
		return io.EOF
	case h.bytes() > left:
		return errTorn
	}
	return nil
}

// skip advances past the next frame, which has the header h, without reading the rest of it.
func (w *walk) skip(h *frameHeader) {
	w.off += h.bytes()
	w.at = h.end()
}

// streams reads the stream definitions of the next frame, which has the header h, into buf, and
// checks them. buf may be reallocated.
func (w *walk) streams(h *frameHeader, buf []byte) ([]byte, error) {
	buf = slices.Grow(buf[:0], int(h.dict))[:h.dict]
	if err := readFull(w.f, buf, w.off+int64(w.head)); err != nil {
		return buf, err
	}
	if crc32.Update(w.seed, castagnoli, buf) != h.dictCRC {
		return buf, errStreams
	}
	return buf, nil
}

// body reads the body of the next frame, which has the header h, into buf, and checks it. buf may
// be reallocated. The same read fetches the header of the following frame, which halves the system
// calls.
func (w *walk) body(h *frameHeader, buf []byte) ([]byte, error) {
	n, ahead := int(h.body()), 0 // n is bounded by the size of the file, see header
	if w.size-w.off-h.bytes() >= int64(w.head) {
		ahead = w.head
	}
	buf = slices.Grow(buf[:0], n+w.head)[:n+ahead]
	if err := readFull(w.f, buf, w.off+int64(w.head)); err != nil {
		return buf, err
	}
	if crc32.Update(w.seed, castagnoli, buf[:n]) != h.bodyCRC {
		return buf, errBody
	}
	if ahead > 0 {
		copy(w.ahead[:], buf[n:])
		w.aheadAt = w.off + h.bytes()
	}
	return buf[:n], nil
}
