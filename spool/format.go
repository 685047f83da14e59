package spool

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// These constants are part of the format on disk; see docs/format/spool.md.
const (
	segmentMagic       = "fbspool\n"
	formatVersion      = 2  // written; version 1 is read, too
	segmentHeaderBytes = 72 // before the content type
	maxContentType     = 1024
	frameHeaderBytes   = 72
	oldFrameHeader     = 56 // in version 1, which has no origin

	// maxBatchBytes is the maximum size of a batch: payload, index and stream definitions together.
	maxBatchBytes = 256 << 20

	// maxSegmentFile bounds how much of a file is read. No segment is larger.
	maxSegmentFile = maxSegmentBytes + maxBatchBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// segmentHeader is the first thing in a segment file.
type segmentHeader struct {
	version     uint16
	contentType string
	schema      uint32
	uuid        [16]byte
	id          uint64
	firstSeq    uint64 // of the first frame
	firstRec    uint64 // records in all frames before it
	created     int64  // Unix nanoseconds
}

// seed starts every checksum in the segment.
func (h *segmentHeader) seed() uint32 { return crc32.Checksum(h.uuid[:], castagnoli) }

// frameHeader returns the length in bytes of the headers of the segment's frames.
func (h *segmentHeader) frameHeader() int {
	if h.version < 2 {
		return oldFrameHeader
	}
	return frameHeaderBytes
}

// bytes returns the length of the header in the file.
func (h *segmentHeader) bytes() int64 { return segmentHeaderBytes + int64(len(h.contentType)) }

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
	dst = le.AppendUint64(dst, h.firstSeq)
	dst = le.AppendUint64(dst, h.firstRec)
	dst = le.AppendUint64(dst, uint64(h.created))
	dst = append(dst, h.contentType...)
	le.PutUint32(dst[at+8:], crc32.Checksum(dst[at+12:], castagnoli))
	return dst
}

// readSegmentHeader reads the header of a file of the given size. It returns
// errTruncated for a file that ends inside its header or holds only zeros where
// the header would be: such a file never held a frame.
func readSegmentHeader(f io.ReaderAt, size int64) (h segmentHeader, err error) {
	var buf [segmentHeaderBytes + maxContentType]byte
	p := buf[:min(size, int64(len(buf)))]
	if err := readFull(f, p, 0); err != nil {
		return h, err
	}
	if len(p) < segmentHeaderBytes || allZero(p[:segmentHeaderBytes]) {
		return h, errTruncated
	}
	n := segmentHeaderBytes + int(le.Uint16(p[14:]))
	switch version := le.Uint16(p[12:]); {
	case string(p[:8]) != segmentMagic:
		return h, errHeader
	case n > len(buf):
		return h, errHeader
	case n > len(p):
		return h, errTruncated
	case crc32.Checksum(p[12:n], castagnoli) != le.Uint32(p[8:]):
		return h, errHeader
	case version > formatVersion:
		return h, errVersion
	}
	h.version = le.Uint16(p[12:])
	h.schema = le.Uint32(p[16:])
	copy(h.uuid[:], p[24:40])
	h.id = le.Uint64(p[40:])
	h.firstSeq = le.Uint64(p[48:])
	h.firstRec = le.Uint64(p[56:])
	h.created = int64(le.Uint64(p[64:]))
	h.contentType = string(p[segmentHeaderBytes:n])
	if h.firstSeq == 0 || h.firstSeq > maxNumber || h.firstRec > maxNumber {
		return h, errHeader
	}
	return h, nil
}

// maxNumber keeps sums of batch and record numbers from overflowing.
const maxNumber = 1 << 62

// frameHeader is the first thing in a frame, which holds one batch.
type frameHeader struct {
	head    uint32 // bytes of the header itself
	bodyCRC uint32
	dict    uint32 // bytes of stream definitions
	index   uint32 // bytes of the record index
	payload uint32 // bytes of the records
	entries uint32 // records in the index, markers included
	records uint32 // records of the account
	dictCRC uint32 // of the stream definitions alone
	seq     uint64 // of the batch, dense over all segments
	rec     uint64 // records in all batches before it
	at      int64  // time of Append, Unix nanoseconds
	origin  [16]byte
}

// body returns the length in bytes of the frame after its header.
func (h *frameHeader) body() int64 { return int64(h.dict) + int64(h.index) + int64(h.payload) }

// bytes returns the length in bytes of the whole frame.
func (h *frameHeader) bytes() int64 { return int64(h.head) + h.body() }

// put writes the header into dst, which has head bytes.
func (h *frameHeader) put(dst []byte, seed uint32) {
	le.PutUint32(dst[4:], h.bodyCRC)
	le.PutUint32(dst[8:], h.dict)
	le.PutUint32(dst[12:], h.index)
	le.PutUint32(dst[16:], h.payload)
	le.PutUint32(dst[20:], h.entries)
	le.PutUint32(dst[24:], h.records)
	le.PutUint32(dst[28:], h.dictCRC)
	le.PutUint64(dst[32:], h.seq)
	le.PutUint64(dst[40:], h.rec)
	le.PutUint64(dst[48:], uint64(h.at))
	copy(dst[oldFrameHeader:h.head], h.origin[:])
	le.PutUint32(dst, crc32.Update(seed, castagnoli, dst[4:h.head]))
}

// parse reads the header that is p. It returns false if the checksum is wrong.
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
		seq:     le.Uint64(p[32:]),
		rec:     le.Uint64(p[40:]),
		at:      int64(le.Uint64(p[48:])),
	}
	copy(h.origin[:], p[oldFrameHeader:])
	return true
}

// appendStream adds one stream definition to dst.
func appendStream(dst []byte, id uint32, def []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(id))
	dst = binary.AppendUvarint(dst, uint64(len(def)))
	return append(dst, def...)
}

// eachStream calls fn for every definition in p. The slices given to fn share p.
func eachStream(p []byte, fn func(id uint32, def []byte)) error {
	for len(p) > 0 {
		id, n := binary.Uvarint(p)
		if n <= 0 || id > 1<<32-1 {
			return errStreams
		}
		p = p[n:]
		length, n := binary.Uvarint(p)
		if n <= 0 || length > uint64(len(p)-n) {
			return errStreams
		}
		p = p[n:]
		fn(uint32(id), p[:length])
		p = p[length:]
	}
	return nil
}

// readFull reads len(p) bytes at off. A file that ends before gives errTruncated.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return errTruncated
	}
	return err
}

func allZero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}
