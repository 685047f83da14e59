package lokipush

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

// A visitor is called for each entry of a push, in order. Its arguments are valid until it returns.
// The slice labels is the same for all entries of a stream.
type visitor func(labels []listen.Label, at time.Time, line []byte, metadata []listen.Label) error

// A walker calls a visitor for each entry of a push. It reuses its memory for the next push.
type walker struct {
	maxLabels        int
	labels, metadata []listen.Label
	streams          int // number of streams in the last push
}

var errProto = errors.New("it is not a protobuf PushRequest")

// field parses the field at the beginning of a protobuf message. A varint field has its value in
// num, and a length-delimited field in value.
func field(b []byte) (tag uint64, value []byte, num uint64, rest []byte, err error) {
	key, n := binary.Uvarint(b)
	if n <= 0 || key>>3 == 0 {
		return 0, nil, 0, nil, errProto
	}
	b = b[n:]
	size := 0
	switch key & 7 {
	case 0:
		num, n = binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, 0, nil, errProto
		}
		return key, nil, num, b[n:], nil
	case 1:
		size = 8
	case 2:
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return 0, nil, 0, nil, errProto
		}
		b, size = b[n:], int(length)
	case 5:
		size = 4
	default:
		return 0, nil, 0, nil, errProto
	}
	if size > len(b) {
		return 0, nil, 0, nil, errProto
	}
	return key, b[:size:size], 0, b[size:], nil
}

// These are fields of push.proto in github.com/grafana/loki/pkg/push: the number of each field,
// shifted by 3, with its wire type.
const (
	streamsField  = 1<<3 | 2 // in PushRequest
	labelsField   = 1<<3 | 2 // in StreamAdapter
	entriesField  = 2<<3 | 2
	timeField     = 1<<3 | 2 // in EntryAdapter
	lineField     = 2<<3 | 2
	metadataField = 3<<3 | 2
	secondsField  = 1 << 3 // in Timestamp
	nanosField    = 2 << 3
	nameField     = 1<<3 | 2 // in LabelPairAdapter
	valueField    = 2<<3 | 2
)

// proto calls the function visit for each entry of a PushRequest.
func (w *walker) proto(b []byte, visit visitor) error {
	for w.streams = 0; len(b) > 0; {
		tag, stream, _, rest, err := field(b)
		if err != nil {
			return err
		}
		if b = rest; tag == streamsField {
			if err := w.protoStream(stream, visit); err != nil {
				return err
			}
			w.streams++
		}
	}
	return nil
}

// protoStream calls the function visit for each entry of a StreamAdapter.
func (w *walker) protoStream(stream []byte, visit visitor) error {
	var text []byte
	for b := stream; len(b) > 0; { // find the labels, which may follow the entries
		tag, value, _, rest, err := field(b)
		if err != nil {
			return err
		}
		if b = rest; tag == labelsField {
			text = value
		}
	}
	var err error
	if w.labels, err = parseLabels(w.labels[:0], string(text), w.maxLabels); err != nil {
		return err
	}
	for b := stream; len(b) > 0; {
		tag, value, _, rest, err := field(b)
		if err != nil {
			return err
		}
		if b = rest; tag == entriesField {
			if err := w.protoEntry(value, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// protoEntry calls the function visit for an EntryAdapter.
func (w *walker) protoEntry(b []byte, visit visitor) error {
	w.metadata = w.metadata[:0]
	var line []byte
	var sec, nsec uint64
	for len(b) > 0 {
		tag, value, _, rest, err := field(b)
		if err != nil {
			return err
		}
		b = rest
		switch tag {
		case timeField:
			for sec, nsec = 0, 0; len(value) > 0; {
				tag, _, num, rest, err := field(value)
				if err != nil {
					return err
				}
				switch value = rest; tag {
				case secondsField:
					sec = num
				case nanosField:
					nsec = num
				}
			}
		case lineField:
			line = value
		case metadataField:
			if len(w.metadata) == w.maxLabels {
				return tooMany("a record", "metadata", w.maxLabels)
			}
			var l listen.Label
			for len(value) > 0 {
				tag, text, _, rest, err := field(value)
				if err != nil {
					return err
				}
				switch value = rest; tag {
				case nameField:
					l.Name = string(text)
				case valueField:
					l.Value = string(text)
				}
			}
			w.metadata = append(w.metadata, l)
		}
	}
	at, err := timeOf(int64(sec), int64(nsec))
	if err != nil {
		return err
	}
	return visit(w.labels, at, line, w.metadata)
}

// timeOf returns the time at sec seconds and nsec nanoseconds after 1970. Like Loki, it rejects
// times outside the range of 64-bit nanoseconds.
func timeOf(sec, nsec int64) (time.Time, error) {
	const most = 1<<63/1_000_000_000 - 1
	if nsec < 0 || nsec >= 1e9 || sec < -most || sec > most {
		return time.Time{}, fmt.Errorf("the time of a record is out of range: %d seconds and %d nanoseconds", sec, nsec)
	}
	return time.Unix(sec, nsec), nil
}

// tooMany returns the error for a stream or record that has too many labels or metadata. owner
// names the stream or record, and kind is "labels" or "metadata".
func tooMany(owner, kind string, limit int) error {
	return fmt.Errorf("%s has more than %d %s", owner, limit, kind)
}
