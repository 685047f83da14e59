package stamp

import "strings"

// A Form is a format of times in log lines.
type Form struct {
	Name   string // name of the standard, or of the programs that use it
	Glog   bool   // the letter of a level is before the time
	Host   bool   // a host name may be after the time
	layout string
	place  place

	yearless bool
	sep      byte // separator after the leading digits or the name; 0 if several are possible
}

// A place is the part of a line in which a form may begin.
type place uint8

const (
	anywhere place = iota // in the first 96 bytes
	first                 // at the start of the line or after an opening bracket there
	audited               // after "audit("
)

// forms are tried in this order, and the first match is used. The letters of a layout stand for:
//
//	Y y m d   four digits of a year, two digits of a year, month or day
//	e         a day of one or two digits
//	a b       the name of a weekday or month, three letters
//	c C       hours, minutes and seconds; c with an optional fraction, C with a fraction
//	k K       hours, minutes and seconds; k without separators, K with dots
//	p         AM or PM
//	z         an optional zone
//	X         optional AM or PM, an optional zone, and a year
//	U         seconds since 1970
//	L         the letter of a level in glog
//	w         a word
//	o         an optional comma
//
// A space matches one or two spaces. Every other character matches itself.
var forms = []*Form{
	{Name: "ISO 8601, RFC 3339", layout: "Y-m-dTcz", Host: true},
	{Name: "ISO 8601 with a space, as PostgreSQL, log4j, Python", layout: "Y-m-do cz"},
	{Name: "nginx, Go", layout: "Y/m/d cz"},
	{Name: "ClickHouse", layout: "Y.m.d cz"},
	{Name: "BlueGene, DB2", layout: "Y-m-d-Kz"},
	{Name: "Cisco NX-OS", layout: "Y b e cz", Host: true},
	{Name: "ISO 8601, basic", layout: "YmdTkz"},
	{Name: "digits of a date", layout: "Ymd cz"},
	{Name: "digits of a date", layout: "Ymd-cz"},
	{Name: "MySQL 5", layout: "ymd c"},
	{Name: "HDFS", layout: "ymd k"},
	{Name: "Spark", layout: "y/m/d c"},
	{Name: "access log", layout: "d/b/Y:cz"},
	{Name: "Django", layout: "d/b/Y cz"},
	{Name: "the day first", layout: "e.m.Yo cz"},
	{Name: "Tomcat, BIND, PHP", layout: "e-b-Y cz"},
	{Name: "Redis, log4j DATE", layout: "e b Y cz"},
	{Name: "Redis before 4", layout: "e b c"},
	{Name: "Android", layout: "m-d C", place: first},
	{Name: "seconds since 1970, BlueGene", layout: "U Y.m.d w Y-m-d-K"},
	{Name: "seconds since 1970, Thunderbird", layout: "U Y.m.d"},
	{Name: "auditd", layout: "U", place: audited},
	{Name: "seconds since 1970", layout: "U", place: first},
	{Name: "ctime, Apache, date", layout: "a b e c X"},
	{Name: "JavaScript", layout: "a b e Y cz"},
	{Name: "HTTP, mail", layout: "a, e b Y cz"},
	{Name: "java.util.logging", layout: "b e, Y c pz"},
	{Name: "syslog with a year, Cisco ASA", layout: "b e Y cz", Host: true},
	{Name: "syslog, RFC 3164", layout: "b e cz", Host: true},
	{Name: "glog, klog", layout: "Lmd C", Glog: true},
	{Name: "glog with a year", layout: "LYmd C", Glog: true},
}

// byDigits contains the forms by their number of leading digits; the last entry is for nine or more
// digits. byName contains the forms that begin with the name of a day or month. byLetter contains
// the forms of glog.
var (
	byDigits         [10][]*Form
	byName, byLetter []*Form
)

func init() {
	for _, f := range forms {
		f.yearless = !strings.ContainsAny(f.layout, "YyXU")
		digits := 0
	leading:
		for i := range f.layout {
			switch c := f.layout[i]; c {
			case 'Y':
				digits += 4
			case 'y', 'm', 'd':
				digits += 2
			case 'e':
				byDigits[1] = append(byDigits[1], f)
				digits += 2
			case 'U':
				digits = 9
			case 'a', 'b':
				byName, f.sep = append(byName, f), f.layout[i+1]
				break leading
			case 'L':
				byLetter = append(byLetter, f)
				break leading
			case 'T': // the letter T or t
				break leading
			default:
				f.sep = c
				break leading
			}
		}
		if digits == 9 {
			f.sep = 0 // the number may be followed by a fraction
		}
		if digits > 0 {
			byDigits[digits] = append(byDigits[digits], f)
		}
	}
}
