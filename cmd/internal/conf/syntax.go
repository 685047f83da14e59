package conf

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/forebay-log/forebay/internal/lazy"
)

// maxUnquoted bounds how many values without their quotes are looked at in one go.
const maxUnquoted = 10

// noMapping is the error of the parser for a value with a colon, or with fields below it.
const noMapping = "mapping value is not allowed in this context"

// colonIn finds a colon that ends a name, to YAML.
var colonIn = lazy.Regexp(`:(\s|$)`)

// quoted returns data with quotes around the value at which the parser failed, and the error to
// report; nil if that is not a value with a colon.
func quoted(data []byte, at token.Position, err error) (better []byte, why error) {
	if !strings.Contains(err.Error(), noMapping) {
		return nil, nil
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	front, value, rest, ok := valueAt(lines, at)
	if !ok || !colonIn().MatchString(value) {
		return nil, nil
	}
	in := `"` + value + `"`
	if strings.ContainsAny(value, `"\`) {
		in = "'" + strings.ReplaceAll(value, "'", "''") + "'"
	}
	lines[at.Line-1] = []byte(front + in + rest)
	better = bytes.Join(lines, nil)
	has := "it contains a colon before a space"
	if strings.HasSuffix(value, ":") {
		has = "it ends in a colon"
	}
	if strings.Contains(value, "@") { // a password may be there
		return better, fmt.Errorf("%s: write it in quotes", has)
	}
	return better, fmt.Errorf("%s: write it in quotes: %s", has, in)
}

// valueAt cuts a line at a value that begins there without a quote or another mark, and ends
// before a comment.
func valueAt(lines [][]byte, at token.Position) (front, value, rest string, ok bool) {
	if at.Line < 1 || at.Line > len(lines) {
		return "", "", "", false
	}
	line := []rune(string(lines[at.Line-1]))
	if at.Column < 2 || at.Column > len(line) {
		return "", "", "", false
	}
	front, value = string(line[:at.Column-1]), string(line[at.Column-1:])
	if i := strings.Index(value, " #"); i >= 0 {
		value, rest = value[:i], value[i:]
	}
	trimmed := strings.TrimRight(value, " \t\r\n")
	rest = value[len(trimmed):] + rest
	if trimmed == "" || strings.ContainsAny(trimmed[:1], "\"'[]{}|>&*!?@%`#,") || !strings.HasSuffix(strings.TrimRight(front, " "), ":") {
		return "", "", "", false
	}
	return front, trimmed, rest, true
}

// hints are what helps against faults that the parser finds.
var hints = []struct{ what, hint string }{
	{"map key-value is pre-defined", "text follows a quoted value; include it in the quotes"},
	{"value is not allowed in this context", "indent it like the lines around it"},
	{"non-map value is specified", "write KEY: VALUE, with a space after the colon"},
	{"unexpected key name", "write KEY: VALUE, with a space after the colon, and indent it like the lines around it"},
	{"unknown escape character", `in single quotes, a \ is literal`},
	{"is a reserved character", "write the value in quotes"},
	{"unexpected directive value", "write the value in quotes"},
	{"could not find flow map content", "write the value in quotes"},
	{"invalid header option", "write the value in quotes"},
	{"block sequence entries are not allowed", "a list begins on a new line"},
}

// withHint returns err with what helps against it.
func withHint(data []byte, at token.Position, err error) error {
	text := err.Error()
	if strings.Contains(text, noMapping) {
		_, value, _, ok := valueAt(bytes.SplitAfter(data, []byte("\n")), at)
		if ok && !colonIn().MatchString(value) {
			return errors.New(text + "; a key has both a value and fields below it: remove the value or the fields, or indent the line like the lines around it")
		}
		return errors.New(text + "; write a text with a colon at its end, or before a space, in quotes")
	}
	for _, h := range hints {
		if strings.Contains(text, h.what) {
			return errors.New(text + "; " + h.hint)
		}
	}
	return err
}

// isPartOf reports whether line is of, or is below it and indented more.
func isPartOf(data []byte, line, of int) bool {
	lines := bytes.SplitAfter(data, []byte("\n"))
	return line <= of || line == of+1 && line <= len(lines) && indent(lines[line-1]) > indent(lines[of-1])
}

// before returns the part of the file before the field whose section has the line, and the first
// line that is left out. It returns nil if that part cannot be parsed.
func before(data []byte, line int) (root ast.Node, unread int) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for range 5 { // an unclosed quote or bracket is reported far below
		if line < 1 || line > len(lines) {
			return nil, 0
		}
		cut := cutAt(lines, line)
		root, at, err := parse(bytes.Join(lines[:cut-1], nil))
		if err == nil {
			return root, cut
		}
		line = min(at.Line, cut-1)
	}
	return nil, 0
}

// cutAt returns the line in which the field begins that a line is part of.
func cutAt(lines [][]byte, line int) (cut int) {
	// The section begins at the last line that is not indented. Its fields are indented as
	// the first one.
	section := line
	for section > 1 && (isBlank(lines[section-1]) || indent(lines[section-1]) > 0) {
		section--
	}
	cut = section
	if section < line {
		first := section + 1
		for first < line && isBlank(lines[first-1]) {
			first++
		}
		for at := line; at > section; at-- {
			if !isBlank(lines[at-1]) && indent(lines[at-1]) <= indent(lines[first-1]) {
				cut = at
				break
			}
		}
		if cut == first { // nothing of the section is left
			cut = section
		}
	}
	return cut
}

func isBlank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }
