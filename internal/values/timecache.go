package values

import (
	"encoding/binary"
	"math"
	"math/big"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// Cache is the state that an encode.Record keeps for its next use.
type Cache struct {
	Times   Times
	Scratch AttrScratch
	taken   []uint64   // see Walker.Taken
	walk    Walk       // walks composite values
	walkOf  *Cache     // the Cache whose fields walk uses; differs from this Cache if this Cache was copied
	json    jsonWriter // the Emitter of walk
}

// Times holds the text of the last second in RFC 3339. For another time in the same second, only
// the text is copied and the digits of the fraction are added.
//
// An entry depends only on the second and the location, so encoders with different formats can
// share it. The time of a record and its time attributes use separate entries, so that they do not
// replace each other's entry. The zero value is empty.
type Times struct {
	entries [2]timeEntry
}

const (
	OwnTime = iota
	attrTime
)

type timeEntry struct {
	sec  int64
	loc  *time.Location // nil if the entry is empty
	text [20]byte       // 2006-01-02T15:04:05.
	zone [6]byte        // Z or ±hh:mm
	zlen uint8
}

// A TimeKind is the format of a time.
type TimeKind uint8

const (
	TimeNano TimeKind = iota
	TimeMicro
	TimeMilli
	TimeSecond
	TimeClock
	TimeUnix
	TimeUnixMilli
	TimeUnixMicro
	TimeUnixNano
	TimeLayout
)

// A TimeSpec specifies the format and the location of times.
type TimeSpec struct {
	Kind   TimeKind
	Layout string         // for TimeLayout
	Loc    *time.Location // nil: the location of each time
}

// Numeric reports whether times are written as integers.
func (s *TimeSpec) Numeric() bool { return s.Kind >= TimeUnix && s.Kind <= TimeUnixNano }

// Append appends t without quotes. slot is the entry of c to use; c may be nil.
func (s *TimeSpec) Append(dst []byte, t time.Time, c *Times, slot int) []byte {
	switch s.Kind {
	case TimeNano, TimeMicro, TimeMilli, TimeSecond:
		return s.AppendRFC3339(dst, t, c, slot)
	case TimeUnix:
		return jsontext.AppendInt(dst, t.Unix())
	case TimeUnixMilli:
		return appendUnix(dst, t, 1e3)
	case TimeUnixMicro:
		return appendUnix(dst, t, 1e6)
	case TimeUnixNano:
		return appendUnix(dst, t, 1e9)
	}
	if s.Loc != nil {
		t = t.In(s.Loc)
	}
	if s.Kind == TimeClock {
		return t.AppendFormat(dst, "15:04:05.000")
	}
	return t.AppendFormat(dst, s.Layout)
}

func (s *TimeSpec) AppendRFC3339(dst []byte, t time.Time, c *Times, slot int) []byte {
	loc := s.Loc
	if loc == nil {
		loc = t.Location()
	}
	sec := t.Unix()
	var fresh timeEntry
	e := &fresh
	if c != nil {
		e = &c.entries[slot]
	}
	if e.sec != sec || e.loc != loc {
		if !e.fill(t, sec, loc) {
			return t.In(loc).AppendFormat(dst, time.RFC3339Nano) // the year does not have four digits
		}
	}
	n := len(dst)
	dst = jsontext.Spare(dst, 40)
	b := dst[n : n+40]
	*(*[20]byte)(b) = e.text
	ns := uint32(t.Nanosecond())
	q := ns / 10
	d := jsontext.Digits8(q)
	switch s.Kind {
	case TimeNano:
		binary.LittleEndian.PutUint64(b[20:], d)
		b[28] = byte('0' + ns - q*10)
		n += 29
	case TimeMicro:
		binary.LittleEndian.PutUint64(b[20:], d)
		n += 26
	case TimeMilli:
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

// fill stores the text of t in the zone loc, without the fraction. sec is t in seconds since 1970.
// fill returns false if the year does not have four digits, or the zone offset is not in whole
// minutes.
func (e *timeEntry) fill(t time.Time, sec int64, loc *time.Location) bool {
	offset := 0
	if loc != time.UTC {
		_, offset = t.In(loc).Zone()
	}
	const minSec, maxSec = -62167219200, 253402300799 // years 0 to 9999
	local := sec + int64(offset)
	if local < minSec || local > maxSec || offset%60 != 0 || offset <= -100*3600 || offset >= 100*3600 {
		return false
	}
	since := uint64(local - minSec)
	days := since / 86400
	clock := uint32(since - days*86400)
	y, m, d := civil(uint32(days))
	copy2 := func(at int, v uint32) { e.text[at], e.text[at+1] = jsontext.Pairs[2*v], jsontext.Pairs[2*v+1] }
	copy2(0, y/100)
	copy2(2, y%100)
	e.text[4] = '-'
	copy2(5, m)
	e.text[7] = '-'
	copy2(8, d)
	e.text[10] = 'T'
	copy2(11, clock/3600)
	e.text[13] = ':'
	copy2(14, clock/60%60)
	e.text[16] = ':'
	copy2(17, clock%60)
	e.text[19] = '.'

	e.zone[0], e.zlen = 'Z', 1
	if offset != 0 {
		e.zone[0], e.zlen = '+', 6
		if offset < 0 {
			e.zone[0], offset = '-', -offset
		}
		h, m := offset/3600, offset/60%60
		e.zone[1], e.zone[2], e.zone[3] = jsontext.Pairs[2*h], jsontext.Pairs[2*h+1], ':'
		e.zone[4], e.zone[5] = jsontext.Pairs[2*m], jsontext.Pairs[2*m+1]
	}
	e.sec, e.loc = sec, loc
	return true
}

// civil returns the date of a day counted from 0000-01-01 in the Gregorian calendar. It counts
// years from March, so the leap day is the last day of a year and of the 400-year cycle.
func civil(day uint32) (y, m, d uint32) {
	day += 146097 - 60 // count from 1 March, 400 years earlier
	era := day / 146097
	doe := day - era*146097                                // day of the era
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365 // year of the era
	doy := doe - (365*yoe + yoe/4 - yoe/100)               // day of the year, from 1 March
	mp := (5*doy + 2) / 153                                // month, from March
	d = doy - (153*mp+2)/5 + 1
	m = mp + 3
	if m > 12 {
		m -= 12
	}
	y = era*400 + yoe - 400
	if mp >= 10 {
		y++
	}
	return y, m, d
}

// appendUnix appends t as an integer, the number of time units since 1970. unit is the number of
// units in a second, such as 1000 for milliseconds. The result is exact even beyond the range of
// int64.
func appendUnix(dst []byte, t time.Time, unit int64) []byte {
	sec, frac := t.Unix(), int64(t.Nanosecond())/(1e9/unit)
	if limit := math.MaxInt64/unit - 1; sec < limit && sec > -limit {
		return jsontext.AppendInt(dst, sec*unit+frac)
	}
	n := new(big.Int).Mul(big.NewInt(sec), big.NewInt(unit))
	return n.Add(n, big.NewInt(frac)).Append(dst, 10)
}

// UnixNano returns t in Unix nanoseconds. If that overflows, it returns 0, which means unknown.
func UnixNano(t time.Time) int64 {
	const limit = math.MaxInt64/int64(1e9) - 1
	if sec := t.Unix(); sec < limit && sec > -limit {
		return sec*1e9 + int64(t.Nanosecond())
	}
	return 0
}
