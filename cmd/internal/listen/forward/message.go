package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/units"
)

// A message is one message of the protocol:
// https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1. Its slices refer to
// memory of the reader or, if the message was compressed or JSON, of the unpacker.
type message struct {
	tag        []byte
	entries    []byte // consecutive entries, each an array [time, record]; in mode Message a time and a record
	n          int    // number of entries; 0 if unknown
	single     bool   // the mode is Message; there is one entry
	chunk      []byte // id to repeat in the acknowledgement; nil if the client wants none
	compressed []byte // name of the compression; nil if the message is not compressed
}

// errKeepAlive is returned for the message nil, which clients of Fluentd send to keep the
// connection open.
var errKeepAlive = errors.New("keep-alive")

// fault returns an error about an invalid message.
func fault(format string, args ...any) error {
	return fmt.Errorf("the message is wrong: "+format, args...)
}

// parse parses a message except for its entries. It sets message.n only if the message contains the
// number.
func parse(raw []byte) (m message, err error) {
	t, b, err := msgpack.Next(raw)
	switch {
	case err != nil:
		return m, fault("%v", err)
	case t.Kind == msgpack.Nil:
		return m, errKeepAlive
	case t.Kind != msgpack.Array || t.Len < 2 || t.Len > 4:
		return m, fault("%s is not an array of a tag and entries", listen.Quote(raw))
	}
	parts := t.Len
	if t, b, err = msgpack.Next(b); err != nil || !t.Text() {
		return m, fault("the tag is not a string")
	}
	m.tag = t.Bytes
	payload, after, err := msgpack.Next(b)
	if err != nil {
		return m, fault("%v", err)
	}
	options := parts - 2
	switch payload.Kind {
	case msgpack.Str, msgpack.Bin:
		m.entries, b = payload.Bytes, after
	case msgpack.Array:
		m.n = payload.Len
		rest, err := msgpack.Skip(b)
		if err != nil {
			return m, fault("%v", err)
		}
		m.entries, b = after[:len(after)-len(rest)], rest
	default:
		if parts < 3 {
			return m, fault("it has a time but no record")
		}
		rest, err := msgpack.Skip(after)
		if err != nil {
			return m, fault("%v", err)
		}
		m.entries, b = b[:len(b)-len(rest)], rest
		m.n, m.single = 1, true
		options--
	}
	switch options {
	case 0:
		return m, nil
	case 1:
		return m, m.option(b)
	}
	return m, fault("data follows the option")
}

// option parses the options of a message, and ignores unknown options.
func (m *message) option(b []byte) error {
	t, b, err := msgpack.Next(b)
	switch {
	case err != nil:
		return fault("%v", err)
	case t.Kind == msgpack.Nil:
		return nil
	case t.Kind != msgpack.Map:
		return fault("the option is not a map")
	}
	for range t.Len {
		key, value, err := msgpack.Next(b)
		if err != nil {
			return fault("%v", err)
		}
		if key.Kind == msgpack.Array || key.Kind == msgpack.Map {
			return fault("a key of the option is not a string")
		}
		if b, err = msgpack.Skip(value); err != nil {
			return fault("%v", err)
		}
		v, _, _ := msgpack.Next(value)
		switch string(key.Bytes) {
		case "chunk":
			if !v.Text() {
				return fault("the chunk is not a string")
			}
			m.chunk = v.Bytes
		case "compressed":
			if !v.Text() {
				return fault("the name of the compression is not a string")
			}
			m.compressed = v.Bytes
		}
	}
	return nil
}

// An unpacker decompresses messages and converts JSON messages to MessagePack. Each connection has
// one. It reuses its memory.
type unpacker struct {
	limit int // maximum size of the decompressed entries
	in    bytes.Reader
	zips  map[string]compression.Reader // decompressors by the name of the compression
	out   []byte
	lease *listen.Lease
}

// fromJSON converts a message from JSON to MessagePack. The result is valid until the next call.
func (d *unpacker) fromJSON(ctx context.Context, raw []byte) ([]byte, error) {
	const growth = 3 // an invalid UTF-8 byte is replaced by three bytes
	size := growth*len(raw) + 512
	if err := d.lease.Hold(ctx, max(size, cap(d.out))); err != nil {
		return nil, err
	}
	if cap(d.out) < size {
		d.out = make([]byte, 0, size)
	}
	msg, rest, err := msgpack.AppendFromJSON(d.out[:0], raw)
	if err != nil || len(rest) > 0 {
		return nil, fault("%s is not JSON", listen.Quote(raw))
	}
	return msg, nil
}

