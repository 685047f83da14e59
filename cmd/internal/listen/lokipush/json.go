package lokipush

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A push in JSON is first converted to MessagePack, which is not longer and can be read without an
// allocation for each value.

// json calls the function visit for each entry of a JSON push. converted is the body, converted to
// MessagePack.
func (w *walker) json(converted []byte, visit visitor) error {
	streams, err := member(converted, "streams")
	if err != nil {
		return err
	}
	w.streams = 0
	if streams == nil {
		return nil
	}
	t, b, _ := msgpack.Next(streams)
	if t.Kind != msgpack.Array {
		return errors.New("streams is not an array")
	}
	for range t.Len {
		if err := w.jsonStream(b, visit); err != nil {
			return fmt.Errorf("streams[%d]: %w", w.streams, err)
		}
		b, _ = msgpack.Skip(b)
		w.streams++
	}
	return nil
}

// member returns the value of the key name in an object. If the key is missing or the value is
// null, it returns nil.
func member(object []byte, name string) (value []byte, err error) {
	t, b, err := msgpack.Next(object)
	if err != nil || t.Kind != msgpack.Map {
		return nil, errors.New("it is not an object")
	}
	for range t.Len {
		k, v, err := msgpack.Next(b)
		if err != nil {
			return nil, err
		}
		if b, err = msgpack.Skip(v); err != nil {
			return nil, err
		}
		if string(k.Bytes) == name {
			value = v
			if t, _, _ := msgpack.Next(v); t.Kind == msgpack.Nil {
				value = nil
			}
		}
	}
	return value, nil
}

// errLegacy reports a push in the JSON format of /api/prom/push, which some clients send to
// /loki/api/v1/push. Loki answers 204 to such a push but stores nothing.
var errLegacy = errors.New(`the JSON has the old format of /api/prom/push, with "labels" and "entries": send "stream" and "values", or protobuf`)

// jsonStream calls the function visit for each entry of a stream.
func (w *walker) jsonStream(stream []byte, visit visitor) error {
	labels, err := member(stream, "stream")
	if err != nil {
		return err
	}
	if labels == nil {
		if old, err := member(stream, "labels"); err == nil && old != nil {
			return errLegacy
		}
		return errNoLabels
	}
	if w.labels, _, err = w.strings(w.labels[:0], labels, "stream", "labels"); err != nil {
		return err
	}
	for _, l := range w.labels {
		if !isValidName(l.Name) {
			return fmt.Errorf("the label name %s is invalid: use letters, digits and _", listen.Quote([]byte(l.Name)))
		}
	}
	if w.labels, err = sortLabels(w.labels); err != nil {
		return err
	}
	values, err := member(stream, "values")
	if err != nil || values == nil {
		return err
	}
	t, b, _ := msgpack.Next(values)
	if t.Kind != msgpack.Array {
		return errors.New("values is not an array")
	}
	for i := range t.Len {
		if b, err = w.jsonEntry(b, visit); err != nil {
			return fmt.Errorf("values[%d]: %w", i, err)
		}
	}
	return nil
}

var errEntry = errors.New(`it is not ["nanoseconds", "line"] or ["nanoseconds", "line", {"name": "value"}]`)

// jsonEntry calls the function visit for the entry at the beginning of b. It returns the data after
// the entry.
func (w *walker) jsonEntry(b []byte, visit visitor) (rest []byte, err error) {
	t, b, _ := msgpack.Next(b)
	if t.Kind != msgpack.Array || t.Len < 2 || t.Len > 3 {
		return nil, errEntry
	}
	stamp, b, _ := msgpack.Next(b)
	line, b, _ := msgpack.Next(b)
	if stamp.Kind != msgpack.Str || line.Kind != msgpack.Str {
		return nil, errEntry
	}
	ns, err := strconv.ParseInt(string(stamp.Bytes), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the time %s is not a number of nanoseconds", listen.Quote(stamp.Bytes))
	}
	w.metadata = w.metadata[:0]
	if t.Len == 3 {
		if w.metadata, b, err = w.strings(w.metadata, b, "a record", "metadata"); err != nil {
			return nil, err
		}
	}
	return b, visit(w.labels, unixNano(ns), line.Bytes, w.metadata)
}

// strings appends the members of an object as labels to dst. All values must be strings. owner and
// kind describe the object in errors, see tooMany.
func (w *walker) strings(dst []listen.Label, object []byte, owner, kind string) ([]listen.Label, []byte, error) {
	t, b, _ := msgpack.Next(object)
	switch {
	case t.Kind != msgpack.Map:
		return dst, nil, fmt.Errorf("the %s are not an object", kind)
	case t.Len > w.maxLabels:
		return dst, nil, tooMany(owner, kind, w.maxLabels)
	}
	for range t.Len {
		var k, v msgpack.Token
		k, b, _ = msgpack.Next(b)
		if v, b, _ = msgpack.Next(b); v.Kind != msgpack.Str {
			return dst, nil, fmt.Errorf("the value of %s is not a string", listen.Quote(k.Bytes))
		}
		dst = append(dst, listen.Label{Name: string(k.Bytes), Value: string(v.Bytes)})
	}
	return dst, b, nil
}
