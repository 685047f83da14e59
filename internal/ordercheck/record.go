package ordercheck

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A record begins with a little-endian header. It is filled with bytes that depend on the header, so
// that every change is detected:
//
//	length u32 · caller u32 · seq u32 · sum u32 · call i64 · chain u64 · fill
const (
	// HeaderBytes is the minimum length of a record.
	HeaderBytes = 32
	// MaxRecordBytes is the maximum length of a record. A longer one counts as damaged.
	MaxRecordBytes = 1 << 24
)

// An ID identifies a record by its caller and the number of calls that the caller made before.
type ID struct {
	Caller uint32
	Seq    uint32
}

// String returns the caller and the sequence number, such as "3/17".
func (id ID) String() string { return fmt.Sprintf("%d/%d", id.Caller, id.Seq) }

type record struct {
	ID
	call  int64
	chain uint64
}

// fill contains the bytes that follow the header of a record. They begin at one of 256 offsets in
// fill, which depends on the header.
var fill = func() []byte {
	b := make([]byte, 256+4096)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// sum returns a checksum of the header.
func (r record) sum(n int) uint32 {
	h := uint64(n)*0x9E3779B97F4A7C15 ^ uint64(r.Caller)<<32 ^ uint64(r.Seq)
	h = h*0xBF58476D1CE4E5B9 ^ uint64(r.call)
	h = h*0x94D049BB133111EB ^ r.chain
	return uint32(h ^ h>>32)
}

// append appends the record to dst, with a length of n bytes.
func (r record) append(dst []byte, n int) []byte {
	n = min(max(n, HeaderBytes), MaxRecordBytes)
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(n))
	dst = le.AppendUint32(dst, r.Caller)
	dst = le.AppendUint32(dst, r.Seq)
	sum := r.sum(n)
	dst = le.AppendUint32(dst, sum)
	dst = le.AppendUint64(dst, uint64(r.call))
	dst = le.AppendUint64(dst, r.chain)
	for left := n - HeaderBytes; left > 0; {
		k := min(left, 4096)
		dst = append(dst, fill[sum&255:][:k]...)
		left -= k
	}
	return dst
}

// parse returns the record in p. It returns an error if any byte was changed or is missing.
func parse(p []byte) (record, error) {
	if len(p) < HeaderBytes {
		return record{}, fmt.Errorf("ordercheck: record of %d bytes is shorter than its header", len(p))
	}
	le := binary.LittleEndian
	r := record{
		ID:   ID{Caller: le.Uint32(p[4:]), Seq: le.Uint32(p[8:])},
		call: int64(le.Uint64(p[16:])), chain: le.Uint64(p[24:]),
	}
	sum := le.Uint32(p[12:])
	if n := le.Uint32(p); int(n) != len(p) || r.sum(len(p)) != sum {
		return record{}, fmt.Errorf("ordercheck: damaged record of %d bytes: %.64q", len(p), p)
	}
	for rest := p[HeaderBytes:]; len(rest) > 0; {
		k := min(len(rest), 4096)
		if !bytes.Equal(rest[:k], fill[sum&255:][:k]) {
			return record{}, fmt.Errorf("ordercheck: record %v of %d bytes has damaged content", r.ID, len(p))
		}
		rest = rest[k:]
	}
	return r, nil
}
