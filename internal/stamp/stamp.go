// Package stamp finds the time in a log line.
package stamp

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// maxStart is the number of bytes at the start of a line in which a time may begin. The name of a
// host, a process or a file may precede the time. A later time probably belongs to the message.
const maxStart = 96

// A Match is a time in a line.
type Match struct {
	Form     *Form
	From, To int // the time is line[From:To]
	// Time is in the zone given in the line or, if there is none, in the zone of the caller. If
	// Yearless is set, Time is in UTC and in the year 2000, which is a leap year; the method In
	// adds the year.
	Time     time.Time
	Yearless bool
	zone     *time.Location // zone of a time without a year
}

// In returns the time of m, which has no year, in the latest year in which it is not after limit.
// Eight years are tried, because 29 February may be that long ago.
func (m *Match) In(limit time.Time) time.Time {
	t := m.Time
	limit = limit.In(m.zone)
	for year, oldest := limit.Year(), limit.Year()-8; year >= oldest; year-- {
		at := time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), m.zone)
		if !at.After(limit) && at.Month() == t.Month() {
			return at
		}
	}
	return time.Time{}
}

// Find returns the first date with a time near the start of line, in one of the forms. A time
// without a year is used only if no full date follows. A time without a zone is in loc. Recognized
// zones are UTC, UT, GMT, Z and names of the zone database, such as Europe/Berlin. A time with any
// other zone is also in loc.
func Find(line []byte, loc *time.Location) (m Match, ok bool) { return find(line, maxStart, loc, nil) }

// FindText is like Find, but treats a number at the start of the line as a time only if it is at
// most ten years before and one day after the current time. now returns the current time; nil means
// time.Now.
func FindText(line []byte, loc *time.Location, now func() time.Time) (m Match, ok bool) {
	if now == nil {
		now = time.Now
	}
	return find(line, maxStart, loc, now)
}

// At is like Find, but the time must be at the start of line.
func At(line []byte, loc *time.Location) (m Match, ok bool) { return find(line, 1, loc, nil) }

// find returns the first time that begins in line[:limit].
func find(line []byte, limit int, loc *time.Location, now func() time.Time) (best Match, ok bool) {
	if t, ok := rfc3339(line); ok {
		return Match{Form: forms[0], To: len(line), Time: t}, true
	}
	limit = min(len(line), limit)
	p := parser{b: line}
	for i := 0; i < limit; {
		c := line[i]
		if !isWord[c] {
			i++
			continue
		}
		from := i
		for i < len(line) && isDigit(line[i]) {
			i++
		}
		digits := i - from
		for i < len(line) && isWord[line[i]] {
			i++
		}
		var may []*Form
		sep := byte(0) // the first character after the digits or the name
		switch {
		case digits > 0:
			may = byDigits[min(digits, len(byDigits)-1)]
			if n := from + digits; n < len(line) {
				sep = line[n]
			}
		case c >= 'a' || i == len(line):
		case i-from == 3:
			may, sep = byName, line[i]
		case (i-from == 5 || i-from == 9) && isDigit(line[from+1]):
			may = byLetter
		}
		if digits == 4 && sep == '-' {
			if f := p.iso(from, loc); f != nil {
				return Match{Form: f, From: from, To: p.i, Time: p.t}, true
			}
		}
		for _, f := range may {
			if f.sep != 0 && f.sep != sep || !f.mayBegin(line, from) {
				continue
			}
			p.i, p.loc, p.fields = from, loc, fields{}
			if !p.read(f.layout) || !p.finish(f) || f.layout == "U" && f.place == first && !p.isFirstWord(from, now) {
				continue
			}
			if !f.yearless {
				return Match{Form: f, From: from, To: p.i, Time: p.t}, true
			}
			if !ok {
				best, ok = Match{Form: f, From: from, To: p.i, Time: p.t, Yearless: true, zone: p.loc}, true
			}
			if i = max(i, p.i); !mayHaveClock(line[i:min(len(line), max(i, limit))]) {
				return best, ok
			}
			break
		}
	}
	return best, ok
}

