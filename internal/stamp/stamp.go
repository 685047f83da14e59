// Package stamp finds the time in a line of a log.
package stamp

import (
	"strings"
	"time"
)

// within is how far into a line a time may begin: behind a host name, a process
// or a file, but not somewhere in the message.
const within = 96

// Find returns the first time in the beginning of line. A time without a zone is
// in loc. A time without a year, as syslog writes it, is in the year 2000, which
// has all days, and hasYear is false.
//
// It knows
//
//	2006-01-02T15:04:05.999999999Z   RFC 3339, with a space or comma too, with +0100 or no zone
//	2006/01/02 15:04:05.999999       Go's log package, nginx
//	06/01/02 15:04:05                Spark
//	060102 150405                    HDFS
//	Sun Jan _2 15:04:05.999 2006     Apache, ctime
//	Sun Jan _2 15:04:05 MST 2006     date, Java's Date; with AM or PM, and with +0100, too
//	Sun, 02 Jan 2006 15:04:05 GMT    HTTP, mail
//	02/Jan/2006:15:04:05 -0700       access logs
//	Jan _2 15:04:05                  syslog, RFC 3164; with a year before the hours, too
//	Jan 2, 2006 3:04:05 PM           java.util.logging
//	02-Jan-2006 15:04:05.999         Tomcat; with spaces, log4j and Redis
//	01-02 15:04:05.999               Android, at the beginning only
//	I0102 15:04:05.999999            glog, klog
//	1136214245.999                   seconds since 1970, as the first word only
//
// Of names of zones it knows UTC, UT, GMT and Z. A time with another one is in loc.
func Find(line []byte, loc *time.Location) (t time.Time, hasYear, ok bool) {
	return find(line, loc, nil)
}

// FindText is Find for a line of text, which may begin with a number that is no time:
// one is a time only if it is at most ten years before now and a day behind it. If now
// is nil, it is time.Now.
func FindText(line []byte, loc *time.Location, now func() time.Time) (t time.Time, hasYear, ok bool) {
	if now == nil {
		now = time.Now
	}
	return find(line, loc, now)
}

func find(line []byte, loc *time.Location, now func() time.Time) (t time.Time, hasYear, ok bool) {
	if t, ok = rfc3339(line); ok {
		return t, true, true
	}
	for i := range min(len(line), within) {
		if i > 0 && (isDigit(line[i-1]) || isLetter(line[i-1])) {
			continue // not the beginning of a word
		}
		p := parser{b: line, i: i, loc: loc, now: now}
		switch c := line[i]; {
		case isDigit(c):
			ok = p.try(isoForm) || p.try(slashesForm) || p.try(accessForm) || p.try(compactForm) || p.try(dayForm) ||
				i == 0 && (p.try(epochForm) || p.try(androidForm))
		case c >= 'A' && c <= 'Z': // as all names and glog's letters do
			ok = p.try(namedForm) || p.try(glogForm)
		}
		if ok {
			return p.t, !p.noYear, true
		}
	}
	return time.Time{}, false, false
}

// rfc3339 reads the form that most loggers write, 2006-01-02T15:04:05.999999999Z, where
// it is all of b: as iso does it, without trying the others.
func rfc3339(b []byte) (t time.Time, ok bool) {
	n := len(b) - 1
	if n < 19 || n > 29 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[n] != 'Z' {
		return t, false
	}
	year, month, day := 100*two(b, 0)+two(b, 2), two(b, 5), two(b, 8)
	hour, minute, sec := two(b, 11), two(b, 14), two(b, 17)
	if year|month|day|hour|minute|sec < 0 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || sec > 59 {
		return t, false
	}
	nsec, unit := 0, int(time.Second)
	if n > 19 {
		if b[19] != '.' || n == 20 {
			return t, false
		}
		for _, c := range b[20:n] {
			if !isDigit(c) {
				return t, false
			}
			unit /= 10
			nsec += int(c-'0') * unit
		}
	}
	t = time.Date(year, time.Month(month), day, hour, minute, sec, nsec, time.UTC)
	return t, (day <= 28 || t.Day() == day) && !t.IsZero() // 30 February is in March
}

// two returns the number of two digits at b[i:], or less than -1000 if they are none.
func two(b []byte, i int) int {
	hi, lo := b[i]-'0', b[i+1]-'0'
	if hi > 9 || lo > 9 {
		return -1 << 20
	}
	return int(hi)*10 + int(lo)
}

// FromNumber returns the time that a decimal number stands for: seconds,
// milliseconds, microseconds or nanoseconds since 1970, whichever lies between
// the years 1973 and 5138.
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

// parser reads one time at b[i:]. Its methods return false as soon as something
// does not fit; try then goes back to where it began.
type parser struct {
	b   []byte
	i   int
	loc *time.Location
	now func() time.Time // what a number has to be near; nil: nothing

	year, month, day, hour, min, sec, nsec int
	noYear                                 bool
	t                                      time.Time
}

// A form is one way to write a time.
type form uint8

const (
	isoForm form = iota
	slashesForm
	accessForm
	compactForm
	epochForm
	namedForm
	glogForm
	dayForm
	androidForm
)

