package journal

import (
	"bytes"
	"log/slog"
	"strconv"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// A parser parses the output of journalctl -o json. It reuses its memory.
//
// The value of a field is a string or, if it is not printable UTF-8, a list of its bytes as
// numbers. If a field occurs several times, its value is a list of values. journalctl writes null
// for a long value unless the option --all is given, and the Journal always gives it.
type parser struct {
	all bool // value of Options.AllFields

	text   []byte
	cursor []byte
	value  []byte
	attrs  []slog.Attr
	names  map[string]string // cache of the method intern
}

// parse returns the entry in a line, and the cursor of the entry. Both are valid until the next
// call. If the line is not an entry, ok is false.
func (p *parser) parse(line []byte) (e Entry, cursor []byte, ok bool) {
	line = bytes.TrimSpace(line)
	if !record.IsObject(line) {
		return e, nil, false
	}
	p.text, p.cursor = p.text[:0], p.cursor[:0]
	clear(p.attrs)
	p.attrs = p.attrs[:0]
	var unit, user, aboutUnit, identifier, command, pid, syslogPID, host string
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
			if us, err := strconv.ParseInt(string(p.textOf(v)), 10, 64); err == nil {
				e.Time = time.UnixMicro(us)
			}
			return true
		case `"PRIORITY"`:
			// If the field has several values, use the first one, like sd_journal_get_data.
			if t, _, _ := bytes.Cut(p.textOf(v), []byte{'\n'}); len(t) == 1 && '0' <= t[0] && t[0] <= '7' {
				e.Level, e.HasLevel = record.SyslogLevel(int(t[0]-'0')), true
			}
			return true
		case `"__MONOTONIC_TIMESTAMP"`, `"__SEQNUM"`, `"__SEQNUM_ID"`:
			return true
		case `"_SYSTEMD_UNIT"`:
			unit = p.intern(v)
		case `"_SYSTEMD_USER_UNIT"`:
			user = p.intern(v)
		case `"UNIT"`:
			aboutUnit = p.intern(v)
		case `"SYSLOG_IDENTIFIER"`:
			identifier = p.intern(v)
		case `"_COMM"`:
			command = p.intern(v)
		case `"_PID"`:
			pid = p.intern(v)
		case `"SYSLOG_PID"`:
			syslogPID = p.intern(v)
		case `"_HOSTNAME"`:
			host = p.intern(v)
		}
		if p.all {
			p.attrs = append(p.attrs, slog.String(p.intern(line[m.Key:m.KeyEnd]), p.intern(v)))
		}
		return true
	})
	if len(p.cursor) == 0 {
		return Entry{}, nil, false
	}
	if n := len(p.text); n == 0 || p.text[n-1] != '\n' {
		p.text = append(p.text, '\n')
	}
	if pid == "1" && aboutUnit != "" { // a message of systemd that is about a unit
		unit = aboutUnit
	}
	others := len(p.attrs)
	for _, a := range [...]struct{ name, text, or string }{{"unit", user, unit}, {"identifier", identifier, command}, {"pid", pid, syslogPID}, {"host", host, ""}} {
		if a.text == "" {
			a.text = a.or
		}
		if a.text != "" {
			p.attrs = append(p.attrs, slog.String(a.name, a.text))
		}
	}
	e.Text, e.Attrs = p.text, moveToEnd(p.attrs, others)
	return e, p.cursor, true
}

// moveToEnd moves the first n attributes to the end. The number of the remaining attributes must be
// at most 4.
func moveToEnd(attrs []slog.Attr, n int) []slog.Attr {
	if n > 0 {
		var others [4]slog.Attr
		k := copy(others[:], attrs[n:])
		copy(attrs[k:], attrs[:n])
		copy(attrs, others[:k])
	}
	return attrs
}

// textOf returns the text of a JSON value. The text is valid until the next call.
func (p *parser) textOf(v []byte) []byte {
	p.value = appendValue(p.value[:0], v)
	return p.value
}

// intern returns the text of a JSON value as a string. Repeated texts are cached and not allocated
// again.
func (p *parser) intern(v []byte) string {
	t := p.textOf(v)
	if s, ok := p.names[string(t)]; ok {
		return s
	}
	s := string(t)
	if len(s) <= maxInternedBytes {
		if len(p.names) >= maxInterned || p.names == nil {
			p.names = make(map[string]string)
		}
		p.names[s] = s
	}
	return s
}

const (
	maxInterned      = 1000 // maximum number of texts in the cache
	maxInternedBytes = 200  // maximum length of a text in the cache
)

// appendValue appends the text of the JSON value v. If v is a list of several values, they are
// separated by newlines.
func appendValue(dst, v []byte) []byte {
	switch v[0] {
	case '"':
		return append(dst, record.AppendString(nil, v)...)
	case 'n':
		return dst
	case '[':
	default: // journalctl does not write such a value
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
		if e[0] == '[' && bytes.IndexByte(e[1:], '[') >= 0 { // a nested list: appendValue must not read it as several values again
			dst = append(dst, e...)
		} else {
			dst = appendValue(dst, e)
		}
		return true
	})
	return dst
}
