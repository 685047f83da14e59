package loki

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// This is the protobuf form of an entry, in the slab and unchanged in a request (EntryAdapter as
// field 2 of StreamAdapter, push.proto of github.com/grafana/loki/pkg/push):
//
//	12 len4  0a 0c 08 sec5 10 nsec5  12 len4 line  (1a len4 0a len name 12 len4 value)*
//
// The time, and each length that is known only after its content is written, are varints padded to
// a fixed size. Protobuf decoders accept such varints. Therefore an entry is written without moving
// bytes, and the length of the line is at a fixed offset.
const (
	// These are tags of protobuf fields: field number and wire type 2.
	tagStreams  = 0x0a // PushRequest.streams
	tagLabels   = 0x0a // StreamAdapter.labels
	tagEntry    = 0x12 // StreamAdapter.entries
	tagTime     = 0x0a // EntryAdapter.timestamp
	tagLine     = 0x12 // EntryAdapter.line
	tagMetadata = 0x1a // EntryAdapter.structuredMetadata

	// These are sizes and offsets in bytes.
	lenBytes  = 4                                    // size of a padded length, which is at most maxPadded
	timeBytes = 14                                   // size of the field timestamp
	entryHead = 1 + lenBytes                         // offset of the time
	lineHead  = entryHead + timeBytes + 1 + lenBytes // offset of the line
	maxPadded = 1<<28 - 1                            // largest value of a padded length
)

// pad4 returns v as a varint of four bytes. The first byte is in the lowest bits. v must not exceed
// maxPadded.
func pad4(v uint64) uint64 {
	return v&0x7f | v<<1&0x7f00 | v<<2&0x7f_0000 | v<<3&0x7f00_0000 | 0x80_8080
}

// pad5 returns v as a varint of five bytes. The first byte is in the lowest bits. v must be less
// than 2^35.
func pad5(v uint64) uint64 { return pad4(v) | 0x8000_0000 | v<<4&0x7f_0000_0000 }

// putPadded writes v to b as a varint of four bytes. v must not exceed maxPadded.
func putPadded(b []byte, v uint64) { binary.LittleEndian.PutUint32(b, uint32(pad4(v))) }

// padded4 returns the value of the padded varint of four bytes at the beginning of b. It ignores the
// highest bits of the bytes.
func padded4(b []byte) uint64 {
	v := uint64(binary.LittleEndian.Uint32(b))
	return v&0x7f | v>>1&0x3f80 | v>>2&0x1f_c000 | v>>3&0xfe0_0000
}

// padded returns the value of a padded varint. b must contain nothing else.
func padded(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c&0x7f) << (7 * i)
	}
	return v
}

// beginEntry appends the part of an entry before the line, with the time t in Unix ns. A time
// before 1970 becomes 0. The lengths of the entry and of the line are stored later, by endEntry and
// endLine.
func beginEntry(dst []byte, t int64) []byte {
	sec := uint64(max(t, 0)) / 1e9
	nsec := pad5(uint64(max(t, 0)) - sec*1e9)
	// The fixed part of the entry is stored in three words of 8 bytes.
	var head [lineHead]byte
	binary.LittleEndian.PutUint64(head[:], tagEntry|tagTime<<40|(timeBytes-2)<<48|0x08<<56)
	binary.LittleEndian.PutUint64(head[8:], pad5(sec)|0x10<<40|nsec<<48)
	binary.LittleEndian.PutUint64(head[16:], nsec>>16|tagLine<<24)
	return append(dst, head[:]...)
}

// endLine stores the length of the line of the entry that begins at start. The line ends at the end
// of dst.
func endLine(dst []byte, start int) {
	putPadded(dst[start+lineHead-lenBytes:start+lineHead], uint64(len(dst)-start-lineHead))
}

// endEntry stores the length of the entry that begins at start and ends at the end of dst.
func endEntry(dst []byte, start int) {
	putPadded(dst[start+1:start+entryHead], uint64(len(dst)-start-entryHead))
}

