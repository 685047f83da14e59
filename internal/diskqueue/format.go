package diskqueue

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// These constants are part of the format on disk; see docs/format/spool.md.
const (
	segmentMagic       = "fbspool\n"
	formatVersion      = 2  // version that is written; version 1 can also be read
	segmentHeaderBytes = 72 // size of the header before the content type
	maxContentType     = 1024
	frameHeaderBytes   = 72
	oldFrameHeader     = 56 // size in version 1, which has no origin

	// maxBatchBytes is the maximum size of a batch: payload, index and stream definitions together.
	maxBatchBytes = 256 << 20

	// maxSegmentFile limits how much of a file is read, so that a huge file with the name of a
	// segment does not keep Open busy. No segment is larger.
	maxSegmentFile = maxSegmentBytes + maxBatchBytes

	// maxNumber is the highest batch, record or segment number that is read from a file. It keeps
	// sums of such numbers from overflowing.
	maxNumber = 1 << 62
)

// castagnoli is the table of all checksums in the files. Common processors compute CRC32C in
// hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// A mark is a position between two batches, counted from the beginning of the spool. seq is the
// number of the batch after it. rec is the number of records before it.
type mark struct{ seq, rec uint64 }

// later returns the higher batch number and the higher record number of m and o.
func (m mark) later(o mark) mark { return mark{max(m.seq, o.seq), max(m.rec, o.rec)} }

// valid reports whether m, which was read from a file, is in the range of numbers in use.
func (m mark) valid() bool { return m.seq <= maxNumber && m.rec <= maxNumber }

// A segmentHeader is the beginning of a segment file. It is written once, when the segment is
// created, and never changes. The state of a segment that can change is in its file name and in the
// cursor.
type segmentHeader struct {
	version uint16
	form             // of all batches in the segment
	uuid    [16]byte // random; seed of the checksums of the frames
	id      uint64   // number in the file name
	first   mark     // mark before the first frame
	created int64    // Unix nanoseconds
}

// seed returns the initial value of every checksum in the segment. It differs between segments, so
// an old frame in a reused disk block is never valid here.
func (h *segmentHeader) seed() uint32 { return crc32.Checksum(h.uuid[:], castagnoli) }

// frameHeader returns the size in bytes of the headers of the segment's frames.
func (h *segmentHeader) frameHeader() int {
	if h.version < 2 {
		return oldFrameHeader
	}
	return frameHeaderBytes
}

// bytes returns the size of the header in the file.
func (h *segmentHeader) bytes() int64 { return segmentHeaderBytes + int64(len(h.contentType)) }

// append appends the header in the format of the file to dst.
func (h *segmentHeader) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, segmentMagic...)
	dst = le.AppendUint32(dst, 0) // checksum, below
	dst = le.AppendUint16(dst, h.version)
	dst = le.AppendUint16(dst, uint16(len(h.contentType)))
	dst = le.AppendUint32(dst, h.schema)
	dst = le.AppendUint32(dst, 0) // reserved
	dst = append(dst, h.uuid[:]...)
	dst = le.AppendUint64(dst, h.id)
	dst = le.AppendUint64(dst, h.first.seq)
	dst = le.AppendUint64(dst, h.first.rec)
	dst = le.AppendUint64(dst, uint64(h.created))
	dst = append(dst, h.contentType...)
	le.PutUint32(dst[at+8:], crc32.Checksum(dst[at+12:], castagnoli))
	return dst
}

// readSegmentHeader reads the header of a file of the given size. It returns errTruncated for a
// file that a crash during its creation can leave: it ends before the content type, or has only
// zeros. Any other file may contain frames, so a header that cannot be read is damage. So is a
// header longer than the file, because its length field may be damaged.
func readSegmentHeader(f io.ReaderAt, size int64) (h segmentHeader, err error) {
	var buf [segmentHeaderBytes + maxContentType]byte
	p := buf[:min(size, int64(len(buf)))]
	if err := readFull(f, p, 0); err != nil {
		return h, err
	}
	zero, err := onlyZeros(f, p, 0, size)
	if err != nil {
		return h, err
	}
	if zero || len(p) < segmentHeaderBytes {
		return h, errTruncated
	}
	n := segmentHeaderBytes + int(le.Uint16(p[14:]))
	switch {
	case string(p[:8]) != segmentMagic, n > len(p), crc32.Checksum(p[12:n], castagnoli) != le.Uint32(p[8:]):
		return h, errHeader
	case le.Uint16(p[12:]) > formatVersion:
		return h, errVersion
	}
	h = segmentHeader{
		version: le.Uint16(p[12:]),
		form:    form{contentType: string(p[segmentHeaderBytes:n]), schema: le.Uint32(p[16:])},
		uuid:    [16]byte(p[24:]),
		id:      le.Uint64(p[40:]),
		first:   mark{seq: le.Uint64(p[48:]), rec: le.Uint64(p[56:])},
		created: int64(le.Uint64(p[64:])),
	}
	if h.first.seq == 0 || !h.first.valid() {
		return h, errHeader
	}
	return h, nil
}

