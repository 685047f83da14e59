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

// maxUnquoted is the maximum number of values without quotes that are reported in one file.
const maxUnquoted = 10

// noMapping is part of the parser's error about an unquoted value with a colon, and about a key
// that has both a value and fields.
const noMapping = "mapping value is not allowed in this context"

// colonIn matches a colon that ends a key in YAML.
var colonIn = lazy.Regexp(`:(\s|$)`)

// quoted adds quotes around the value at which the parser has failed. It returns the changed data
// and the fault to report. If the cause of err is not a colon in an unquoted value, it returns nil
// for both.
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
	if strings.Contains(value, "@") { // do not print the value, which may contain a password
		return better, fmt.Errorf("%s: write it in quotes", has)
	}
	return better, fmt.Errorf("%s: write it in quotes: %s", has, in)
}

// valueAt splits the line of the position pos. value is the unquoted value that begins at pos,
// front is the text before it, and rest is the text after it, which may be a comment.
func valueAt(lines [][]byte, pos token.Position) (front, value, rest string, ok bool) {
	if pos.Line < 1 || pos.Line > len(lines) {
		return "", "", "", false
	}
	line := []rune(string(lines[pos.Line-1]))
	if pos.Column < 2 || pos.Column > len(line) {
		return "", "", "", false
	}
	front, value = string(line[:pos.Column-1]), string(line[pos.Column-1:])
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

// hints contains advice for the user. The field what is a part of the parser's error.
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

// withHint adds advice for the user to err.
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

// isPartOf reports whether the line numbered line may be part of a value that begins on line
// valueLine or before. A value may extend to the next line only if that line has more indentation.
func isPartOf(data []byte, line, valueLine int) bool {
	lines := bytes.SplitAfter(data, []byte("\n"))
	return line <= valueLine || line == valueLine+1 && line <= len(lines) && indent(lines[line-1]) > indent(lines[valueLine-1])
}

// parseBefore parses the part of the file before the field that contains the faulty line. unread is
// the number of the first line after this part. If this part cannot be parsed either, root is nil.
func parseBefore(data []byte, line int) (root ast.Node, unread int) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for range 5 { // if a quote or bracket is not closed, the parser reports a later line, so cut several times
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

// cutAt returns the number of the first line of the field that contains line.
func cutAt(lines [][]byte, line int) (cut int) {
	// The section begins at the last line without indentation. All fields of the section have the
	// same indentation.
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
		if cut == first { // without its first field, the section would be empty
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
