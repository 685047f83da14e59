package loki

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/golang/snappy"
)

// The following functions decode requests without any code of the package. They are strict: unknown
// fields, wrong wire types, fields out of order or twice, and invalid UTF-8 are errors.

type gotEntry struct {
	Time time.Time
	Line string
	Meta map[string]string
}

type gotStream struct {
	Labels  string
	Entries []gotEntry
}

type protoField struct {
	num   int
	wire  int
	bytes []byte
	value uint64
}

func protoFields(b []byte) (out []protoField, err error) {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("bad key")
		}
		b = b[n:]
		f := protoField{num: int(key >> 3), wire: int(key & 7)}
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("bad varint")
		}
		b = b[n:]
		switch f.wire {
		case 0:
			f.value = v
		case 2:
			if v > uint64(len(b)) {
				return nil, fmt.Errorf("field %d: length %d beyond the end", f.num, v)
			}
			f.bytes, b = b[:v], b[v:]
		default:
			return nil, fmt.Errorf("wire type %d", f.wire)
		}
		out = append(out, f)
	}
	return out, nil
}

func decodePush(b []byte) (out []gotStream, err error) {
	fields, err := protoFields(b)
	for _, f := range fields {
		if f.num != 1 || f.wire != 2 {
			return nil, fmt.Errorf("request: field %d", f.num)
		}
		s, err := decodeStream(f.bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, err
}

func decodeStream(b []byte) (s gotStream, err error) {
	fields, err := protoFields(b)
	if err != nil {
		return s, err
	}
	for i, f := range fields {
		switch {
		case f.num == 1 && f.wire == 2 && i == 0:
			s.Labels = string(f.bytes)
		case f.num == 2 && f.wire == 2 && i > 0:
			e, err := decodeEntry(f.bytes)
			if err != nil {
				return s, err
			}
			s.Entries = append(s.Entries, e)
		default:
			return s, fmt.Errorf("stream: field %d at %d", f.num, i)
		}
	}
	if !utf8.ValidString(s.Labels) {
		return s, errors.New("labels: not UTF-8")
	}
	return s, nil
}

func decodeEntry(b []byte) (e gotEntry, err error) {
	fields, err := protoFields(b)
	if err != nil {
		return e, err
	}
	if len(fields) < 2 || fields[0].num != 1 || fields[1].num != 2 {
		return e, errors.New("entry: time and line are missing")
	}
	ts, err := protoFields(fields[0].bytes)
	if err != nil || len(ts) != 2 || ts[0].num != 1 || ts[1].num != 2 || ts[0].wire != 0 || ts[1].wire != 0 || ts[1].value >= 1e9 {
		return e, fmt.Errorf("time: %v %v", ts, err)
	}
	e.Time = time.Unix(int64(ts[0].value), int64(ts[1].value)).UTC()
	e.Line = string(fields[1].bytes)
	if !utf8.ValidString(e.Line) {
		return e, errors.New("line: not UTF-8")
	}
	for _, f := range fields[2:] {
		pair, err := protoFields(f.bytes)
		if f.num != 3 || err != nil || len(pair) != 2 || pair[0].num != 1 || pair[1].num != 2 {
			return e, fmt.Errorf("metadata: %v %v", pair, err)
		}
		if e.Meta == nil {
			e.Meta = map[string]string{}
		}
		name := string(pair[0].bytes)
		if _, twice := e.Meta[name]; twice || !utf8.Valid(pair[1].bytes) {
			return e, fmt.Errorf("metadata %s: twice, or not UTF-8", name)
		}
		e.Meta[name] = string(pair[1].bytes)
	}
	return e, nil
}

func decodeSnappy(wire []byte) ([]gotStream, error) {
	plain, err := snappy.Decode(nil, wire)
	if err != nil {
		return nil, err
	}
	return decodePush(plain)
}

func decodeJSON(body []byte) (out []gotStream, err error) {
	var req struct {
		Streams []struct {
			Stream map[string]string   `json:"stream"`
			Values [][]json.RawMessage `json:"values"`
		} `json:"streams"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return nil, err
	}
	for _, s := range req.Streams {
		g := gotStream{Labels: fmt.Sprint(s.Stream)}
		for _, v := range s.Values {
			if len(v) < 2 || len(v) > 3 {
				return nil, fmt.Errorf("%d values", len(v))
			}
			var ns, line string
			if err := errors.Join(json.Unmarshal(v[0], &ns), json.Unmarshal(v[1], &line)); err != nil {
				return nil, err
			}
			t, err := strconv.ParseInt(ns, 10, 64)
			if err != nil {
				return nil, err
			}
			e := gotEntry{Time: time.Unix(0, t).UTC(), Line: line}
			if len(v) == 3 {
				if err := json.Unmarshal(v[2], &e.Meta); err != nil {
					return nil, err
				}
			}
			g.Entries = append(g.Entries, e)
		}
		out = append(out, g)
	}
	return out, nil
}
