package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The format of a record batch is that of https://kafka.apache.org/documentation/#recordbatch (magic 2).
// All integers of the header are big-endian. The field baseOffset stays 0: the broker sets it.
const (
	batchHeader = 61 // size of the header in bytes

	// Offsets of fields of the header.
	atLength  = 8  // batchLength: bytes after this field
	atCRC     = 17 // crc: CRC-32C of the bytes from atCodec on
	atCodec   = 21 // attributes; bits 0 to 2 are the compression
	atLast    = 23 // lastOffsetDelta
	atFirstMs = 27 // baseTimestamp
	atMaxMs   = 35 // maxTimestamp
	atPID     = 43 // producerId
	atEpoch   = 51 // producerEpoch
	atSeq     = 53 // baseSequence
	atCount   = 57 // number of records
)

// castagnoli is the table of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A builder builds one Kafka batch from records. It is reused for further batches, and used by one
// goroutine at a time.
type builder struct {
	buf     []byte // space for the header, followed by the uncompressed records
	n       int32  // number of records
	first   int64  // timestamp of the first record, in Unix ms
	largest int64  // largest timestamp, in Unix ms
}

// A header is a header of a Kafka record. Several headers of a record may have the same key.
type header struct {
	key   string
	value []byte
}

// reset removes all records and reserves space for the header.
func (w *builder) reset() {
	w.buf, w.n = append(w.buf[:0], make([]byte, batchHeader)...), 0
}

// recordSize returns an upper bound of the size of a record in a batch, in bytes, without
// compression.
func recordSize(key, value []byte, headers []header) int {
	// A varint of 32 bits has at most 5 bytes, one of 64 bits 10.
	n := 5 + 1 + 10 + 5 + 5 + len(key) + 5 + len(value) + 1
	for i := range headers {
		n += 2 + len(headers[i].key) + 5 + len(headers[i].value)
	}
	return n
}

// add appends a record with the timestamp ms, in Unix ms. A nil key means no key. add copies key,
// value and headers. Lengths and deltas are zigzag varints. The record begins with the size of its
// remainder.
func (w *builder) add(ms int64, key, value []byte, headers []header) {
	if w.n == 0 { // timestamps are relative to the timestamp of the first record
		w.first, w.largest = ms, ms
	}
	w.largest = max(w.largest, ms)
	size := 1 + varintLen(ms-w.first) + varintLen(int64(w.n)) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for i := range headers {
		size += varintLen(int64(len(headers[i].key))) + len(headers[i].key) + bytesLen(headers[i].value)
	}
	b := binary.AppendVarint(w.buf, int64(size))
	b = append(b, 0) // attributes, unused
	b = binary.AppendVarint(b, ms-w.first)
	b = binary.AppendVarint(b, int64(w.n))
	b = appendBytes(b, key)
	b = appendBytes(b, value)
	b = binary.AppendVarint(b, int64(len(headers)))
	for i := range headers {
		b = binary.AppendVarint(b, int64(len(headers[i].key)))
		b = append(b, headers[i].key...)
		b = appendBytes(b, headers[i].value)
	}
	w.buf = b
	w.n++
}

// appendBytes appends the length of b, followed by b. The length of nil is -1.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// bytesLen returns the number of bytes that appendBytes appends.
func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen returns the length of v as a zigzag varint, in bytes.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}

// seal appends the complete batch to dst. The records are compressed with c if that makes them
// smaller; scratch is memory for the compression. stamp must be called before the batch is sent.
func (w *builder) seal(dst []byte, c kgo.Compressor, scratch *bytes.Buffer) []byte {
	// Only the records are compressed. Codec 0 means no compression.
	records, codec := w.buf[batchHeader:], kgo.CompressionCodecType(0)
	if c != nil {
		scratch.Reset()
		if z, kind := c.Compress(scratch, records); kind > 0 && len(z) < len(records) {
			records, codec = z, kind
		}
	}
	dst = append(dst, w.buf[:batchHeader]...)
	dst = append(dst, records...)
	be := binary.BigEndian
	be.PutUint32(dst[atLength:], uint32(len(dst)-12))
	be.PutUint32(dst[12:], 1<<32-1) // partitionLeaderEpoch -1: unknown
	dst[16] = 2                     // magic: the version of the format
	be.PutUint16(dst[atCodec:], uint16(codec))
	be.PutUint32(dst[atLast:], uint32(w.n-1))
	be.PutUint64(dst[atFirstMs:], uint64(w.first))
	be.PutUint64(dst[atMaxMs:], uint64(w.largest))
	be.PutUint32(dst[atCount:], uint32(w.n))
	return dst
}

// stamp sets the producer, the sequence number and the checksum of the sealed batch b. seq is the
// sequence number of its first record.
func stamp(b []byte, pid int64, epoch int16, seq int32) {
	// The checksum covers the fields set here, so it is computed last, for each attempt.
	be := binary.BigEndian
	be.PutUint64(b[atPID:], uint64(pid))
	be.PutUint16(b[atEpoch:], uint16(epoch))
	be.PutUint32(b[atSeq:], uint32(seq))
	be.PutUint32(b[atCRC:], crc32.Checksum(b[atCodec:], castagnoli))
}

// sequenceAfter returns the sequence number that follows seq by n records. Sequence numbers wrap at
// 2^31.
func sequenceAfter(seq int32, n int) int32 { return int32((int64(seq) + int64(n)) & (1<<31 - 1)) }

// millis converts Unix ns to Unix ms, the unit of Kafka.
func millis(ns int64) int64 { return time.Unix(0, ns).UnixMilli() }
