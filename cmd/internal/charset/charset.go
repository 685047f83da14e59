// Package charset finds and decodes the lines of a text that is not UTF-8.
//
//	bytes of a file ──► LineEnd ──► one line ──► Append ──► UTF-8
//
// Lines are found before they are decoded, so that positions stay offsets in the undecoded text.
//
//	c, err := charset.Parse("windows-1252")
//	end := c.LineEnd(text, 0)
//	line := c.Append(nil, text[:end])
package charset

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Charset is a way to write text. It is safe for concurrent use. The nil Charset is UTF-8: its
// bytes are not changed, even if they are not valid.
type Charset struct {
	names string              // separated by spaces; the first one is preferred
	high  []rune              // one byte per character: the last characters, up to byte 0xff
	multi func([]byte) []byte // decodes bytes without a newline; ASCII bytes are ASCII at the start of a character
	order func([]byte) uint16 // UTF-16
	low   int                 // UTF-16: index of the low byte in a code unit
}

var (
	little = &Charset{names: "utf-16le", order: func(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }}
	big    = &Charset{names: "utf-16be", order: func(b []byte) uint16 { return uint16(b[1]) | uint16(b[0])<<8 }, low: 1}
)

// all has the charsets except UTF-8, in the order of the documentation.
var all = []*Charset{
	{names: "utf-16", order: little.order}, // little-endian without a byte order mark, as on Windows
	little,
	big,
}

func init() {
	for _, t := range tables {
		all = append(all, &Charset{names: t.names, high: []rune(t.high)})
	}
}

// elsewhere names the charsets that only forebay-all has.
var elsewhere = "; forebay-all also has shift_jis, euc-jp, euc-kr, gbk, gb18030 and big5"

// Add adds a charset in which a character may have several bytes, before main begins. decode
// converts text without a newline to UTF-8.
func Add(names string, decode func(text []byte) []byte) {
	all = append(all, &Charset{names: names, multi: decode})
	elsewhere = ""
}

const utf8Name = "utf-8"

// Names returns the preferred names of all charsets.
func Names() []string {
	names := []string{utf8Name}
	for _, c := range all {
		names = append(names, c.String())
	}
	return names
}

// Parse returns the charset with a name, in upper or lower case.
func Parse(name string) (*Charset, error) {
	name = strings.ToLower(name)
	if name == utf8Name || name == "utf8" {
		return nil, nil
	}
	for _, c := range all {
		for is := range strings.FieldsSeq(c.names) {
			if is == name {
				return c, nil
			}
		}
	}
	return nil, fmt.Errorf("%q is not a known charset: use %s%s", name, strings.Join(Names(), ", "), elsewhere)
}

// String returns the preferred name.
func (c *Charset) String() string {
	if c == nil {
		return utf8Name
	}
	name, _, _ := strings.Cut(c.names, " ")
	return name
}

// MarkBytes is the maximum length of a byte order mark.
const MarkBytes = 3

// Detect returns the charset of a text that begins with start, and the length of the byte order
// mark there. A byte order mark overrides c, unless c is UTF-8, whose other bytes are not changed.
func (c *Charset) Detect(start []byte) (is *Charset, mark int) {
	switch {
	case bytes.HasPrefix(start, []byte("\xef\xbb\xbf")):
		return nil, 3
	case c == nil:
	case bytes.HasPrefix(start, []byte("\xff\xfe")):
		return little, 2
	case bytes.HasPrefix(start, []byte("\xfe\xff")):
		return big, 2
	}
	return c, 0
}

// wide reports whether the code unit has two bytes.
func (c *Charset) wide() bool { return c != nil && c.order != nil }

// Unit returns the number of bytes of a code unit, 1 or 2.
func (c *Charset) Unit() int {
	if c.wide() {
		return 2
	}
	return 1
}

// Whole returns off, rounded down to the beginning of a code unit.
func (c *Charset) Whole(off int64) int64 { return off - off%int64(c.Unit()) }

// Newline returns the encoded forms of '\n' and '\r'.
func (c *Charset) Newline() (lf, cr string) {
	switch {
	case !c.wide():
		return "\n", "\r"
	case c.low == 0:
		return "\n\x00", "\r\x00"
	}
	return "\x00\n", "\x00\r"
}

