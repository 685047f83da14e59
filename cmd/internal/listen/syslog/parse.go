package syslog

import (
	"bytes"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/record"
)

// facilities are the names of RFC 5424 §6.2.1, as syslog.conf(5) spells them.
var facilities = [...]string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "security", "console", "solaris-cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

var severities = [...]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// A parser reads messages of RFC 5424 and 3164, and what is like them. It keeps its memory.
type parser struct {
	maxLabels int
	zone      *time.Location // of times without one
	rec       listen.Record
}

// parse returns the record of a message, which is valid until the next call. Every message
// has one: where a part is not as the RFCs have it, the text from there on is the body.
func (p *parser) parse(msg []byte, now time.Time) *listen.Record {
	p.rec = listen.Record{Source: Source, Labels: p.rec.Labels[:0], Metadata: p.rec.Metadata[:0]}
	msg = bytes.TrimRight(msg, "\r\n\x00")
	p.rec.Body = msg
	pri, rest, ok := priority(msg)
	if !ok {
		return &p.rec
	}
	p.rec.Level, p.rec.HasLevel = record.SyslogLevel(pri&7), true
	p.label("facility", []byte(facilities[pri>>3]))
	p.label("severity", []byte(severities[pri&7]))
	p.rec.Body = rest
	if after, ok := bytes.CutPrefix(rest, []byte("1 ")); ok {
		labels := len(p.rec.Labels)
		if p.rfc5424(after) {
			return &p.rec
		}
		p.rec.Labels, p.rec.Metadata = p.rec.Labels[:labels], p.rec.Metadata[:0]
		p.rec.Tag, p.rec.Time, p.rec.Body = "", time.Time{}, rest
		return &p.rec
	}
	p.rfc3164(rest, now)
	return &p.rec
}

// label adds a label, unless the value is empty or NILVALUE.
func (p *parser) label(name string, value []byte) {
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

// word returns what stands before the next space, and what stands behind it.
func word(b []byte) (w, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// rfc5424 reads what stands behind the version.
func (p *parser) rfc5424(b []byte) bool {
	var parts [5][]byte // time, host, app, process, message id
	for i := range parts {
		var ok bool
		if parts[i], b, ok = word(b); !ok {
			return false
		}
	}
	if at := string(parts[0]); at != "-" {
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return false
		}
		p.rec.Time = t
	}
	p.label("host", parts[1])
	if app := string(parts[2]); app != "-" {
		p.rec.Tag = app
	}
	p.label("procid", parts[3])
	p.label("msgid", parts[4])
	b, ok := p.structured(b)
	if !ok || len(b) > 0 && b[0] != ' ' {
		return false
	}
	if len(b) > 0 {
		b = b[1:]
	}
	p.rec.Body = bytes.TrimPrefix(b, []byte("\ufeff"))
	return true
}

// structured reads STRUCTURED-DATA.
func (p *parser) structured(b []byte) (rest []byte, ok bool) {
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
			if !found || len(name) == 0 || bytes.ContainsAny(name, ` ]"=`) || len(p.rec.Metadata) == p.maxLabels {
				return b, false
			}
			value, after, ok := quoted(after)
			if !ok {
				return b, false
			}
			p.rec.Metadata = append(p.rec.Metadata, listen.Label{Name: id + "." + string(name), Value: value})
			b = after
		}
		if len(b) == 0 || b[0] != ']' {
			return b, false
		}
		b = b[1:]
	}
	return b, true
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

// rfc3164 reads what stands behind the priority: a time, a host, and the name of a program
// with its process. Each may be missing.
func (p *parser) rfc3164(b []byte, now time.Time) {
	at, b, timed := p.stamp(b, now)
	p.rec.Time = at
	app, pid, body, tagged := tag(b)
	if !tagged && timed { // programs on the same machine send no host
		if host, rest, ok := word(b); ok {
			p.label("host", host)
			b = rest
			app, pid, body, tagged = tag(b)
		}
	}
	if !tagged {
		p.rec.Body = b
		return
	}
	p.rec.Tag, p.rec.Body = string(app), body
	p.label("procid", pid)
}

// maxTag is how long the name of a program may be.
const maxTag = 128

// tag reads NAME: or NAME[PID]: and the space behind it.
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

// stamp reads the time of RFC 3164, with or without fractions and a year, or that of RFC
// 3339, and the space behind it.
func (p *parser) stamp(b []byte, now time.Time) (at time.Time, rest []byte, ok bool) {
	if w, after, found := word(b); found && len(w) >= len("2006-01-02T15:04:05Z") {
		if t, err := time.Parse(time.RFC3339Nano, string(w)); err == nil {
			return t, after, true
		}
	}
	for _, form := range []string{"Jan _2 15:04:05", "Jan _2 2006 15:04:05"} {
		n := len(form)
		if len(b) < n {
			continue
		}
		for n < len(b) && n < len(form)+10 && (b[n] == '.' && n == len(form) || n > len(form) && b[n] >= '0' && b[n] <= '9') {
			n++
		}
		if n < len(b) && b[n] != ' ' && b[n] != ':' {
			continue
		}
		t, err := time.ParseInLocation(form, string(b[:n]), p.zone)
		if err != nil {
			continue
		}
		if t.Year() == 0 {
			t, ok = latest(b[:n], form, now, p.zone)
			if !ok {
				continue
			}
		}
		if n < len(b) {
			n++
		}
		return t, bytes.TrimLeft(b[n:], " "), true
	}
	return at, b, false
}

// ahead is how far the clock of a sender may be ahead.
const ahead = 7 * 24 * time.Hour

// latest returns the time in the latest year in which it is not in the future.
func latest(b []byte, form string, now time.Time, zone *time.Location) (time.Time, bool) {
	year := now.In(zone).Year()
	for y := year + 1; y >= year-1; y-- {
		t, err := time.ParseInLocation("2006 "+form, strconv.Itoa(y)+" "+string(b), zone)
		if err == nil && t.Sub(now) <= ahead {
			return t, true
		}
	}
	return time.Time{}, false
}
