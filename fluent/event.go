package fluent

import (
	"fmt"
	"math"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// entryType is the content type of Forward entries. Each record is one array [time, map] in
// MessagePack; see section "Entry" of the specification. Spools and crash-safe files store the
// content type with the records.
const entryType = "application/x-fluent-entry"

// checkTime returns an error that wraps ErrValue if the protocol cannot represent t.
func checkTime(t time.Time) error {
	if holdsTime(t) {
		return nil
	}
	return fmt.Errorf("%w: the time %s: the protocol represents times from 1970-01-01 to %s", ErrValue, t.UTC().Format(time.RFC3339), lastTime)
}

// lastTime is the time maxSeconds in RFC 3339, for error messages.
var lastTime = time.Unix(maxSeconds, 0).UTC().Format(time.RFC3339)

// AppendEvent appends an event to dst in the form of the Forward protocol, the entry [time, map].
// If v is neither a map nor a struct, it becomes the field "msg"; nil becomes an empty map. See
// [Logger.Post] for the encoding of values. The error wraps [ErrTooLarge] or [ErrValue]. It is
// ErrValue if the protocol cannot represent t. After an error, the content of dst beyond its
// original length is undefined.
func AppendEvent(dst []byte, t time.Time, v any) ([]byte, error) {
	if err := checkTime(t); err != nil {
		return dst, fmt.Errorf("fluent: cannot encode event: %w", err)
	}
	s := borrow(math.MaxInt32, timeText)
	dst, err := s.event(appendEntryTime(dst, t, false), v, defaultMessageKey)
	s.free()
	if err != nil {
		return dst, fmt.Errorf("fluent: cannot encode event: %w", err)
	}
	return dst, nil
}

// Codec returns the codec of Forward entries (application/x-fluent-entry). It converts entries to
// JSON and needs no Driver. To read entries that another process has stored, use it with the
// Dictionary of [Driver.Traits], which maps streams to tags.
func Codec() batch.Codec { return entryCodec{} }

// entryCodec implements [batch.Codec]. It has no state.
type entryCodec struct{}

// ContentType returns entryType.
func (entryCodec) ContentType() string { return entryType }

// AppendJSON appends an entry as {"tag":"…","time":"…","record":{…}}. The time is in RFC 3339 and
// UTC. An unknown tag is omitted. If rec is not an entry, for example because it is damaged,
// {"raw":"…","encoding":"base64"} is appended. AppendJSON implements [batch.Codec].
func (entryCodec) AppendJSON(dst, rec []byte, m batch.Meta) []byte {
	at := len(dst)
	dst = append(dst, '{')
	tag, rec, ok := splitTag(rec)
	if !ok {
		tag, ok = tagOf(m.Stream)
	}
	if ok {
		dst = append(dst, `"tag":`...)
		dst, _, _ = msgpack.AppendJSON(dst, msgpack.AppendStr(nil, tag))
		dst = append(dst, ',')
	}
	if out, ok := appendEntryJSON(dst, rec); ok {
		return append(out, '}')
	}
	dst = append(dst[:at], `{"raw":`...)
	dst, _, _ = msgpack.AppendJSON(dst, msgpack.AppendBin(nil, rec))
	return append(dst, `,"encoding":"base64"}`...)
}

// appendEntryJSON appends the members "time" and "record" for the entry rec. It returns false if
// rec is not exactly one entry; the content of dst beyond its original length is then undefined.
func appendEntryJSON(dst, rec []byte) ([]byte, bool) {
	head, rest, err := msgpack.Next(rec)
	if err != nil || head.Kind != msgpack.Array || head.Len != 2 {
		return dst, false
	}
	t, rest, err := msgpack.Next(rest)
	if err != nil {
		return dst, false
	}
	at, ok := msgpack.EventTime(&t)
	if !ok && t.Kind == msgpack.Uint && t.Num <= math.MaxUint32 {
		at, ok = time.Unix(int64(t.Num), 0), true
	}
	body, _, err := msgpack.Next(rest)
	if !ok || err != nil || body.Kind != msgpack.Map {
		return dst, false
	}
	dst = append(dst, `"time":"`...)
	dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","record":`...)
	dst, rest, err = msgpack.AppendJSON(dst, rest)
	return dst, err == nil && len(rest) == 0
}

// AppendMarker appends an entry of level WARN that reports the number of dropped records by reason.
// It implements [batch.Codec].
func (entryCodec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	reasons := 0
	for _, n := range d {
		if n != 0 {
			reasons++
		}
	}
	if !holdsTime(now) { // a marker with a wrong time is better than no marker
		now = time.Unix(0, 0)
	}
	dst = appendEntryTime(dst, now, false)
	dst = msgpack.AppendMapHeader(dst, 4)
	dst = msgpack.AppendStr(msgpack.AppendStr(dst, "level"), "WARN")
	dst = msgpack.AppendStr(msgpack.AppendStr(dst, defaultMessageKey), "records dropped")
	dst = msgpack.AppendUint(msgpack.AppendStr(dst, "dropped"), d.Total())
	dst = msgpack.AppendMapHeader(msgpack.AppendStr(dst, "reasons"), reasons)
	for i, n := range d {
		if n != 0 {
			dst = msgpack.AppendUint(msgpack.AppendStr(dst, batch.Reason(i).String()), n)
		}
	}
	return dst
}