// A frameHeader is the beginning of a frame, which holds one batch. It has separate checksums for
// itself, the stream definitions and the body, so a reader can skip a frame, or skip it and apply
// its definitions, without reading the rest.
type frameHeader struct {
	head    uint32 // size in bytes of the header itself, not stored
	bodyCRC uint32
	dict    uint32 // size in bytes of the stream definitions
	index   uint32 // size in bytes of the record index
	payload uint32 // size in bytes of the records
	entries uint32 // records in the index, gap markers included
	records uint32 // records without gap markers
	dictCRC uint32 // checksum of the stream definitions alone, so that they can be read without the rest
	at      mark   // mark before the batch; batch numbers have no gaps across all segments
	time    int64  // time of Append, Unix nanoseconds
	origin  [16]byte
}

// body returns the size in bytes of the frame without its header.
func (h *frameHeader) body() int64 { return int64(h.dict) + int64(h.index) + int64(h.payload) }

// bytes returns the size in bytes of the frame.
func (h *frameHeader) bytes() int64 { return int64(h.head) + h.body() }

// end returns the mark after the batch.
func (h *frameHeader) end() mark { return mark{seq: h.at.seq + 1, rec: h.at.rec + uint64(h.records)} }

// put writes the header to dst, which has h.head bytes. seed is the seed of the segment.
func (h *frameHeader) put(dst []byte, seed uint32) {
	le.PutUint32(dst[4:], h.bodyCRC)
	le.PutUint32(dst[8:], h.dict)
	le.PutUint32(dst[12:], h.index)
	le.PutUint32(dst[16:], h.payload)
	le.PutUint32(dst[20:], h.entries)
	le.PutUint32(dst[24:], h.records)
	le.PutUint32(dst[28:], h.dictCRC)
	le.PutUint64(dst[32:], h.at.seq)
	le.PutUint64(dst[40:], h.at.rec)
	le.PutUint64(dst[48:], uint64(h.time))
	copy(dst[oldFrameHeader:h.head], h.origin[:])
	le.PutUint32(dst, crc32.Update(seed, castagnoli, dst[4:h.head]))
}

// parse reads the header p, whose size depends on the version of the segment. It returns false if
// the checksum is wrong. It does not check the numbers.
func (h *frameHeader) parse(p []byte, seed uint32) bool {
	if crc32.Update(seed, castagnoli, p[4:]) != le.Uint32(p) {
		return false
	}
	*h = frameHeader{
		head:    uint32(len(p)),
		bodyCRC: le.Uint32(p[4:]),
		dict:    le.Uint32(p[8:]),
		index:   le.Uint32(p[12:]),
		payload: le.Uint32(p[16:]),
		entries: le.Uint32(p[20:]),
		records: le.Uint32(p[24:]),
		dictCRC: le.Uint32(p[28:]),
		at:      mark{seq: le.Uint64(p[32:]), rec: le.Uint64(p[40:])},
		time:    int64(le.Uint64(p[48:])),
	}
	copy(h.origin[:], p[oldFrameHeader:])
	return true
}

// appendStream appends the definition of stream id to dst: id, size and def. Readers apply it to all
// later frames of the segment.
func appendStream(dst []byte, id uint32, def []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(id))
	dst = binary.AppendUvarint(dst, uint64(len(def)))
	return append(dst, def...)
}

// eachStream calls fn for every definition in p. The slices passed to fn share the memory of p.
func eachStream(p []byte, fn func(id uint32, def []byte)) error {
	for len(p) > 0 {
		id, i := uvarint(p, 0)
		size, i := uvarint(p, i)
		if i < 0 || id > math.MaxUint32 || size > uint64(len(p)-i) {
			return errStreams
		}
		def := p[i:][:size]
		p = p[i+len(def):]
		fn(uint32(id), def)
	}
	return nil
}

// readFull reads len(p) bytes at off. If the file has fewer bytes there, it returns errTruncated.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || err == io.EOF:
		return errTruncated
	}
	return err
}

// onlyZeros reports whether head, which was read at off, and the rest of a file of the given size
// are zeros. A loss of power can leave blocks that were allocated but never written, and read as
// zeros. A file of the maximum size or more is not checked, because Append cannot leave so many of
// them.
func onlyZeros(f io.ReaderAt, head []byte, off, size int64) (bool, error) {
	if !allZero(head) || size >= maxSegmentFile {
		return false, nil
	}
	buf := make([]byte, 64<<10)
	for off += int64(len(head)); off < size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-off)]
		if err := readFull(f, buf, off); err != nil || !allZero(buf) {
			return false, err
		}
	}
	return true, nil
}

// allZero reports whether all bytes of p are zero.
func allZero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }
