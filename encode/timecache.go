package encode

import (
	"encoding/binary"
	"math"
	"time"
)

// timeCache remembers the last second formatted as RFC 3339, so that times
// within one second cost a copy and the digits of the fraction. Owned by a
// Record.
//
// What is kept does not depend on the encoder, only on the second and the
// location, so encoders with different formats can share one Record. There is
// one entry for the record's own time and one for attributes, or a record with
// a time among its attributes would never find its own second again.
type timeCache struct {
	entries [2]timeEntry
}

const (
	ownTime = iota
	attrTime
)

type timeEntry struct {
	sec  int64
	loc  *time.Location // nil: the entry is empty
	text [20]byte       // 2006-01-02T15:04:05.
	zone [6]byte        // Z or ±hh:mm
	zlen uint8
}

// A timeSpec is a [TimeFormat] with the location to use.
type timeSpec struct {
	TimeFormat
	loc *time.Location // nil: that of each time
}

// numeric reports whether times are written as integers.
func (s *timeSpec) numeric() bool { return s.kind >= timeUnix && s.kind <= timeUnixNano }

// append appends t, unquoted. slot says which entry of c to use.
func (s *timeSpec) append(dst []byte, t time.Time, c *timeCache, slot int) []byte {
	switch s.kind {
	case timeNano, timeMicro, timeMilli, timeSecond:
		return s.appendRFC3339(dst, t, c, slot)
	case timeUnix:
		return appendInt(dst, t.Unix())
	case timeUnixMilli:
		return appendUnix(dst, t, 1e3)
	case timeUnixMicro:
		return appendUnix(dst, t, 1e6)
	case timeUnixNano:
		return appendUnix(dst, t, 1e9)
	}
	if s.loc != nil {
		t = t.In(s.loc)
	}
	if s.kind == timeClock {
		return t.AppendFormat(dst, "15:04:05.000")
	}
	return t.AppendFormat(dst, s.layout)
}

func (s *timeSpec) appendRFC3339(dst []byte, t time.Time, c *timeCache, slot int) []byte {
	loc := s.loc
	if loc == nil {
		loc = t.Location()
	}
	sec := t.Unix()
	e := &c.entries[slot]
	if e.sec != sec || e.loc != loc {
		if !e.fill(t, sec, loc) {
			return t.In(loc).AppendFormat(dst, time.RFC3339Nano) // the year has not four digits
		}
	}
	n := len(dst)
	dst = spare(dst, 40)
	b := dst[n : n+40]
	*(*[20]byte)(b) = e.text
	ns := uint32(t.Nanosecond())
	q := ns / 10
	d := digits8(q)
	switch s.kind {
	case timeNano:
		binary.LittleEndian.PutUint64(b[20:], d)
		b[28] = byte('0' + ns - q*10)
		n += 29
	case timeMicro:
		binary.LittleEndian.PutUint64(b[20:], d)
		n += 26
	case timeMilli:
		binary.LittleEndian.PutUint64(b[20:], d)
		n += 23
	default:
		n += 19
	}
	if e.zlen == 1 {
		dst = dst[:n+1]
		dst[n] = 'Z'
		return dst
	}
	return append(dst[:n], e.zone[:e.zlen]...)
}

// fill formats the second and reports whether it could.
func (e *timeEntry) fill(t time.Time, sec int64, loc *time.Location) bool {
	t = t.In(loc)
	if y := t.Year(); y < 0 || y > 9999 {
		return false
	}
	var buf [len(time.RFC3339Nano)]byte
	b := t.AppendFormat(buf[:0], time.RFC3339)
	const second = len("2006-01-02T15:04:05")
	if len(b) > second+len(e.zone) {
		return false // a zone with an odd offset
	}
	copy(e.text[:], b[:second])
	e.text[second] = '.'
	e.zlen = uint8(copy(e.zone[:], b[second:]))
	e.sec, e.loc = sec, loc
	return true
}

// appendUnix appends t as an integer of 1/unit seconds since 1970. It is exact
// beyond the range of int64 as well.
func appendUnix(dst []byte, t time.Time, unit int64) []byte {
	sec, frac := t.Unix(), int64(t.Nanosecond())/(1e9/unit)
	if limit := math.MaxInt64/unit - 1; sec < limit && sec > -limit {
		return appendInt(dst, sec*unit+frac)
	}
	if sec < 0 && frac > 0 { // -1s + 0.9s = -0.1s
		sec, frac = sec+1, unit-frac
	}
	dst = appendInt(dst, sec)
	var digits [9]byte
	n := 0
	for u := unit; u > 1; u /= 10 {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		digits[i] = byte('0' + frac%10)
		frac /= 10
	}
	return append(dst, digits[:n]...)
}

// unixNano returns t in Unix nanoseconds, and 0, unknown, if that does not fit.
func unixNano(t time.Time) int64 {
	const limit = math.MaxInt64/int64(1e9) - 1
	if sec := t.Unix(); sec < limit && sec > -limit {
		return sec*1e9 + int64(t.Nanosecond())
	}
	return 0
}