// decompress returns the entries of a compressed message. The result is valid until the next call.
func (d *unpacker) decompress(ctx context.Context, m *message) ([]byte, error) {
	if string(m.compressed) == "text" {
		return m.entries, nil
	}
	from, known := d.zips[string(m.compressed)]
	if !known {
		f, err := compression.Find(string(m.compressed))
		if err != nil {
			return nil, fault("the compression is %s: use gzip, or zstd with forebay-all", listen.Quote(m.compressed))
		}
		if d.zips == nil {
			d.zips = map[string]compression.Reader{}
		}
		from = f.NewReader()
		d.zips[string(m.compressed)] = from
	}
	d.in.Reset(m.entries)
	err := from.Reset(&d.in)
	for out := d.out[:0]; ; {
		if err == nil {
			if out, err = d.grow(ctx, out); err != nil {
				return nil, err
			}
			var n int
			n, err = from.Read(out[len(out):cap(out)])
			out = out[:len(out)+n]
		}
		switch {
		case len(out) > d.limit:
			return nil, fmt.Errorf("the message is longer than %s when decompressed", units.Size(float64(d.limit)))
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fault("it is not %s: %v", m.compressed, err)
		}
	}
}

// grow returns out with room for more data. If out is full, its data is copied to a larger buffer,
// which d keeps for later messages.
func (d *unpacker) grow(ctx context.Context, out []byte) ([]byte, error) {
	if len(out) < cap(out) {
		return out, nil
	}
	size := max(2*cap(out), listen.ReadBytes)
	if err := d.lease.Hold(ctx, size); err != nil {
		return nil, err
	}
	d.out = make([]byte, len(out), size)
	copy(d.out, out)
	return d.out, nil
}

// shrink releases a buffer that was enlarged for a large message.
func (d *unpacker) shrink() {
	if cap(d.out) > listen.ReadBytes {
		d.out = nil
		d.lease.Release()
	}
}

// close returns the memory of d to the budget of the server.
func (d *unpacker) close() {
	d.lease.Release()
}

// An item is an entry of a message: a record, or a marker at the start or end of a group of
// records.
type item struct {
	kind     itemKind
	at       time.Time
	metadata []byte // a map, or nil
	record   []byte // a map, followed by the rest of the entries
}

// An itemKind is the kind of an item.
type itemKind uint8

const (
	isRecord itemKind = iota
	groupStart
	groupEnd
)

// Fluent Bit sends markers of groups. The time of a start marker is -1 s, and the time of an end
// marker is -2 s. The constants are these times as the 32-bit unsigned seconds of an EventTime.
const (
	startSeconds = 0xffffffff
	endSeconds   = 0xfffffffe
)

// kindOf returns the kind of the item with the time t. If t is a negative integer, the item is a
// marker only if it has metadata, because other clients may send times before 1970.
func kindOf(t *msgpack.Token, hasMetadata bool) itemKind {
	sec := uint32(0)
	if at, ok := msgpack.EventTime(t); ok {
		sec = uint32(at.Unix())
	} else if t.Kind == msgpack.Int && hasMetadata && t.Int64() >= -2 {
		sec = uint32(t.Int64())
	}
	switch sec {
	case startSeconds:
		return groupStart
	case endSeconds:
		return groupEnd
	}
	return isRecord
}

// entry parses the entry at the beginning of b, except for its record.
func (m *message) entry(b []byte) (e item, err error) {
	if !m.single && commonEntry(b, &e) {
		return e, nil
	}
	if !m.single {
		var t msgpack.Token
		if t, b, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Array || t.Len != 2 {
			return e, fault("an entry is not an array of a time and a record")
		}
	}
	t, b, err := msgpack.Next(b)
	hasMetadata := false
	if err == nil && t.Kind == msgpack.Array { // an array of the time and the metadata
		var rest []byte
		if rest, err = skip(b, t.Len); err == nil && t.Len > 0 {
			hasMetadata = t.Len > 1
			t, e.metadata, err = msgpack.Next(b)
		}
		b = rest
	}
	if err != nil {
		return e, fault("%v", err)
	}
	if hasMetadata && msgpack.IsMap(e.metadata[0]) {
		e.metadata = e.metadata[:len(e.metadata)-len(b)]
	} else {
		e.metadata = nil
	}
	if e.kind = kindOf(&t, hasMetadata); e.kind == isRecord {
		if e.at, err = timeOf(&t); err != nil {
			return e, err
		}
	}
	if t, _, err = msgpack.Next(b); err != nil || t.Kind != msgpack.Map {
		return e, fault("a record is not a map")
	}
	e.record = b
	return e, nil
}

