package conf

import (
	"strings"
	"testing"
)

// If a value needs quotes but has none, this is reported, and the rest of the file is read.
func TestMissingQuotesAreReported(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"o:\n  to: stdout:\n  n: 1\n", `o.to="stdout:"|o.n="1"|2:7: it ends in a colon: write it in quotes: "stdout:"|`},
		{"a: x: y\nb: z:   # why\nc: 1\n", `a="x: y"|b="z:"|c="1"|1:4: it contains a colon before a space: write it in quotes: "x: y"|2:4: it ends in a colon: write it in quotes: "z:"|`},
		{"a: C:\\d: e\n", `a="C:\\d: e"|1:4: it contains a colon before a space: write it in quotes: 'C:\d: e'|`},
		{"ä: ö: ü\n", `ä="ö: ü"|1:4: it contains a colon before a space: write it in quotes: "ö: ü"|`},
		{"a: loki://u:secret@h: x\n", `a="loki://u:secret@h: x"|1:4: it contains a colon before a space: write it in quotes|`},
		{"a:\n  - stdout:\n", `2:5: a[0]: it must be one value, not a list or fields; write a text that ends in a colon in quotes: "stdout:"|`},
		{"a: *.log\n", "1:4: a: there is no anchor &.log; write a text that begins with * in quotes|"},
	} {
		if got := strings.ReplaceAll(dump(tt.text), "\n", "|"); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

// If a file contains a syntax error, the fields before the error are read.
func TestPartBeforeSyntaxErrorIsRead(t *testing.T) {
	for _, tt := range []struct {
		text   string
		want   string
		unread int
	}{
		{"a: 1\nb:\n  c: 2\n  d:\n    e: 3\n    f\n  g: 4\n", `a="1"|b.c="2"|6:5: non-map value is specified; write KEY: VALUE, with a space after the colon|`, 4},
		{"a: 1\nb:\n  # c\n\n  c: [1\n  d: 2\n", `a="1"|6:3: `, 2},
		{"a: 1\nb: 'x\nc: 3\n", `a="1"|2:4: could not find end character of single-quoted text|`, 2},
		{"a: \"x\nb: 'y\nc: 3\n", `1:4: could not find end character of double-quoted text|`, 0},
		{"a: 1\nb:\n- c\n- d\n  e: 2\n", `a="1"|b[0]="c"|`, 4},
		{"a: x\n  b: c\n", "1:4: mapping value is not allowed in this context; a key has both a value and fields below it: remove the value or the fields, or indent the line like the lines around it|", 0},
		{"a: b:\n  c: d\n", "1:4: mapping value is not allowed in this context; write a text with a colon at its end, or before a space, in quotes|", 0},
		{"a: 1\nb: \"\\d\"\n", `a="1"|2:6: found unknown escape character 'd'; in single quotes, a \ is literal|`, 2},
	} {
		got := strings.ReplaceAll(dump(tt.text), "\n", "|")
		f, _ := Parse([]byte(tt.text), env)
		if !strings.HasPrefix(got, tt.want) || f.Unread() != tt.unread {
			t.Errorf("%q, from %d on:\n got %s\nwant %s", tt.text, f.Unread(), got, tt.want)
		}
	}
}