// mayHaveClock reports whether b may contain a time of day: a colon between digits, or a colon at
// the end of b. If it returns false, the search for a full date ends, which saves time on most
// syslog lines.
func mayHaveClock(b []byte) bool {
	for from := 0; ; from++ {
		i := bytes.IndexByte(b[from:], ':')
		if from += i; i < 0 || from+1 == len(b) {
			return i >= 0
		}
		if from > 0 && isDigit(b[from-1]) && isDigit(b[from+1]) {
			return true
		}
	}
}

// iso reads a time in one of the two most common forms at b[i:]. It is faster than the method read,
// which interprets a layout. It returns nil if there is no such time.
func (p *parser) iso(i int, loc *time.Location) *Form {
	b := p.b[i:]
	if len(b) < 19 || b[7] != '-' || b[10] != ' ' && b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return nil
	}
	p.i, p.loc, p.fields = i+19, loc, fields{
		year: 100*twoDigits(b, 0) + twoDigits(b, 2), month: twoDigits(b, 5), day: twoDigits(b, 8), hour: twoDigits(b, 11), min: twoDigits(b, 14), sec: twoDigits(b, 17),
	}
	if p.year|p.month|p.day|p.hour|p.min|p.sec < 0 {
		return nil
	}
	f := forms[0]
	if b[10] == ' ' {
		f = forms[1]
	}
	p.fraction()
	p.zone()
	if !p.finish(f) {
		return nil
	}
	return f
}

var audit = []byte("audit(")

// mayBegin reports whether the form may begin at line[i:].
func (f *Form) mayBegin(line []byte, i int) bool {
	switch f.place {
	case first:
		return i == 0 || i == 1 && line[0] == '['
	case audited:
		return bytes.HasSuffix(line[:i], audit)
	}
	return true
}

// rfc3339 returns the time if the whole slice b has the form 2006-01-02T15:04:05.999999999Z, which
// most loggers write. It is a fast path: iso has the same result.
func rfc3339(b []byte) (t time.Time, ok bool) {
	n := len(b) - 1
	if n < 19 || n > 29 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[n] != 'Z' {
		return t, false
	}
	year, month, day := 100*twoDigits(b, 0)+twoDigits(b, 2), twoDigits(b, 5), twoDigits(b, 8)
	hour, minute, sec := twoDigits(b, 11), twoDigits(b, 14), twoDigits(b, 17)
	if year|month|day|hour|minute|sec < 0 || !isDay(year, month, day) || hour > 23 || minute > 59 || sec > 59 {
		return t, false
	}
	nsec := 0
	if n > 19 {
		if b[19] != '.' || n == 20 {
			return t, false
		}
		for _, c := range b[20:n] {
			if !isDigit(c) {
				return t, false
			}
			nsec = 10*nsec + int(c-'0')
		}
		for range 29 - n { // digits that are missing from nine
			nsec *= 10
		}
	}
	t = utc(year, month, day, hour, minute, sec, nsec)
	return t, !t.IsZero()
}

// isDay reports whether the date exists.
func isDay(year, month, day int) bool {
	if month < 1 || month > 12 || day < 1 {
		return false
	}
	leap := year%4 == 0 && (year%100 != 0 || year%400 == 0)
	return day <= 28 || day <= int("\x1f\x1c\x1f\x1e\x1f\x1e\x1f\x1f\x1e\x1f\x1e\x1f"[month-1]) || day == 29 && leap
}

// utc is like time.Date for time.UTC, but faster. The date must exist, and the other parameters must
// be in their usual ranges.
func utc(year, month, day, hour, minute, sec, nsec int) time.Time {
	if month < 3 { // count from March, so that a leap day is the last day of a year
		year, month = year-1, month+12
	}
	days := 365*year + year>>2 - year/100 + year/400 + (153*month-457)/5 + day - 1 - 719468
	return time.Unix(int64(days)*86400+int64(hour*3600+minute*60+sec), int64(nsec)).UTC()
}

// twoDigits returns the number in the two digits at b[i:], or a number below -1000 if they are not
// digits.
func twoDigits(b []byte, i int) int {
	hi, lo := b[i]-'0', b[i+1]-'0'
	if hi > 9 || lo > 9 {
		return -1 << 20
	}
	return int(hi)*10 + int(lo)
}

