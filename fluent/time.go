package fluent

import (
	"math"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
)

// The values of Config.TimeFields. "" means timeText.
const (
	timeText  = "rfc3339"
	timeEvent = "event-time"
)

// maxSeconds is the latest time that is written, in Unix seconds. EventTime and integer times have
// 32 bits. Fluent Bit uses the two largest values to mark groups.
const maxSeconds = math.MaxUint32 - 2

// holdsTime reports whether t can be sent in a form that all receivers accept.
func holdsTime(t time.Time) bool {
	sec := t.Unix()
	return sec >= 0 && sec <= maxSeconds
}

// appendEventTime appends t as EventTime, which has 32 bits for the seconds and 32 bits for the
// nanoseconds; see section "EventTime Ext Format" of the specification. The caller must have
// checked holdsTime(t).
func appendEventTime(dst []byte, t time.Time) []byte {
	return msgpack.AppendEventTime(dst, uint32(t.Unix()), uint32(t.Nanosecond()))
}

// appendEntryTime appends the beginning of an entry: the array header and the time t. If integer is
// true, the time is in whole seconds. The caller must have checked holdsTime(t), and appends the
// map.
func appendEntryTime(dst []byte, t time.Time, integer bool) []byte {
	dst = msgpack.AppendArrayHeader(dst, 2)
	if integer {
		return msgpack.AppendUint(dst, uint64(t.Unix()))
	}
	return appendEventTime(dst, t)
}
