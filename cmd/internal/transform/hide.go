package transform

import (
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/redact"
)

// redactEvent redacts the line and the attributes of the record.
func (c *Chain) redactEvent(ev *record.Event, r *redact.Rules) {
	switch ev.Format {
	case record.JSON:
		if line, changed := c.walker.AppendJSON(r, c.bufs[c.next][:0], ev.Line); changed {
			c.setLine(ev, line)
		}
	case record.Logfmt:
		c.redactPairs(ev, r)
	default:
		if s, changed := c.walker.Text(r, asString(ev.Line)); changed {
			c.setLine(ev, append(c.bufs[c.next][:0], s...))
		}
	}
	if len(ev.More) > 0 {
		c.copyMore(ev)
		_, c.more = c.walker.Record(r, nil, "", c.more)
		ev.More = c.more
	}
}

// redactPairs redacts the pairs of a logfmt line.
func (c *Chain) redactPairs(ev *record.Event, r *redact.Rules) {
	line := ev.Line
	record.Pairs(line, func(m record.Member) bool {
		start := len(c.text)
		name := asString(line[m.Key:m.KeyEnd])
		if m.Value > m.KeyEnd {
			if s, changed := c.walker.Pair(r, name, asString(record.LogfmtText(line[m.Value:m.End]))); changed {
				c.text = jsontext.AppendText(c.text, s)
				c.edit(m.Value, m.End, c.text[start:])
			}
		}
		start = len(c.text)
		if s, changed := c.walker.Text(r, name); changed {
			c.text = jsontext.AppendName(c.text, s)
			c.edit(m.Key, m.KeyEnd, c.text[start:])
		}
		return true
	})
	c.write(ev)
	// A pattern may match a name together with its value, or several pairs, so the whole line is
	// also redacted.
	if s, changed := c.walker.Match(r, asString(ev.Line)); changed {
		c.setLine(ev, append(c.bufs[c.next][:0], s...))
		n := 0
		if !record.Pairs(ev.Line, func(m record.Member) bool { n += m.Value - m.KeyEnd; return true }) || n == 0 {
			ev.Format = record.Text
		}
	}
}