// try is a switch, and not a call of a function value, to keep p off the heap.
func (p *parser) try(f form) bool {
	saved := *p
	ok := false
	switch f {
	case isoForm:
		ok = p.iso()
	case slashesForm:
		ok = p.slashes()
	case accessForm:
		ok = p.access()
	case compactForm:
		ok = p.compact()
	case epochForm:
		ok = p.epoch()
	case namedForm:
		ok = p.named()
	case glogForm:
		ok = p.glog()
	case dayForm:
		ok = p.dayFirst()
	case androidForm:
		ok = p.android()
	}
	if ok && p.finish() {
		return true
	}
	*p = saved
	return false
}

// finish checks the fields and makes the time. Nothing may stick to its end.
func (p *parser) finish() bool {
	if p.i < len(p.b) && isDigit(p.b[p.i]) {
		return false
	}
	if !p.t.IsZero() {
		return true
	}
	if p.month < 1 || p.month > 12 || p.day < 1 || p.hour > 23 || p.min > 59 || p.sec > 60 {
		return false
	}
	if p.noYear {
		p.year = 2000
	}
	p.t = time.Date(p.year, time.Month(p.month), p.day, p.hour, p.min, min(p.sec, 59), p.nsec, p.loc)
	return p.t.Day() == p.day && !p.t.IsZero() // which stands for no time
}

func (p *parser) iso() bool {
	if !(p.num(4, &p.year) && p.lit('-') && p.num(2, &p.month) && p.lit('-') && p.num(2, &p.day)) {
		return false
	}
	if !(p.lit('T') || p.lit(' ') || p.lit('t')) || !p.clock() {
		return false
	}
	p.zone()
	return true
}

func (p *parser) slashes() bool {
	if p.num(4, &p.year) {
	} else if p.num(2, &p.year) {
		p.year += 2000
	} else {
		return false
	}
	return p.lit('/') && p.num(2, &p.month) && p.lit('/') && p.num(2, &p.day) && p.lit(' ') && p.clock()
}

func (p *parser) access() bool {
	if !(p.num(2, &p.day) && p.lit('/') && p.monthName() && p.lit('/') && p.num(4, &p.year) && p.lit(':') && p.clock()) {
		return false
	}
	p.zone()
	return true
}

func (p *parser) compact() bool {
	if !(p.num(2, &p.year) && p.num(2, &p.month) && p.num(2, &p.day) && p.lit(' ') &&
		p.num(2, &p.hour) && p.num(2, &p.min) && p.num(2, &p.sec)) {
		return false
	}
	p.year += 2000
	return true
}

func (p *parser) epoch() bool {
	start := p.i
	for p.i < len(p.b) && p.i-start < 30 && (isDigit(p.b[p.i]) || p.b[p.i] == '.') {
		p.i++
	}
	if p.i < len(p.b) && p.b[p.i] != ' ' && p.b[p.i] != '\t' {
		return false
	}
	word := string(p.b[start:p.i])
	if len(word) < 10 || word[9] == '.' { // 1973 to 2001 is more often something else
		return false
	}
	t, ok := FromNumber(word)
	p.t = t
	return ok && (p.now == nil || near(t, p.now()))
}

// near reports whether a line that came now is likely to be of t.
func near(t, now time.Time) bool {
	return !t.Before(now.AddDate(-10, 0, 0)) && !t.After(now.Add(24*time.Hour))
}

// named reads what begins with the name of a month or weekday.
func (p *parser) named() bool {
	if p.monthName() {
		if !(p.lit(' ') && p.dayOfMonth()) {
			return false
		}
		if p.lit(',') { // java.util.logging
			return p.lit(' ') && p.num(4, &p.year) && p.lit(' ') && p.clock12()
		}
		if !p.lit(' ') {
			return false
		}
		i := p.i
		if p.num(4, &p.year) && p.lit(' ') {
			return p.clock()
		}
		p.i, p.noYear = i, true // syslog
		return p.clock()
	}
	weekday := p.name(weekdays)
	if weekday < 0 {
		return false
	}
	if p.lit(',') { // Sun, 02 Jan 2006 15:04:05 GMT
		if !(p.lit(' ') && p.num(2, &p.day) && p.lit(' ') && p.monthName() && p.lit(' ') && p.num(4, &p.year) && p.lit(' ') && p.clock()) {
			return false
		}
		p.zone()
		return true
	}
	if !(p.lit(' ') && p.monthName() && p.lit(' ') && p.dayOfMonth() && p.lit(' ') && p.clock() && p.lit(' ')) {
		return false
	}
	if p.i+2 < len(p.b) && p.b[p.i+2] == ' ' { // AMT is a zone
		if ok, said := p.half(); !ok || said && !p.lit(' ') {
			return false
		}
	}
	return p.zonedYear(time.Weekday(weekday))
}