// commonEntry is a fast implementation of entry for the two most common formats: an EventTime and a
// map, and an EventTime with empty metadata and a map. It returns false for other formats.
func commonEntry(b []byte, e *item) bool {
	if len(b) > 14 && b[0] == 0x92 && b[1] == 0x92 && b[12] == 0x80 {
		b = b[1:]
		e.record = b[12:]
	} else if len(b) > 11 {
		e.record = b[11:]
	} else {
		return false
	}
	if b[0] != 0x92 || b[1] != 0xd7 || b[2] != 0 || !msgpack.IsMap(e.record[0]) {
		return false
	}
	sec, nsec := binary.BigEndian.Uint32(b[3:]), binary.BigEndian.Uint32(b[7:])
	e.at = time.Unix(int64(sec), int64(nsec))
	return sec < endSeconds
}

// skip skips n values at the beginning of b and returns the rest.
func skip(b []byte, n int) (rest []byte, err error) {
	for range n {
		if b, err = msgpack.Skip(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

var errKey = errors.New("a key is an array or a map")

// check validates the value at the beginning of b and returns the data after it. It limits the
// nesting. A key must not be an array or a map: the key would be converted to JSON text, and with
// each level of nesting the escaped text would double.
func check(b []byte, depth int) ([]byte, error) {
	t, b, err := msgpack.Next(b)
	if err != nil || t.Kind != msgpack.Array && t.Kind != msgpack.Map {
		return b, err
	}
	if depth == maxDepth {
		return nil, errDepth
	}
	for range t.Len {
		if t.Kind == msgpack.Map {
			if n := msgpack.Scalar(b); n > 0 {
				b = b[n:]
			} else if b, err = checkKey(b); err != nil {
				return nil, err
			}
		}
		if n := msgpack.Scalar(b); n > 0 {
			b = b[n:]
		} else if b, err = check(b, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// checkKey reports an error if the key at the beginning of b is an array or a map.
func checkKey(b []byte) ([]byte, error) {
	t, b, err := msgpack.Next(b)
	if err == nil && (t.Kind == msgpack.Array || t.Kind == msgpack.Map) {
		err = errKey
	}
	return b, err
}

// timeOf returns the time of an entry: an EventTime, or seconds as an integer or a floating-point
// number.
func timeOf(t *msgpack.Token) (time.Time, error) {
	if at, ok := msgpack.EventTime(t); ok {
		return at, nil
	}
	const most = 1 << 33 // seconds; in the year 2242
	switch {
	case t.Kind == msgpack.Uint && t.Num < most:
		return time.Unix(int64(t.Num), 0), nil
	case t.Kind == msgpack.Int && t.Int64() > -most:
		return time.Unix(t.Int64(), 0), nil
	case t.Kind == msgpack.Float32, t.Kind == msgpack.Float64:
		if f := t.Float(); f > -most && f < most {
			sec, frac := math.Modf(f)
			return time.Unix(int64(sec), int64(frac*1e9)), nil
		}
	}
	return time.Time{}, fault("the time of an entry is invalid: %v", t.Kind)
}

// appendJSONAck appends the acknowledgement of a message that was sent as JSON.
func appendJSONAck(dst, chunk []byte) []byte {
	return append(jsontext.AppendEscapedBytes(append(dst, `{"ack":"`...), chunk), `"}`...)
}

// appendAck appends the acknowledgement of a message.
func appendAck(dst, chunk []byte) []byte {
	dst = msgpack.AppendStr(msgpack.AppendMapHeader(dst, 1), "ack")
	return append(msgpack.AppendStrHeader(dst, len(chunk)), chunk...)
}

// maxJSONBytes returns the maximum length of a MessagePack value of n bytes after its conversion to
// JSON. The worst case is a map whose key and value are ext values without data.
func maxJSONBytes(n int) int { return 12*n + 64 }
