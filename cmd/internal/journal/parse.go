package journal

import (
	"bytes"
	"log/slog"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// A parser reads entries as journalctl -o json writes them. It keeps its memory.
//
// A value is a text, a list of the numbers of its bytes if these are no UTF-8 or cannot be
// printed, or null if it is too long (but not with --all). A field that the entry has
// several times is a list of these.
type parser struct {
	all bool // fields become attributes

	text   []byte
	cursor []byte
	value  []byte
	attrs  []slog.Attr
	names  map[string]string // texts of attributes that came before
}

// parse returns the entry of a line and its cursor, which are valid until the next call. It reports
// false if the line is not an entry.
func (p *parser) parse(line []byte) (e Entry, cursor []byte, ok bool) {
	line = bytes.TrimSpace(line)
	if !record.IsObject(line) {
		return e, nil, false
	}
	p.text, p.cursor = p.text[:0], p.cursor[:0]
	clear(p.attrs)
	p.attrs = p.attrs[:0]
	var unit, user, about, identifier, command, pid, syslogPID, host string
	record.Members(line, 0, func(m record.Member) bool {
		v := line[m.Value:m.End]
		switch string(line[m.Key:m.KeyEnd]) {
		case `"MESSAGE"`:
			p.text = appendValue(p.text[:0], v)
			return true
		case `"__CURSOR"`:
			p.cursor = appendValue(p.cursor[:0], v)
			return true
		case `"__REALTIME_TIMESTAMP"`:
			if us, err := strconv.ParseInt(string(p.of(v)), 10, 64); err == nil {
				e.Time = time.UnixMicro(us)
			}
			return true
		case `"PRIORITY"`:
			// Of several values the first counts, as for sd_journal_get_data.
			if t, _, _ := bytes.Cut(p.of(v), []byte{'\n'}); len(t) == 1 && '0' <= t[0] && t[0] <= '7' {
				e.Level, e.HasLevel = record.SyslogLevel(int(t[0]-'0')), true
			}
			return true
		case `"__MONOTONIC_TIMESTAMP"`, `"__SEQNUM"`, `"__SEQNUM_ID"`:
			return true
		case `"_SYSTEMD_UNIT"`:
			unit = p.known(v)
		case `"_SYSTEMD_USER_UNIT"`:
			user = p.known(v)
		case `"UNIT"`:
			about = p.known(v)
		case `"SYSLOG_IDENTIFIER"`:
			identifier = p.known(v)
		case `"_COMM"`:
			command = p.known(v)
		case `"_PID"`:
			pid = p.known(v)
		case `"SYSLOG_PID"`:
			syslogPID = p.known(v)
		case `"_HOSTNAME"`:
			host = p.known(v)
		}
		if p.all {
			p.attrs = append(p.attrs, slog.String(p.known(line[m.Key:m.KeyEnd]), p.known(v)))
		}
		return true
	})
	if len(p.cursor) == 0 {
		return Entry{}, nil, false
	}
	if n := len(p.text); n == 0 || p.text[n-1] != '\n' {
		p.text = append(p.text, '\n')
	}
	if pid == "1" && about != "" { // a message of systemd about a unit
		unit = about
	}
	of := len(p.attrs)
	for _, a := range [...]struct{ name, text, or string }{{"unit", user, unit}, {"identifier", identifier, command}, {"pid", pid, syslogPID}, {"host", host, ""}} {
		if a.text == "" {
			a.text = a.or
		}
		if a.text != "" {
			p.attrs = append(p.attrs, slog.String(a.name, a.text))
		}
	}
	e.Text, e.Attrs = p.text, turned(p.attrs, of)
	return e, p.cursor, true
}

// turned moves the attributes after the first n to the front.
func turned(attrs []slog.Attr, n int) []slog.Attr {
	if n > 0 {
		var own [4]slog.Attr
		k := copy(own[:], attrs[n:])
		copy(attrs[k:], attrs[:n])
		copy(attrs, own[:k])
	}
	return attrs
}

// of returns the text of a value, until the next call.
func (p *parser) of(v []byte) []byte {
	p.value = appendValue(p.value[:0], v)
	return p.value
}

// known is of as a string. Those that came before are not made again.
func (p *parser) known(v []byte) string {
	t := p.of(v)
	if s, ok := p.names[string(t)]; ok {
		return s
	}
	s := string(t)
	if len(s) <= longestKnown {
		if len(p.names) >= mostKnown || p.names == nil {
			p.names = make(map[string]string)
		}
		p.names[s] = s
	}
	return s
}

const (
	mostKnown    = 1000
	longestKnown = 200
)

// appendValue appends a value. Several texts are appended as lines.
func appendValue(dst, v []byte) []byte {
	switch v[0] {
	case '"':
		return append(dst, record.AppendString(nil, v)...)
	case 'n':
		return dst
	case '[':
	default: // journalctl writes no such values
		return append(dst, v...)
	}
	start := len(dst)
	bytewise := true
	first := true
	record.Elements(v, func(e []byte) bool {
		if n, err := strconv.ParseUint(string(e), 10, 8); err == nil && bytewise {
			dst = append(dst, byte(n))
			return true
		}
		bytewise = false
		return false
	})
	if bytewise {
		return dst
	}
	dst = dst[:start]
	record.Elements(v, func(e []byte) bool {
		if !first {
			dst = append(dst, '\n')
		}
		first = false
		if e[0] == '[' && bytes.IndexByte(e[1:], '[') >= 0 { // no bytes
			dst = append(dst, e...)
		} else {
			dst = appendValue(dst, e)
		}
		return true
	})
	return dst
}
