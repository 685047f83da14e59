// Package charset finds and decodes the lines of text in encodings other than UTF-8.
//
//	bytes of a file ──► LineEnd ──► one line ──► Append ──► UTF-8
//
// Lines are found before they are decoded, so positions are offsets in the encoded text.
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

// A Charset is a character encoding. It is safe for concurrent use. A nil Charset is UTF-8: its
// method Append copies text unchanged, even if the text contains invalid bytes.
type Charset struct {
	names string              // separated by spaces; the first name is the preferred one
	high  []rune              // for one byte per character: the characters of the highest bytes, up to 0xff
	multi func([]byte) []byte // for several bytes per character: decodes text without a newline
	order func([]byte) uint16 // for UTF-16: returns the first code unit
	low   int                 // for UTF-16: index of the low byte in a code unit
}

var (
	little = &Charset{names: "utf-16le", order: func(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }}
	big    = &Charset{names: "utf-16be", order: func(b []byte) uint16 { return uint16(b[1]) | uint16(b[0])<<8 }, low: 1}
)

// all contains all charsets except UTF-8, in the order of docs/CONFIG.md.
var all = []*Charset{
	{names: "utf-16", order: little.order}, // little-endian unless the text has a byte order mark, as on Windows
	little,
	big,
}

func init() {
	for _, t := range tables {
		all = append(all, &Charset{names: t.names, high: []rune(t.high)})
	}
}

// The text elsewhere ends the error about an unknown charset. It names charsets that only
// forebay-all supports.
var elsewhere = "; forebay-all also has shift_jis, euc-jp, euc-kr, gbk, gb18030 and big5"

// Add registers a charset with several bytes per character. It must be called before main starts.
// The function decode converts text without a newline to UTF-8. In this charset, a byte below 0x80
// that begins a character must be the ASCII character.
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

// Parse returns the charset with the given name, in upper or lower case.
func Parse(name string) (*Charset, error) {
	name = strings.ToLower(name)
	if name == utf8Name || name == "utf8" {
		return nil, nil
	}
	for _, c := range all {
		for synonym := range strings.FieldsSeq(c.names) {
			if synonym == name {
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

// Detect returns the charset of a text that begins with start, and the length of its byte order
// mark. Without a mark, the charset is c. If c is UTF-8, the marks of UTF-16 are ignored.
func (c *Charset) Detect(start []byte) (detected *Charset, markBytes int) {
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

// wide reports whether c is UTF-16. A code unit then has two bytes.
func (c *Charset) wide() bool { return c != nil && c.order != nil }

// Unit returns the number of bytes of a code unit: 1 or 2.
func (c *Charset) Unit() int {
	if c.wide() {
		return 2
	}
	return 1
}

// RoundDown returns the start of the code unit that contains the offset off.
func (c *Charset) RoundDown(off int64) int64 { return off - off%int64(c.Unit()) }

// Newline returns the characters '\n' and '\r' in this charset.
func (c *Charset) Newline() (lf, cr string) {
	switch {
	case !c.wide():
		return "\n", "\r"
	case c.low == 0:
		return "\n\x00", "\r\x00"
	}
	return "\x00\n", "\x00\r"
}

// exceeds reports whether line is longer than max bytes. The newline is not counted.
func (c *Charset) exceeds(line []byte, max int) bool {
	if len(line) > max && len(line)%c.Unit() == 0 {
		lf, cr := c.Newline()
		if text, ended := bytes.CutSuffix(line, []byte(lf)); ended {
			line = bytes.TrimSuffix(text, []byte(cr))
		}
	}
	return len(line) > max
}

// LineEnd returns the length of the first line in p including its newline, or 0 if p contains no
// newline. off is the offset of p in the text.
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

// LastLineEnd returns the end of the last complete line in p, or 0 if p contains no newline. off is
// the offset of p in the text.
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

// isNewline reports whether p begins with the code unit '\n'. off is the offset of p in the text.
func (c *Charset) isNewline(p []byte, off int64) bool {
	return off%2 == 0 && len(p) >= 2 && c.order(p) == '\n'
}

// Append converts text to UTF-8 and appends it to dst. text must consist of complete code units.
// Invalid bytes become U+FFFD.
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

// A Decoder decodes lines into a buffer that it reuses.
type Decoder struct{ buf []byte }

// keptBytes is the maximum size of a buffer that a Decoder keeps for the next line.
const keptBytes = 128 << 10

// Line converts a line to UTF-8. The result is valid until the next call. ok is false if the line,
// without its newline, is longer than max bytes before or after the conversion.
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

// appendMulti converts text and appends it to dst. It converts each line separately, so that an
// incomplete character at the end of a line does not include the newline.
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

// appendWide implements Append for UTF-16.
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
		dst = utf8.AppendRune(dst, r) // U+FFFD if a half of a surrogate pair is missing
	}
	if len(text) > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}
