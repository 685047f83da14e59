package top

import (
	"strings"
	"unicode/utf8"
)

// A style is the style of a text on a terminal: the parameters of an SGR escape sequence, or "" for
// plain text.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// A word is a text that is not divided between two lines.
type word struct {
	text string
	style
}

// A line is a line on the terminal.
type line []word

// flow arranges words in lines of at most width columns, with two spaces between words. The first
// line starts at the column margin, and the following lines start two columns further right.
func flow(width, margin int, words ...word) (lines []line) {
	var cur line
	col := 0
	for _, w := range words {
		if w.text == "" {
			continue
		}
		n := columns(w.text)
		if cur != nil && col+2+n > width {
			if lines, cur = append(lines, cur), nil; len(lines) == 1 {
				margin += 2
			}
		}
		if cur == nil {
			cur, col = line{{text: strings.Repeat(" ", margin)}}, margin
		} else {
			cur, col = append(cur, word{text: "  "}), col+2
		}
		w.text = cut(w.text, width-col)
		cur, col = append(cur, w), col+columns(w.text)
	}
	if cur != nil {
		lines = append(lines, cur)
	}
	return lines
}

// render returns the text of a line. If color is true, the text contains escape sequences.
func (l line) render(color bool) string {
	var sb strings.Builder
	for _, w := range l {
		if color && w.style != "" {
			sb.WriteString("\x1b[" + string(w.style) + "m" + w.text + "\x1b[0m")
		} else {
			sb.WriteString(w.text)
		}
	}
	return sb.String()
}

// cut shortens text to width columns. It removes the middle, because the beginning and the end of a
// path or an address are more important.
func cut(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	const mark = "~"
	if width <= len(mark) {
		return mark[:max(0, width)]
	}
	head, tail := text, ""
	for columns(head) > (width-len(mark)+1)/2 {
		_, n := utf8.DecodeLastRuneInString(head)
		head = head[:len(head)-n]
	}
	for rest := text[len(head):]; ; {
		_, n := utf8.DecodeLastRuneInString(rest)
		longer := text[len(text)-len(tail)-n:]
		if n == 0 || columns(head)+len(mark)+columns(longer) > width {
			return head + mark + tail
		}
		rest, tail = rest[:len(rest)-n], longer
	}
}

// columns returns the number of columns that text needs on a terminal.
func columns(text string) (n int) {
	for _, r := range text {
		n++
		if wide(r) {
			n++
		}
	}
	return n
}

// wide reports whether r needs two columns on a terminal, like East Asian characters and emoji.
func wide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3ffff)
}

// pad inserts spaces before text, so that the result is width columns wide. A number with more
// digits then does not move the text after it.
func pad(text string, width int) string {
	return strings.Repeat(" ", max(0, width-columns(text))) + text
}
