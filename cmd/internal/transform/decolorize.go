package transform

import (
	"bytes"

	"github.com/forebay-log/forebay/internal/record"
)

const escape = 0x1b

// decolorize removes the escape sequences of ECMA-48. In a JSON line it removes them only from the
// message.
func (c *Chain) decolorize(ev *record.Event) {
	if ev.Format != record.JSON {
		if bytes.IndexByte(ev.Line, escape) >= 0 {
			c.setLine(ev, appendPlain(c.bufs[c.next][:0], ev.Line))
			if ev.Format == record.Text { // without the sequences, parsing may find a level or a time
				c.readText(ev, ev.Line)
				c.setBaseline(ev)
			}
		}
		return
	}
	start := len(c.parsed)
	if text, ok := messageText(ev, c.parsed[start:]); ok && bytes.IndexByte(text, escape) >= 0 {
		c.set(ev, &fieldsOf([]Setting{{messageName(ev), string(appendPlain(nil, text))}})[0])
	}
}

// appendPlain appends text without its escape sequences.
func appendPlain(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, escape)
		if i < 0 {
			return append(dst, text...)
		}
		dst, text = append(dst, text[:i]...), text[i+sequence(text[i:]):]
	}
}

// sequence returns the length of the escape sequence at the beginning of b.
func sequence(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch c := b[1]; c {
	case '[': // CSI: parameters, intermediate bytes and a final byte
		for i := 2; i < len(b); i++ {
			if c := b[i]; c < 0x20 || c > 0x3f {
				if c >= 0x40 && c < 0x7f {
					i++
				}
				return i
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_': // a control string ends at BEL or ESC \
		for i := 2; i < len(b); i++ {
			switch {
			case b[i] == 7:
				return i + 1
			case b[i] == escape && i+1 < len(b) && b[i+1] == '\\':
				return i + 2
			}
		}
		return 2
	}
	for i := 1; i < len(b); i++ { // other sequences: intermediate bytes and a final byte
		if c := b[i]; c < 0x20 || c > 0x2f {
			if c < 0x7f && c >= 0x30 {
				i++
			}
			return i
		}
	}
	return len(b)
}
