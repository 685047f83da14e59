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

// facilities are the names of RFC 5424 §6.2.1, as syslog.conf(5) spells them.
var facilities = [...]string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "security", "console", "solaris-cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

var severities = [...]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// A Parser parses messages of RFC 5424 and 3164, and similar ones. It reuses its memory.
type Parser struct {
	MaxLabels int            // most parameters of structured data
	Zone      *time.Location // of times without one
	rec       listen.Record
}

// Line parses a line of a file, which may have no priority. The record is valid until the next call.
// ok reports whether the line has the header of a message.
func (p *Parser) Line(line []byte, now time.Time) (r *listen.Record, ok bool) {
	if r, ok = p.parse(line, now); r.HasLevel {
		return r, ok
	}
	timed, tagged := p.rfc3164(r.Body, now)
	return r, timed && tagged
}

// Parse returns the record of a message, which is valid until the next call. Every message
// has one: if a part does not conform to the RFCs, the text from there on is the body.
func (p *Parser) Parse(msg []byte, now time.Time) *listen.Record {
	r, _ := p.parse(msg, now)
	return r
}

// parse also reports whether the message has a priority and a header.
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

// label adds a label, unless the value is empty or NILVALUE.
func (p *Parser) label(name string, value []byte) {
	if len(value) > 0 && string(value) != "-" {
		p.rec.Labels = append(p.rec.Labels, listen.Label{Name: name, Value: string(value)})
	}
}

// priority reads <PRI>.
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

// word returns the text before the next space, and the rest after it.
func word(b []byte) (w, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// rfc5424 parses the rest after the version and reports whether it has a header. Invalid times and
// missing or malformed structured data do not affect the other parts; malformed data are part of the
// text.
func (p *Parser) rfc5424(b []byte) (ok bool) {
	var parts [5][]byte // time, host, app, process, message id
	for i := range parts {
		if parts[i], b, ok = word(b); !ok {
			return false
		}
	}
	if at, ok := stamp.At(parts[0], p.Zone); ok && at.To == len(parts[0]) && !at.Yearless {
		p.rec.Time = at.Time
	}
	p.label("host", parts[1])
	if app := string(parts[2]); app != "-" {
		p.rec.Tag = app
	}
	p.label("procid", parts[3])
	p.label("msgid", parts[4])
	p.rec.Body = b
	if rest, ok := p.structured(b); ok && (len(rest) == 0 || rest[0] == ' ') {
		p.rec.Body = rest[min(1, len(rest)):]
	} else {
		p.rec.Metadata = p.rec.Metadata[:0]
	}
	p.rec.Body = bytes.TrimPrefix(p.rec.Body, []byte("\ufeff"))
	return true
}

// structured reads STRUCTURED-DATA.
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

// param adds a parameter. A name may come several times (RFC 5424 §6.3.3); the later ones get a
// "_", as keys do in every output.
func (p *Parser) param(name, value string) {
	for slices.ContainsFunc(p.rec.Metadata, func(l listen.Label) bool { return l.Name == name }) {
		name += "_"
	}
	p.rec.Metadata = append(p.rec.Metadata, listen.Label{Name: name, Value: value})
}

// quoted reads a PARAM-VALUE up to its quotation mark.
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

// rfc3164 reads the rest after the priority: a time, a host, and the name of a program with its
// process. Each may be missing. Devices of Cisco write more before and between:
//
//	82: R1: 000079: *Nov 20 10:11:12.123 UTC: %SYS-5-CONFIG_I: text    IOS: counters, the host
//	: 2026 Nov 20 10:11:12 UTC: %ETHPORT-5-IF_UP: text                 NX-OS
//	Nov 20 2026 10:11:12 fw1 : %ASA-6-302013: text                     ASA
//
// It reports whether there are a time and a name of a program.
func (p *Parser) rfc3164(b []byte, now time.Time) (timed, tagged bool) {
	host, start := device(b)
	rest, timed := p.stamp(start, now)
	if timed || bytes.HasPrefix(start, []byte{'%'}) {
		p.label("host", host)
	} else {
		rest = b
	}
	app, pid, body, tagged := tag(rest)
	if !tagged && timed { // programs on the same machine send no host
		if host, after, ok := word(rest); ok {
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

// device skips the counters before the time of a device, and returns its host, if that is
// among them.
func device(b []byte) (host, rest []byte) {
	counted := false
	for rest = b; ; {
		w, after, ok := word(rest)
		if !ok || w[len(w)-1] != ':' {
			return host, rest
		}
		switch name := w[:len(w)-1]; {
		case len(name) == 0 && !counted, isNumber(name): // NX-OS has a colon alone
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

// maxTag is how long the name of a program may be.
const maxTag = 128

// tag reads NAME: or NAME[PID]: and the space after it.
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
	if rest = rest[1:]; len(rest) > 0 && rest[0] != ' ' { // a:b is no tag
		return nil, nil, b, false
	}
	if len(rest) > 0 {
		rest = rest[1:]
	}
	return app, pid, rest, true
}

// ahead is how far the clock of a sender may be ahead.
const ahead = 7 * 24 * time.Hour

// stamp reads a time at the start of b and the space or colon after it. Cisco writes "*" or "."
// first while the clock is not set.
func (p *Parser) stamp(b []byte, now time.Time) (rest []byte, ok bool) {
	rest = b
	if len(b) > 0 && bytes.IndexByte([]byte("*.:"), b[0]) >= 0 {
		rest = b[1:]
	}
	at, ok := stamp.At(rest, p.Zone)
	if !ok || !at.Form.Host {
		return b, false
	}
	rest = rest[at.To:]
	if w, after, ok := word(bytes.TrimPrefix(rest, []byte{' '})); ok && len(w) <= 6 && w[len(w)-1] == ':' && isUpper(w[:len(w)-1]) && bytes.HasPrefix(after, []byte{'%'}) {
		rest = after // the name of a zone
	}
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != ':' && rest[0] != '%' {
		return b, false
	}
	if p.rec.Time = at.Time; at.Yearless {
		p.rec.Time = at.In(now.Add(ahead))
	}
	return bytes.TrimLeft(bytes.TrimPrefix(rest, []byte{':'}), " "), true
}

func isUpper(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r < 'A' || r > 'Z' })
}