// appendMetadata appends a pair of structured metadata to an entry in protobuf form.
func appendMetadata(dst, name, value []byte) []byte {
	at := len(dst)
	dst = append(dst, tagMetadata, 0, 0, 0, 0, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	dst = append(dst, 0x12)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	dst = append(dst, value...)
	putPadded(dst[at+1:at+1+lenBytes], uint64(len(dst)-at-1-lenBytes))
	return dst
}

// A form is an encoding of entries: protobuf or JSON. A record keeps its form from the encoder to
// the request.
type form uint8

const (
	protoForm form = iota // EntryAdapter of push.proto
	jsonForm              // element of "values" in the JSON of the push API
)

// These are the content types of the records of a [Driver]. They are stored with the records in
// spools and crash-safe files, so they must not change.
const (
	contentTypeProtobuf = "application/vnd.forebay.loki-entry+protobuf"
	contentTypeJSON     = "application/vnd.forebay.loki-entry+json"
)

// The values of Config.Wire.
const (
	wireProtobuf = "protobuf"
	wireJSON     = "json"
	wireGzip     = "json+gzip"
)

// formOf returns the form of entries for the given value of Config.Wire.
func formOf(w string) form {
	if w == wireProtobuf {
		return protoForm
	}
	return jsonForm
}

// requestWire returns the format of requests with entries of form f, as a value of Config.Wire.
// Usually this is the parameter wire, the value in the Config. It differs if an earlier process
// with another Config has encoded the entries.
func (f form) requestWire(wire string) string {
	switch f {
	case formOf(wire):
		return wire
	case jsonForm:
		return wireJSON
	}
	return wireProtobuf
}

// formNamed returns the form with the given content type. If there is none, ok is false.
func formNamed(contentType string) (form, bool) {
	switch contentType {
	case contentTypeProtobuf:
		return protoForm, true
	case contentTypeJSON:
		return jsonForm, true
	}
	return 0, false
}

// contentType returns the content type of records in form f.
func (f form) contentType() string {
	if f == jsonForm {
		return contentTypeJSON
	}
	return contentTypeProtobuf
}

// parse decodes a record in form f. The slices of the result are parts of rec. If rec is not an
// entry, ok is false.
func (f form) parse(rec []byte) (entry, bool) {
	if f == jsonForm {
		return parseJSON(rec)
	}
	return parseProto(rec)
}

// check returns the length in bytes of the line of a record, and whether the record looks like an
// entry. In JSON form, the length includes escapes, which are longer than the characters they
// represent. If it would exceed limit, the result is the length without escapes.
func (f form) check(rec []byte, limit int) (line int, ok bool) {
	if f == protoForm {
		return checkProto(rec)
	}
	if line, ok = checkJSON(rec); ok && line > limit {
		line = lineLenJSON(rec)
	}
	return line, ok
}

// metadata calls the function item for each pair of metadata of an entry. It does nothing if rec is
// not an entry.
func (f form) metadata(rec []byte, item func(name, value []byte)) {
	e, ok := f.parse(rec)
	if !ok {
		return
	}
	if f == protoForm {
		eachMetadata(e.meta, item)
		return
	}
	var items map[string]string
	if json.Unmarshal(e.meta, &items) == nil {
		for name, value := range items {
			item([]byte(name), []byte(value))
		}
	}
}

// metaSize returns the number of metadata pairs and their size in bytes, counted like in Loki.
func (f form) metaSize(rec []byte) (pairs, size int) {
	f.metadata(rec, func(name, value []byte) { pairs, size = pairs+1, size+len(name)+len(value) })
	return pairs, size
}

// reopen returns a copy of the entry rec with time t, in Unix ns. Metadata can be appended to the
// copy before it is passed to form.close. rec must be an entry.
func (f form) reopen(rec []byte, t int64) []byte {
	if f == protoForm {
		out := slices.Clone(rec)
		copy(out[entryHead:entryHead+timeBytes], beginEntry(nil, t)[entryHead:])
		return out
	}
	e, _ := parseJSON(rec)
	head := bytes.IndexByte(rec[2:], '"') + 2 // index of the quote after the time
	out := append(beginJSON(nil, t), rec[head+len(`","`):]...)
	out = out[:len(out)-1] // remove the closing bracket
	if len(e.meta) > 0 {
		return out[:len(out)-1] // remove the closing brace of the metadata
	}
	return append(out, ",{"...)
}

// close completes an entry made by reopen.
func (f form) close(out []byte) []byte {
	switch {
	case f == protoForm:
		endEntry(out, 0)
		return out
	case out[len(out)-1] == '{': // no metadata was appended
		return append(out[:len(out)-2], ']')
	}
	return append(out, "}]"...)
}

// An entry is a decoded record. Its slices are parts of the record.
type entry struct {
	time int64  // in Unix ns
	line []byte // in JSON form a JSON string with quotes and escapes
	meta []byte // encoded metadata: protobuf fields, or a JSON object; empty if there is none
}

// checkProto returns the length in bytes of the line of a record in protobuf form, and whether the
// record looks like an entry. It is called for each record of a batch, so it reads only fixed
// offsets.
func checkProto(rec []byte) (line int, ok bool) {
	if len(rec) < lineHead || rec[0] != tagEntry || rec[entryHead] != tagTime || rec[entryHead+timeBytes] != tagLine ||
		padded4(rec[1:]) != uint64(len(rec)-entryHead) {
		return 0, false
	}
	n := padded4(rec[lineHead-lenBytes:])
	return int(n), n <= uint64(len(rec)-lineHead)
}

// parseProto decodes an entry in protobuf form. It does not validate line and metadata.
func parseProto(rec []byte) (e entry, ok bool) {
	n, ok := checkProto(rec)
	if !ok {
		return e, false
	}
	e.time = int64(padded(rec[entryHead+3:entryHead+8]))*1e9 + int64(padded(rec[entryHead+9:entryHead+14]))
	e.line, e.meta = rec[lineHead:lineHead+n], rec[lineHead+n:]
	return e, true
}

// eachMetadata calls the function f for each pair of metadata of an entry in protobuf form. It
// returns false at the first invalid pair.
func eachMetadata(meta []byte, f func(name, value []byte)) bool {
	for len(meta) > 0 {
		if len(meta) < 1+lenBytes || meta[0] != tagMetadata {
			return false
		}
		n := padded4(meta[1:])
		if n > uint64(len(meta)-1-lenBytes) {
			return false
		}
		pair := meta[1+lenBytes : 1+lenBytes+n]
		meta = meta[1+lenBytes+n:]
		name, pair, ok := field(pair, 0x0a)
		if !ok {
			return false
		}
		value, pair, ok := field(pair, 0x12)
		if !ok || len(pair) != 0 {
			return false
		}
		f(name, value)
	}
	return true
}

// field parses the protobuf field at the beginning of b. It returns the content of the field and
// the bytes after it. If the field is invalid or does not have the given tag, ok is false.
func field(b []byte, tag byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != tag {
		return nil, nil, false
	}
	n, k := binary.Uvarint(b[1:])
	if k <= 0 || n > uint64(len(b)-1-k) {
		return nil, nil, false
	}
	return b[1+k : 1+k+int(n)], b[1+k+int(n):], true
}

// This is the JSON form of an entry, in the slab and in a request:
//
//	["1763651094123456789","line",{"name":"value"}]

// checkJSON returns the length in bytes of the line of a record in JSON form, including escapes,
// and whether the record looks like an entry.
func checkJSON(rec []byte) (line int, ok bool) {
	e, ok := parseJSON(rec)
	return max(len(e.line)-2, 0), ok
}

// parseJSON decodes an entry in JSON form. It does not validate line and metadata.
func parseJSON(rec []byte) (e entry, ok bool) {
	const open, mid = `["`, `",`
	if !bytes.HasPrefix(rec, []byte(open)) || rec[len(rec)-1] != ']' {
		return e, false
	}
	rest := rec[len(open) : len(rec)-1]
	i := bytes.IndexByte(rest, '"')
	if i < 1 || i > 20 || !bytes.HasPrefix(rest[i:], []byte(mid)) {
		return e, false
	}
	t, err := strconv.ParseInt(string(rest[:i]), 10, 64)
	if err != nil {
		return e, false
	}
	rest = rest[i+len(mid):]
	n := jsontext.StringLen(rest)
	if n == 0 {
		return e, false
	}
	e.time, e.line, rest = t, rest[:n], rest[n:]
	if len(rest) > 0 {
		if rest[0] != ',' {
			return e, false
		}
		e.meta = rest[1:]
	}
	return e, true
}

// beginJSON appends the part of an entry in JSON form before the line, with the time t in Unix ns.
func beginJSON(dst []byte, t int64) []byte {
	dst = jsontext.AppendUnixNano(append(dst, '[', '"'), t)
	return append(dst, '"', ',', '"')
}

// malformedError returns the error for rec, a record that this package did not encode.
func malformedError(rec []byte) error {
	return fmt.Errorf("loki: cannot send record %.40q: it is not an entry; use the encoder of its destination", rec)
}

// lineLenJSON returns the length in bytes of the line of an entry in JSON form, without escapes.
// Loki compares this length with its limit. If rec is not an entry, lineLenJSON returns the length
// of rec.
func lineLenJSON(rec []byte) int {
	e, ok := parseJSON(rec)
	var s string
	if !ok || json.Unmarshal(e.line, &s) != nil {
		return len(rec)
	}
	return len(s)
}