// zonedYear reads a year, which may have a zone before it. A word that is no zone it knows is
// taken for one if the weekday is that of the day in that year.
func (p *parser) zonedYear(weekday time.Weekday) bool {
	if p.num(4, &p.year) {
		return true
	}
	start, known := p.i, true
	for p.i < len(p.b) && p.i-start < 5 && p.b[p.i]-'A' < 26 {
		p.i++
	}
	switch string(p.b[start:p.i]) {
	case "":
		if !p.offset(true) {
			return false
		}
	case "UTC", "GMT": // GMT+03:00 is Java's
		p.loc = time.UTC
		p.offset(true)
	case "UT", "Z":
		p.loc = time.UTC
	default:
		known = false
	}
	return p.lit(' ') && p.num(4, &p.year) &&
		(known || time.Date(p.year, time.Month(p.month), p.day, 0, 0, 0, 0, time.UTC).Weekday() == weekday)
}

// half reads AM or PM, if one is there. It is not ok if the hour is none of twelve then.
func (p *parser) half() (ok, said bool) {
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

func (p *parser) glog() bool {
	if strings.IndexByte("IWEFD", p.b[p.i]) < 0 {
		return false
	}
	p.i++
	p.noYear = true
	return p.num(2, &p.month) && p.num(2, &p.day) && p.lit(' ') && p.clock() && p.nsec > 0
}

// dayFirst reads 02-Jan-2006 15:04:05, also with spaces.
func (p *parser) dayFirst() bool {
	if !p.num(2, &p.day) && !p.num(1, &p.day) || p.i == len(p.b) {
		return false
	}
	sep := p.b[p.i]
	if !((sep == '-' || sep == ' ') && p.lit(sep) && p.monthName() && p.lit(sep) && p.num(4, &p.year) && p.lit(' ') && p.clock()) {
		return false
	}
	p.zone()
	return true
}

// android reads 01-02 15:04:05.999.
func (p *parser) android() bool {
	p.noYear = true
	if !(p.num(2, &p.month) && p.lit('-') && p.num(2, &p.day) && p.lit(' ')) {
		return false
	}
	i := p.i
	return p.clock() && p.i > i+len("15:04:05") // without a fraction it is more often something else
}

// clock12 reads 3:04:05 PM. Newer versions of Java have U+202F for the space.
func (p *parser) clock12() bool {
	if !(p.num(2, &p.hour) || p.num(1, &p.hour)) || !(p.lit(':') && p.num(2, &p.min) && p.lit(':') && p.num(2, &p.sec)) ||
		!p.lit(' ') && !p.word("\u202f") {
		return false
	}
	ok, said := p.half()
	return ok && said
}

// clock reads hours, minutes, seconds and an optional fraction.
func (p *parser) clock() bool {
	if !(p.num(2, &p.hour) && p.lit(':') && p.num(2, &p.min) && p.lit(':') && p.num(2, &p.sec)) {
		return false
	}
	if p.i+1 < len(p.b) && (p.b[p.i] == '.' || p.b[p.i] == ',') && isDigit(p.b[p.i+1]) {
		p.i++
		unit := int(time.Second)
		for ; p.i < len(p.b) && isDigit(p.b[p.i]); p.i++ {
			unit /= 10
			p.nsec += int(p.b[p.i]-'0') * unit
		}
	}
	return true
}

// zone reads a zone if there is one, behind a space or at once.
func (p *parser) zone() {
	i := p.i
	spaced := p.lit(' ')
	switch {
	case p.lit('Z') || p.lit('z'):
		if !spaced {
			p.loc = time.UTC
			return
		}
	case p.word("UTC") || p.word("GMT"):
		p.loc = time.UTC
		return
	case p.offset(false):
		return
	}
	p.i = i
}

// offset reads a distance from UTC: +0100 or +01:00 or, if short, +01, too.
func (p *parser) offset(short bool) bool {
	start, sign := p.i, 1
	switch {
	case p.lit('+'):
	case p.lit('-'):
		sign = -1
	default:
		return false
	}
	var h, m int
	if p.num(2, &h) {
		i := p.i
		p.lit(':')
		minutes := p.num(2, &m)
		if !minutes {
			p.i = i
		}
		if (minutes || short) && h < 24 && m < 60 {
			p.loc = time.FixedZone("", sign*(h*3600+m*60))
			return true
		}
	}
	p.i = start
	return false
}

// num reads exactly n digits.
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

// dayOfMonth reads one or two digits, the first of which may be a space.
func (p *parser) dayOfMonth() bool {
	p.lit(' ')
	return p.num(2, &p.day) || p.num(1, &p.day)
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

const (
	months   = "JanFebMarAprMayJunJulAugSepOctNovDec"
	weekdays = "SunMonTueWedThuFriSat"
)

func (p *parser) monthName() bool {
	k := p.name(months)
	p.month = k + 1
	return k >= 0
}

// name reads one of the three-letter names in list and returns its number.
func (p *parser) name(list string) int {
	if p.i+3 > len(p.b) {
		return -1
	}
	for k := 0; k < len(list); k += 3 {
		if string(p.b[p.i:p.i+3]) == list[k:k+3] {
			p.i += 3
			return k / 3
		}
	}
	return -1
}

func isDigit(c byte) bool  { return c-'0' < 10 }
func isLetter(c byte) bool { return c|0x20-'a' < 26 }