// FromNumber returns the time for s, a decimal number of seconds, milliseconds, microseconds or
// nanoseconds since 1970. The unit is chosen so that the year is from 1973 to 5138.
func FromNumber(s string) (time.Time, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	if len(whole) < 9 || len(whole) > 19 {
		return time.Time{}, false
	}
	var n int64
	for _, c := range []byte(whole) {
		if !isDigit(c) || n > (1<<63-1-9)/10 {
			return time.Time{}, false
		}
		n = n*10 + int64(c-'0')
	}
	unit := int64(time.Second)
	for limit := int64(1e11); n >= limit && unit > 1; limit *= 1000 {
		unit /= 1000
	}
	per := int64(time.Second) / unit
	sec, nsec := n/per, n%per*unit
	for _, c := range []byte(frac) {
		if !isDigit(c) {
			return time.Time{}, false
		}
		unit /= 10
		nsec += int64(c-'0') * unit
	}
	return time.Unix(sec, nsec).UTC(), true
}

// A parser reads one time at b[i:]. Its methods return false at the first mismatch.
type parser struct {
	b   []byte
	i   int
	loc *time.Location
	fields
}

type fields struct {
	year, month, day, hour, min, sec, nsec int
	weekday                                time.Weekday
	fractional                             bool      // the time has a fraction of a second
	t                                      time.Time // time given by a number, and later the result
}

// read reads a time with the given layout, see forms.
func (p *parser) read(layout string) bool {
	for k := range len(layout) {
		ok := true
		switch c := layout[k]; c {
		case 'Y':
			ok = p.num(4, &p.year)
		case 'y':
			ok = p.twoDigits(&p.year)
			p.year += 2000
		case 'm':
			ok = p.twoDigits(&p.month)
		case 'd':
			ok = p.twoDigits(&p.day)
		case 'e':
			ok = p.oneOrTwo(&p.day)
		case 'a':
			n := p.name("SunMonTueWedThuFriSat")
			ok, p.weekday = n >= 0, time.Weekday(n)
		case 'b':
			p.month = p.name("JanFebMarAprMayJunJulAugSepOctNovDec") + 1
			ok = p.month > 0
		case 'c':
			ok = p.clock(':')
		case 'C':
			ok = p.clock(':') && p.fractional
		case 'k':
			ok = p.twoDigits(&p.hour) && p.twoDigits(&p.min) && p.twoDigits(&p.sec)
			p.fraction()
		case 'K':
			ok = p.clock('.')
		case 'p':
			half, present := p.amPM()
			ok = half && present
		case 'z':
			p.zone()
		case 'X':
			ok = p.zonedYear()
		case 'U':
			ok = p.epoch()
		case 'L':
			ok = strings.IndexByte("IWEFD", p.b[p.i]) >= 0
			p.i++
		case 'w':
			for p.i < len(p.b) && p.b[p.i] > ' ' {
				p.i++
			}
		case 'o':
			p.lit(',')
		case 'T':
			ok = p.lit('T') || p.lit('t')
		case ' ':
			ok = p.lit(' ') || p.word("\u202f") // newer versions of Java write this space
			p.lit(' ')
		default:
			ok = p.lit(c)
		}
		if !ok {
			return false
		}
	}
	return true
}

// finish checks the fields and computes the time. It returns false if a digit or letter follows the
// time.
func (p *parser) finish(f *Form) bool {
	if p.i < len(p.b) && isDigit(p.b[p.i]) {
		return false
	}
	if !p.t.IsZero() && p.month == 0 {
		return true
	}
	if f.yearless {
		p.year = 2000
	}
	if !isDay(p.year, p.month, p.day) || p.hour > 23 || p.min > 59 || p.sec > 60 {
		return false
	}
	loc := p.loc
	if f.yearless {
		loc = time.UTC
	}
	t := utc(p.year, p.month, p.day, p.hour, p.min, min(p.sec, 59), p.nsec)
	if loc != time.UTC {
		t = time.Date(p.year, time.Month(p.month), p.day, p.hour, p.min, min(p.sec, 59), p.nsec, loc)
	}
	// The clock of the zone may have skipped the time. The zero Time would mean that the line has no
	// time.
	if loc != time.UTC && t.Day() != p.day || t.IsZero() {
		return false
	}
	if p.t.IsZero() {
		p.t = t
		return true
	}
	p.t = p.t.Add(time.Duration(p.nsec))
	return t.Sub(p.t).Abs() < 48*time.Hour // the number and the date must be the same time
}

// epoch reads a number of at least ten digits. Numbers of nine digits, which would mean 1973 to
// 2001, are usually no times.
func (p *parser) epoch() (ok bool) {
	start := p.i
	for p.i < len(p.b) && p.i-start < 30 && (isDigit(p.b[p.i]) || p.b[p.i] == '.') {
		p.i++
	}
	if p.i-start < 10 || p.b[start+9] == '.' {
		return false
	}
	p.t, ok = FromNumber(string(p.b[start:p.i]))
	return ok
}

// isFirstWord reports whether the number that begins at b[from:] is a whole word. If now is not
// nil, the number must also be a time near the current one.
func (p *parser) isFirstWord(from int, now func() time.Time) bool {
	end := byte(' ')
	if p.i < len(p.b) {
		end = p.b[p.i]
	}
	if from == 0 && end != ' ' && end != '\t' || from > 0 && end != ']' {
		return false
	}
	return now == nil || near(p.t, now())
}

// near reports whether t is plausible for a line that is read at the time now.
func near(t, now time.Time) bool {
	return !t.Before(now.AddDate(-10, 0, 0)) && !t.After(now.Add(24*time.Hour))
}

// zonedYear reads an optional AM or PM, an optional zone, and a year. An unknown word counts as a
// zone if the date has the given weekday in that year.
func (p *parser) zonedYear() bool {
	if p.i+2 < len(p.b) && p.b[p.i+2] == ' ' { // not for AMT, which is a zone
		if ok, present := p.amPM(); !ok || present && !p.lit(' ') {
			return false
		}
	}
	if p.num(4, &p.year) {
		return true
	}
	start := p.i
	p.zone()
	known := p.i > start
	for !known && p.i < len(p.b) && p.i-start < 5 && p.b[p.i]-'A' < 26 {
		p.i++
	}
	return p.lit(' ') && p.num(4, &p.year) &&
		(known || time.Date(p.year, time.Month(p.month), p.day, 0, 0, 0, 0, time.UTC).Weekday() == p.weekday)
}

// amPM reads an optional AM or PM. present reports whether there is one. ok is false if there is
// one and the hour is not from 1 to 12.
func (p *parser) amPM() (ok, present bool) {
	pm := p.word("PM")
	if !pm && !p.word("AM") {
		return true, false
	}
	if p.hour < 1 || p.hour > 12 {
		return false, true
	}
	p.hour %= 12
	if pm {
		p.hour += 12
	}
	return true, true
}

// clock reads hours, minutes and seconds separated by sep, and an optional fraction.
func (p *parser) clock(sep byte) bool {
	if !(p.oneOrTwo(&p.hour) && p.lit(sep) && p.twoDigits(&p.min) && p.lit(sep) && p.twoDigits(&p.sec)) {
		return false
	}
	p.fraction()
	return true
}

// fraction reads an optional fraction: .123456 or ,123456, or :123 for milliseconds.
func (p *parser) fraction() {
	if p.i+1 >= len(p.b) || strings.IndexByte(".,:", p.b[p.i]) < 0 || !isDigit(p.b[p.i+1]) {
		return
	}
	start := p.i
	n, digits := 0, 0
	for p.i++; p.i < len(p.b) && isDigit(p.b[p.i]); p.i++ {
		if digits++; digits <= 9 {
			n = 10*n + int(p.b[p.i]-'0')
		}
	}
	p.fractional = true
	if p.b[start] == ':' {
		if digits > len("123") {
			p.i, p.nsec, p.fractional = start, 0, false
			return
		}
		p.nsec = n * int(time.Millisecond)
		return
	}
	for range 9 - digits {
		n *= 10
	}
	p.nsec = n
}

// zone reads an optional zone, with or without a space in front.
func (p *parser) zone() {
	start := p.i
	spaced := p.lit(' ')
	if !spaced && (p.lit('Z') || p.lit('z')) || p.word("UTC") || p.word("GMT") || p.word("UT") {
		p.loc = time.UTC
		p.offset(false) // JavaScript writes GMT+0100, and Java GMT+01:00
	} else if !p.offset(spaced) && !p.area() {
		p.i = start
	}
}

// offset reads an offset from UTC: +01, +0100 or +01:00. If spaced is set, there is a space in front
// of it, and no letter or fraction may follow.
func (p *parser) offset(spaced bool) bool {
	start, sign := p.i, 1
	switch {
	case p.lit('+'):
	case p.lit('-'):
		sign = -1
	default:
		return false
	}
	var h, m int
	if p.twoDigits(&h) && h < 24 {
		i := p.i
		p.lit(':')
		if !p.twoDigits(&m) {
			p.i = i
		}
		if end := p.i == len(p.b); m < 60 && (end || !isDigit(p.b[p.i]) && (!spaced || !isLetter(p.b[p.i]) && p.b[p.i] != '.')) {
			p.loc = time.FixedZone("", sign*(h*3600+m*60))
			return true
		}
	}
	p.i = start
	return false
}

// areas are the areas of the zone database. The database is searched only for words that begin with
// an area.
const areas = " Africa America Antarctica Arctic Asia Atlantic Australia Europe Indian Pacific Etc "

// zones caches the zones found in lines, by name; an unknown name has the value nil. The database
// has fewer than 600 zones. The size is limited because lines may contain invented names.
var zones struct {
	sync.Mutex
	known map[string]*time.Location
}

// area reads the name of a zone such as Europe/Berlin.
func (p *parser) area() bool {
	end := p.i
	for end < len(p.b) && (isLetter(p.b[end]) || strings.IndexByte("/_-+", p.b[end]) >= 0 || isDigit(p.b[end])) {
		end++
	}
	area, _, ok := bytes.Cut(p.b[p.i:end], []byte{'/'})
	if !ok || len(area) < len("Etc") || !strings.Contains(areas, " "+string(area)+" ") {
		return false
	}
	zones.Lock()
	defer zones.Unlock()
	loc, known := zones.known[string(p.b[p.i:end])]
	if !known && len(zones.known) < 1000 {
		if zones.known == nil {
			zones.known = map[string]*time.Location{}
		}
		name := string(p.b[p.i:end])
		loc, _ = time.LoadLocation(name)
		zones.known[name] = loc
	}
	if loc == nil {
		return false
	}
	p.i, p.loc = end, loc
	return true
}

// oneOrTwo reads a number of one or two digits into *v.
func (p *parser) oneOrTwo(v *int) bool { return p.twoDigits(v) || p.num(1, v) }

// twoDigits reads a number of two digits into *v.
func (p *parser) twoDigits(v *int) bool {
	if p.i+2 > len(p.b) {
		return false
	}
	n := twoDigits(p.b, p.i)
	if n < 0 {
		return false
	}
	*v = n
	p.i += 2
	return true
}

// num reads a number of exactly n digits into *v.
func (p *parser) num(n int, v *int) bool {
	if p.i+n > len(p.b) {
		return false
	}
	x := 0
	for _, c := range p.b[p.i : p.i+n] {
		if !isDigit(c) {
			return false
		}
		x = x*10 + int(c-'0')
	}
	*v = x
	p.i += n
	return true
}

func (p *parser) lit(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) word(s string) bool {
	if p.i+len(s) <= len(p.b) && string(p.b[p.i:p.i+len(s)]) == s {
		p.i += len(s)
		return true
	}
	return false
}

// name reads one of the three-letter names in list, and returns its index or -1.
func (p *parser) name(list string) int {
	if p.i+3 > len(p.b) {
		return -1
	}
	a, b, c := p.b[p.i], p.b[p.i+1], p.b[p.i+2]
	for k := 0; k < len(list); k += 3 {
		if list[k+1] == b && list[k] == a && list[k+2] == c {
			p.i += 3
			return k / 3
		}
	}
	return -1
}

func isDigit(c byte) bool  { return c-'0' < 10 }
func isLetter(c byte) bool { return c|0x20-'a' < 26 }

// isWord is true for the bytes of words: letters and digits.
var isWord = func() (is [256]bool) {
	for c := range is {
		is[c] = isDigit(byte(c)) || isLetter(byte(c))
	}
	return is
}()
