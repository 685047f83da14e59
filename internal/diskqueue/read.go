package diskqueue

import (
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A handout is one batch in memory, read from a segment and returned by Next.
type handout struct {
	seg    *segment
	at     mark // mark before the batch
	end    mark // mark after the batch
	batch  batch.Batch
	origin [16]byte // Origin of the batch; the caller of Next may change the batch
	buf    []byte   // body of the frame
	slots  []layout.Slot
}

// bytes returns the size in bytes of the memory that o keeps.
func (o *handout) bytes() int { return cap(o.buf) + cap(o.slots)*layout.SlotBytes }

// A segmentReader reads the frames of one segment in order. The method header reads the header of
// the next frame, the methods body and read return the rest of that frame, and skip advances to the
// frame after it. The body of a frame depends on the stream definitions in earlier ones. Open,
// Next, Held and the functions for inspection all use it, so they agree about damage and the end of
// a segment.
//
// Nothing in a file is trusted: sizes are checked against the size of the file before memory is
// allocated, and numbers against the expected numbers.
type segmentReader struct {
	f    vfs.File
	seed uint32
	head int   // size in bytes of a frame's header
	size int64 // number of bytes that may be read; raised while the segment grows

	off   int64 // offset of the next frame in the file
	at    mark  // mark of the next frame, which its header must match
	limit mark  // the frames of the segment end before this mark

	ahead   [frameHeaderBytes]byte // its first head bytes are the header of the frame at the offset aheadAt
	aheadAt int64                  // 0: no frame

	codec   batch.Codec
	streams batch.Dictionary  // translates streams; nil: stream numbers are returned unchanged
	defined map[uint32]uint32 // translation of stream numbers of the segment to those of this process
	dict    []byte            // reused by skipTo
}

// noLimit is the limit in the last segment: it is above all numbers in use.
var noLimit = mark{seq: maxNumber, rec: maxNumber}

// open begins to read the first size bytes of the file of g. Only the fields Codec and Streams of o
// are used.
func (r *segmentReader) open(d *directory, g *segment, size int64, o *spool.Options) error {
	f, err := d.open(g.name, os.O_RDONLY)
	if err != nil {
		return err
	}
	*r = segmentReader{
		f: f, seed: g.seed(), head: g.frameHeader(), size: size,
		off: g.bytes(), at: g.first, limit: noLimit,
		codec: codecFor(o, g.form), streams: o.Streams, defined: map[uint32]uint32{}, dict: r.dict,
	}
	return nil
}

// close closes the file. An error is meaningless, because the file was only read.
func (r *segmentReader) close() { _ = r.f.Close() }

// header reads the header of the next frame. It returns
//   - io.EOF at the end of the frames, at the limit, and before a frame whose records exceed the
//     limit: its Append failed, and its number went to a batch of a later segment,
//   - errTorn if the file ends within the frame, or if the frame was never written, see unwritten,
//   - a cause of [spool.CorruptError] for damage,
//   - the error of the file system if the read fails.
func (r *segmentReader) header(h *frameHeader) error {
	left := r.size - r.off
	if left == 0 || r.at.seq >= r.limit.seq {
		return io.EOF
	}
	if left < int64(r.head) {
		return errTorn
	}
	p := r.ahead[:r.head]
	// The last read of a body may have fetched this header already.
	if r.aheadAt != r.off {
		r.aheadAt = 0
		if err := readFull(r.f, p, r.off); err != nil {
			return err
		}
		r.aheadAt = r.off
	}
	switch {
	case !h.parse(p, r.seed):
		return r.tornOr(errFrame)
	case h.body() > maxBatchBytes || h.records > h.entries:
		return errTooLong
	case h.entries == 0: // Append stores no empty batch, and the outlet expects a record in each
		return errIndex
	// The checksum is right, so the frame was written for this segment, but not at this position.
	case h.at != r.at:
		return errSequence
	case h.end().rec > r.limit.rec:
		return io.EOF
	case h.bytes() > left:
		return errTorn
	}
	return nil
}

// tornOr returns errTorn if the next frame, whose checksum is wrong, was never written completely,
// and otherwise the given damage. It returns the error of the file system if a read fails.
func (r *segmentReader) tornOr(d damage) error {
	torn, err := r.unwritten()
	switch {
	case err != nil:
		return err
	case torn:
		return errTorn
	}
	return d
}

// unwritten reports whether part of the next frame never reached the disk. After a loss of power, a
// page that was not written reads as zeros, although later pages may have been written. The sync of
// such a frame has not returned, so no later frame is synced either. Nevertheless unwritten returns
// false if the header of a later frame is intact, because those records should be reported as lost.
func (r *segmentReader) unwritten() (zero bool, err error) {
	if r.size >= maxSegmentFile { // no Append leaves such a file
		return false, nil
	}
	const page = 4 << 10
	buf := make([]byte, page+r.head)
	for at := r.off; at < r.size; {
		end := min((at/page+1)*page, r.size)
		p := buf[:min(end+int64(r.head), r.size)-at]
		if err := readFull(r.f, p, at); err != nil {
			return false, err
		}
		for i := range min(int(end-at), len(p)-r.head+1) {
			var h frameHeader
			// The checksum is computed only if the number is plausible, because the file may be large.
			seq := le.Uint64(p[i+32:])
			if seq > r.at.seq && seq-r.at.seq <= uint64(r.size) && h.parse(p[i:i+r.head], r.seed) {
				return false, nil
			}
		}
		zero = zero || allZero(p[:end-at])
		at = end
	}
	return zero, nil
}

// skip advances past the next frame, which has the header h, without reading the rest of it.
func (r *segmentReader) skip(h *frameHeader) {
	r.off += h.bytes()
	r.at = h.end()
}

// body reads the body of the next frame, which has the header h, into buf, and checks it. buf may
// be reallocated. The same read fetches the header of the following frame, which halves the system
// calls.
func (r *segmentReader) body(h *frameHeader, buf []byte) ([]byte, error) {
	n, ahead := int(h.body()), 0 // n is bounded by the size of the file, see header
	if r.size-r.off-h.bytes() >= int64(r.head) {
		ahead = r.head
	}
	buf = slices.Grow(buf[:0], n+r.head)[:n+ahead]
	if err := readFull(r.f, buf, r.off+int64(r.head)); err != nil {
		return buf, err
	}
	if crc32.Update(r.seed, castagnoli, buf[:n]) != h.bodyCRC {
		return buf, r.tornOr(errBody)
	}
	if ahead > 0 {
		copy(r.ahead[:], buf[n:])
		r.aheadAt = r.off + h.bytes()
	}
	return buf[:n], nil
}

// skipTo steps over the frames before batch seq and applies their stream definitions. It reads no
// payload. It does nothing if the next frame contains batch seq.
func (r *segmentReader) skipTo(seq uint64) error {
	var h frameHeader
	for r.at.seq < seq {
		if err := r.header(&h); err != nil {
			return err
		}
		r.dict = slices.Grow(r.dict[:0], int(h.dict))[:h.dict]
		if err := readFull(r.f, r.dict, r.off+int64(r.head)); err != nil {
			return err
		}
		if crc32.Update(r.seed, castagnoli, r.dict) != h.dictCRC {
			return errStreams
		}
		if err := r.define(r.dict); err != nil {
			return err
		}
		r.skip(&h)
	}
	return nil
}

// read reads the next frame, which has the header h, into o, whose memory it reuses. It does not
// advance, so that a failed read can be repeated.
func (r *segmentReader) read(h *frameHeader, o *handout) (err error) {
	if o.buf, err = r.body(h, o.buf); err != nil {
		return err
	}
	dict, rest := o.buf[:h.dict], o.buf[h.dict:]
	if err := r.define(dict); err != nil {
		return err
	}
	// The slots refer to the payload, which stays in o.buf: nothing is copied.
	if o.slots, err = decodeIndex(o.slots[:0], rest[:h.index], h, r.local); err != nil {
		return err
	}
	o.at, o.end, o.origin = h.at, h.end(), h.origin
	o.batch.Reset()
	o.batch.Codec, o.batch.Origin = r.codec, h.origin
	o.batch.Add(layout.NewRun(rest[h.index:], o.slots))
	return nil
}

// define applies the stream definitions in p. If r.streams is nil, it only checks them.
func (r *segmentReader) define(p []byte) error {
	return eachStream(p, func(id uint32, def []byte) {
		if r.streams != nil {
			r.defined[id] = r.streams.Stream(def)
		}
	})
}

// local translates a stream number of the segment to one of this process. It returns false for an
// undefined stream, except stream 0.
func (r *segmentReader) local(id uint32) (uint32, bool) {
	if r.streams == nil {
		return id, true
	}
	local, ok := r.defined[id]
	return local, ok || id == 0
}

// codecFor returns the codec for batches of the form f; see [spool.Options.Codec].
func codecFor(o *spool.Options, f form) batch.Codec {
	if o.Codec != nil {
		if c := o.Codec(f.contentType, f.schema); c != nil {
			return c
		}
	}
	if f.contentType == "" {
		return nil
	}
	return opaque(f.contentType)
}

// opaque is the codec of a content type and schema for which Options.Codec has no codec. Its value
// is the content type, by which a destination recognizes records that it cannot read.
type opaque string

// ContentType returns the content type that is stored in the segment.
func (c opaque) ContentType() string { return string(c) }

// AppendJSON appends a JSON object that contains the record as the string "raw". Bytes that are not
// UTF-8 become U+FFFD.
func (c opaque) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	dst = jsontext.AppendString(append(dst, `{"raw":`...), strings.TrimSuffix(string(rec), "\n"))
	return append(dst, '}')
}

// AppendMarker appends nothing, because the encoding of a marker is unknown.
func (c opaque) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }
