package syslog

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/stamp"
)

// facilities contains the names of the facilities of RFC 5424 §6.2.1, as in syslog.conf(5).
var facilities = [...]string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "security", "console", "solaris-cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

// severities contains the names of the severities of RFC 5424 §6.2.1.
var severities = [...]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// A Parser parses messages of RFC 5424, RFC 3164 and similar formats. It reuses its memory.
type Parser struct {
	MaxLabels int            // maximum number of parameters of structured data that become metadata
	Zone      *time.Location // time zone for times without a time zone
	rec       listen.Record
}

// Line parses a line of a log file, which may lack the priority. ok reports whether the line has a
// syslog header. The record is valid until the next call.
func (p *Parser) Line(line []byte, now time.Time) (r *listen.Record, ok bool) {
	if r, ok = p.parse(line, now); r.HasLevel {
		return r, ok
	}
	timed, tagged := p.rfc3164(r.Body, now)
	return r, timed && tagged
}

// Parse returns the record of a message. If a part of the message does not conform to the RFCs, the
// body of the record begins there. The record is valid until the next call.
func (p *Parser) Parse(msg []byte, now time.Time) *listen.Record {
	r, _ := p.parse(msg, now)
	return r
}

// parse parses a message. ok reports whether the message has a priority and a header.
func (p *Parser) parse(msg []byte, now time.Time) (r *listen.Record, ok bool) {
	p.rec = listen.Record{Source: Source, Labels: p.rec.Labels[:0], Metadata: p.rec.Metadata[:0]}
	msg = bytes.TrimRight(msg, "\r\n\x00")
	p.rec.Body = msg
	pri, rest, ok := priority(msg)
	if !ok {
		return &p.rec, false
	}
	p.rec.Level, p.rec.HasLevel = record.SyslogLevel(pri&7), true
	p.label("facility", []byte(facilities[pri>>3]))
	p.label("severity", []byte(severities[pri&7]))
	p.rec.Body = rest
	if after, ok := bytes.CutPrefix(rest, []byte("1 ")); ok {
		return &p.rec, p.rfc5424(after)
	}
	timed, tagged := p.rfc3164(rest, now)
	return &p.rec, timed || tagged
}

// label adds a label, unless the value is empty or "-" (NILVALUE).
func (p *Parser) label(name string, value []byte) {
	if len(value) > 0 && string(value) != "-" {
		p.rec.Labels = append(p.rec.Labels, listen.Label{Name: name, Value: string(value)})
	}
}

// priority parses the priority <PRI> at the beginning of b.
func priority(b []byte) (pri int, rest []byte, ok bool) {
	end := bytes.IndexByte(b[:min(len(b), 5)], '>')
	if end < 2 || b[0] != '<' {
		return 0, nil, false
	}
	pri, err := strconv.Atoi(string(b[1:end]))
	if err != nil || pri < 0 || pri >= 8*len(facilities) || b[1] == '+' || b[1] == '-' {
		return 0, nil, false
	}
	return pri, b[end+1:], true
}

// cutSpace splits b at its first space. ok is false if b has no space or begins with one.
func cutSpace(b []byte) (w, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// rfc5424 parses the text after the version. ok reports whether the header is complete. An invalid
// time is ignored, and malformed structured data becomes part of the body. If the time is valid,
// structured data may be missing, although RFC 5424 requires it.
func (p *Parser) rfc5424(b []byte) (ok bool) {
	var header [5][]byte // time, host, app name, process id, message id
	var at stamp.Match
	valid := false
	for i := range header {
		w, rest, ok := cutSpace(b)
		switch {
		case ok:
			header[i], b = w, rest
		case i == len(header)-1 && valid && len(b) > 0 && b[0] != ' ':
			header[i], b = b, nil
		default:
			return false
		}
		if i == 0 {
			at, valid = stamp.At(w, p.Zone)
			valid = valid && at.To == len(w) && !at.Yearless
		}
	}
	if valid {
		p.rec.Time = at.Time
	}
	p.label("host", header[1])
	if app := string(header[2]); app != "-" {
		p.rec.Tag = app
	}
	p.label("procid", header[3])
	p.label("msgid", header[4])
	p.rec.Body = b
	if rest, ok := p.structured(b); ok && (len(rest) == 0 || rest[0] == ' ') {
		p.rec.Body = rest[min(1, len(rest)):]
	} else {
		p.rec.Metadata = p.rec.Metadata[:0]
	}
	p.rec.Body = bytes.TrimPrefix(p.rec.Body, []byte("\ufeff"))
	return true
}

// structured parses the STRUCTURED-DATA at the beginning of b.
func (p *Parser) structured(b []byte) (rest []byte, ok bool) {
	if len(b) > 0 && b[0] == '-' {
		return b[1:], true
	}
	if len(b) == 0 || b[0] != '[' {
		return b, false
	}
	for len(b) > 0 && b[0] == '[' {
		end := bytes.IndexAny(b, " ]")
		if end < 2 {
			return b, false
		}
		id := string(b[1:end])
		for b = b[end:]; len(b) > 0 && b[0] == ' '; {
			name, after, found := bytes.Cut(b[1:], []byte(`="`))
			if !found || len(name) == 0 || bytes.ContainsAny(name, ` ]"=`) || len(p.rec.Metadata) == p.MaxLabels {
				return b, false
			}
			value, after, ok := quoted(after)
			if !ok {
				return b, false
			}
			p.param(id+"."+string(name), value)
			b = after
		}
		if len(b) == 0 || b[0] != ']' {
			return b, false
		}
		b = b[1:]
	}
	return b, true
}

// param adds a parameter. If a parameter with this name exists (RFC 5424 §6.3.3), param appends "_"
// to the name.
func (p *Parser) param(name, value string) {
	for slices.ContainsFunc(p.rec.Metadata, func(l listen.Label) bool { return l.Name == name }) {
		name += "_"
	}
	p.rec.Metadata = append(p.rec.Metadata, listen.Label{Name: name, Value: value})
}

// quoted parses a PARAM-VALUE. rest is the text after the closing quotation mark.
func quoted(b []byte) (value string, rest []byte, ok bool) {
	var text []byte
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return string(text), b[i+1:], true
		case c == '\\' && i+1 < len(b) && (b[i+1] == '"' || b[i+1] == '\\' || b[i+1] == ']'):
			i++
			text = append(text, b[i])
		default:
			text = append(text, c)
		}
	}
	return "", nil, false
}

// rfc3164 parses the text after the priority: a time, a host, and the name and process id of a
// program. Each of them may be missing. Cisco devices add other fields:
//
//	82: R1: 000079: *Nov 20 10:11:12.123 UTC: %SYS-5-CONFIG_I: text    IOS: counters, the host
//	: 2026 Nov 20 10:11:12 UTC: %ETHPORT-5-IF_UP: text                 NX-OS
//	Nov 20 2026 10:11:12 fw1 : %ASA-6-302013: text                     ASA
//
// timed and tagged report whether a time and the name of a program were found.
func (p *Parser) rfc3164(b []byte, now time.Time) (timed, tagged bool) {
	host, start := device(b)
	rest, timed := p.timestamp(start, now)
	if timed || bytes.HasPrefix(start, []byte{'%'}) {
		p.label("host", host)
	} else {
		rest = b
	}
	app, pid, body, tagged := tag(rest)
	if !tagged && timed { // look for a host name, which messages of local programs do not contain
		if host, after, ok := cutSpace(rest); ok {
			p.label("host", host)
			rest = bytes.TrimPrefix(after, []byte(": "))
			app, pid, body, tagged = tag(rest)
		}
	}
	if !tagged {
		p.rec.Body = rest
		return timed, false
	}
	p.rec.Tag, p.rec.Body = string(app), body
	p.label("procid", pid)
	return timed, true
}

// device skips the counters that Cisco devices write before the time. If a host name is between the
// counters and the time, device returns it.
func device(b []byte) (host, rest []byte) {
	counted := false
	for rest = b; ; {
		w, after, ok := cutSpace(rest)
		if !ok || w[len(w)-1] != ':' {
			return host, rest
		}
		switch name := w[:len(w)-1]; {
		case len(name) == 0 && !counted, isNumber(name): // NX-OS writes only the colon of a counter
			counted = true
		case counted && host == nil && len(name) > 0 && name[0] >= 'A':
			host = name
		default:
			return host, rest
		}
		rest = after
	}
}

func isNumber(b []byte) bool { return len(bytes.Trim(b, "0123456789")) == 0 && len(b) > 0 }

// maxTag is the maximum length of a program name in bytes.
const maxTag = 128

// tag parses NAME: or NAME[PID]: at the beginning of b, and the following space.
func tag(b []byte) (app, pid, rest []byte, ok bool) {
	end := bytes.IndexAny(b[:min(len(b), maxTag)], " :[")
	if end < 1 || b[end] == ' ' {
		return nil, nil, b, false
	}
	app, rest = b[:end], b[end:]
	if rest[0] == '[' {
		end := bytes.IndexByte(rest[:min(len(rest), maxTag)], ']')
		if end < 0 || end+1 >= len(rest) || rest[end+1] != ':' || bytes.IndexByte(rest[:end], ' ') >= 0 {
			return nil, nil, b, false
		}
		pid, rest = rest[1:end], rest[end+1:]
	}
	if rest = rest[1:]; len(rest) > 0 && rest[0] != ' ' { // a colon ends a tag only if a space follows, which is not the case in a:b
		return nil, nil, b, false
	}
	if len(rest) > 0 {
		rest = rest[1:]
	}
	return app, pid, rest, true
}

// maxAhead is how far in the future a time without a year may be, because the clock of the sender
// may be ahead. If the current year gives a later time, the previous year is assumed.
const maxAhead = 7 * 24 * time.Hour

// timestamp parses a time at the beginning of b, and the following space or colon. If the clock of
// a Cisco device is not set, "*" or "." precedes the time.
func (p *Parser) timestamp(b []byte, now time.Time) (rest []byte, ok bool) {
	rest = b
	if len(b) > 0 && bytes.IndexByte([]byte("*.:"), b[0]) >= 0 {
		rest = b[1:]
	}
	at, ok := stamp.At(rest, p.Zone)
	if !ok || !at.Form.Host {
		return b, false
	}
	rest = rest[at.To:]
	if w, after, ok := cutSpace(bytes.TrimPrefix(rest, []byte{' '})); ok && len(w) <= 6 && w[len(w)-1] == ':' && isUpper(w[:len(w)-1]) && bytes.HasPrefix(after, []byte{'%'}) {
		rest = after // skip the name of a time zone
	}
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != ':' && rest[0] != '%' {
		return b, false
	}
	if p.rec.Time = at.Time; at.Yearless {
		p.rec.Time = at.In(now.Add(maxAhead))
	}
	return bytes.TrimLeft(bytes.TrimPrefix(rest, []byte{':'}), " "), true
}

func isUpper(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r < 'A' || r > 'Z' })
}