// exceeds reports whether a line is longer than max bytes, not counting the newline at its end.
func (c *Charset) exceeds(line []byte, max int) bool {
	if len(line) > max && len(line)%c.Unit() == 0 {
		lf, cr := c.Newline()
		if text, ended := bytes.CutSuffix(line, []byte(lf)); ended {
			line = bytes.TrimSuffix(text, []byte(cr))
		}
	}
	return len(line) > max
}

// LineEnd returns the length of the first line of p, with its newline; 0: p has no complete line.
// off is the position of p in the text.
func (c *Charset) LineEnd(p []byte, off int64) int {
	if !c.wide() {
		return bytes.IndexByte(p, '\n') + 1
	}
	for at := 0; ; at++ {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i
		if begin := at - c.low; begin >= 0 && c.isNewline(p[begin:], off+int64(begin)) {
			return begin + 2
		}
	}
}

// LastLineEnd returns the end of the last complete line of p; 0: p has none. off is the position
// of p in the text.
func (c *Charset) LastLineEnd(p []byte, off int64) int {
	if !c.wide() {
		return bytes.LastIndexByte(p, '\n') + 1
	}
	for begin := len(p) - 2; begin >= 0; begin-- {
		if c.isNewline(p[begin:], off+int64(begin)) {
			return begin + 2
		}
	}
	return 0
}

// isNewline reports whether p, at position off of the text, begins with a code unit '\n'.
func (c *Charset) isNewline(p []byte, off int64) bool {
	return off%2 == 0 && len(p) >= 2 && c.order(p) == '\n'
}

// Append appends a text, which consists of complete code units, as UTF-8. Invalid bytes become
// U+FFFD.
func (c *Charset) Append(dst, text []byte) []byte {
	switch {
	case c == nil:
		return append(dst, text...)
	case c.order != nil:
		return c.appendWide(dst, text)
	case c.multi != nil:
		return c.appendMulti(dst, text)
	}
	for _, b := range text {
		if b < utf8.RuneSelf {
			dst = append(dst, b)
		} else {
			r := rune(b)
			if i := int(b) - (256 - len(c.high)); i >= 0 {
				r = c.high[i]
			}
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// A Decoder decodes lines. It reuses its memory.
type Decoder struct{ buf []byte }

const keptBytes = 128 << 10

// Line returns a line in UTF-8, which is valid until the next call. ok reports whether the line has at
// most max bytes, both in c and in UTF-8, not counting the newline at its end.
func (d *Decoder) Line(c *Charset, line []byte, max int) (text []byte, ok bool) {
	if c.exceeds(line, max) {
		return nil, false
	}
	if c == nil {
		return line, true
	}
	if cap(d.buf) > keptBytes {
		d.buf = nil
	}
	d.buf = c.Append(d.buf[:0], line)
	return d.buf, !(*Charset)(nil).exceeds(d.buf, max)
}

// appendMulti decodes each line separately, because an incomplete character at the end of a line
// must not consume its newline.
func (c *Charset) appendMulti(dst, text []byte) []byte {
	for line := range bytes.Lines(text) {
		ascii := 0
		for ascii < len(line) && line[ascii] < utf8.RuneSelf {
			ascii++
		}
		dst, line = append(dst, line[:ascii]...), line[ascii:]
		body := bytes.TrimSuffix(line, []byte("\n"))
		if len(body) > 0 {
			dst = append(dst, c.multi(body)...)
		}
		dst = append(dst, line[len(body):]...)
	}
	return dst
}

func (c *Charset) appendWide(dst, text []byte) []byte {
	for len(text) >= 2 {
		r := rune(c.order(text))
		text = text[2:]
		switch {
		case r < utf8.RuneSelf:
			dst = append(dst, byte(r))
			continue
		case utf16.IsSurrogate(r) && len(text) >= 2:
			if pair := utf16.DecodeRune(r, rune(c.order(text))); pair != utf8.RuneError {
				r, text = pair, text[2:]
			}
		}
		dst = utf8.AppendRune(dst, r) // U+FFFD for half a pair
	}
	if len(text) > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}
