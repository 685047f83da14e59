package conf

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{"HOST": "web1", "EMPTY": ""}[name]
	return v, ok
}

// dump parses data and returns all values with their paths, followed by the faults.
func dump(data string) string {
	f, root := Parse([]byte(data), env)
	var sb strings.Builder
	var walk func(n Node, depth int)
	walk = func(n Node, depth int) {
		if depth > 6 { // stop, because an alias may refer to a value that contains the alias
			return
		}
		if n.IsMap() {
			n.Fields(nil, func(_ string, v Node) { walk(v, depth+1) })
			return
		}
		if items := n.Items(); len(items) > 1 {
			for _, item := range items {
				walk(item, depth+1)
			}
			return
		}
		for _, item := range n.Items() {
			if text, ok := item.Text(); ok {
				fmt.Fprintf(&sb, "%s=%q\n", item.path, text)
			}
		}
	}
	root.Fields(nil, func(_ string, v Node) { walk(v, 0) })
	for _, fault := range f.Faults() {
		sb.WriteString(fault.Error() + "\n")
	}
	return sb.String()
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"# nothing\n", ""},
		{"\ufeffa: 1\n", `a="1"|`},
		{"\ufeffa: *none\n", "1:4: a: there is no anchor &none|"},
		{"a: 1\nb: {c: [x, y], d: true}\n", `a="1"|b.c[0]="x"|b.c[1]="y"|b.d="true"|`},
		{"a: &x 7d\nb: *x\n", `a="7d"|b="7d"|`},
		{"a: 0644\nb: 1e3\nc: .5\nd: ~\n", `a="0644"|b="1e3"|c=".5"|`},
		{"a: |\n  one\n  two\n", `a="one\ntwo\n"|`},
		{"a: ${HOST}.x\nb: \"$${HOST} \\\\d+$\"\nc: ${NONE:-dflt}\nd: ${EMPTY:-e}\ne: ${EMPTY}\n", `a="web1.x"|b="${HOST} \\d+$"|c="dflt"|d="e"|e=""|`},
		{"a: ${NONE}\n", "1:4: a: the variable NONE is not set; set it, or write ${NONE:-TEXT} for a default|"},
		{"a: ${HOST\n", "1:4: a: ${ is not closed: write ${NAME}, or $${ for a literal ${|"},
		{"a: ${}\n", "1:4: a: ${} has no name: write ${NAME}, or $${ for a literal ${|"},
		{"a: *none\n", "1:4: a: there is no anchor &none|"},
		{"a: 1\nb: 2\na: 3\n", `a="1"|b="2"|3:1: a is given twice, first in line 1|`},
		{"a: &l {b: 1}\nc:\n  <<: *l\n", `a.b="1"|3:3: c: << is not supported: an alias replaces a whole value|`},
		{"a: 1\n---\nb: 2\n", "a=\"1\"|3:1: a second document begins here: use one|"},
		{"- a\n- b\n", "1:1: it has no fields: write each NAME: VALUE on a separate line|"},
		{"a: [1\n", "1:4: sequence end token ']' not found|"},
		{"a: b: c\n", `a="b: c"|1:4: it contains a colon before a space: write it in quotes: "b: c"|`},
	} {
		if got := strings.ReplaceAll(dump(tt.text), "\n", "|"); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

func TestUnknownFieldsGetSuggestion(t *testing.T) {
	f, root := Parse([]byte("lisen: 1\nwholly-other: 2\ntype: 3\ntype: 4\n"), env)
	var got []string
	root.Fields([]string{"listen", "type"}, func(name string, _ Node) { got = append(got, name) })
	for _, fault := range f.Faults() {
		got = append(got, fault.Error())
	}
	want := "type|1:1: lisen is unknown; did you mean listen?|2:1: wholly-other is unknown; use listen or type|4:1: type is given twice, first in line 3"
	if text := strings.Join(got, "|"); text != want {
		t.Error(text)
	}
}

// Text reports a fault for a list, a mapping or null.
func TestTextRejectsListsAndMappings(t *testing.T) {
	for _, text := range []string{"a: [1, 2]", "a: {b: 1}", "a:\n  b: 1", "a:", "a: null", "a: {b:1, c:2}", `a: {"b":1}`, "a: {b :1}", "a: {b:[1]}"} {
		f, root := Parse([]byte(text), env)
		root.Fields(nil, func(_ string, v Node) {
			if got, ok := v.Text(); ok {
				t.Errorf("%q is %q", text, got)
			}
		})
		if len(f.Faults()) != 1 {
			t.Errorf("%q: %v", text, f.Faults())
		}
	}
}

// A colon without a space after it is part of a text, also within brackets.
func TestColonWithoutSpaceIsPartOfText(t *testing.T) {
	for text, want := range map[string]string{
		"a: [b1:9092, b2:9093]": "b1:9092 b2:9093", "a: [ü:1 , x]": "ü:1 x", "a: [h.x-y:80:90]": "h.x-y:80:90",
		"a: [loki://h:3100]": "loki://h:3100", "a: [x:y]": "x:y", "a:\n- b1:9092": "b1:9092", "a: b1:9092": "b1:9092", "a: [x:1.5]": "x:1.5",
	} {
		f, root := Parse([]byte(text), env)
		root.Fields(nil, func(_ string, v Node) {
			var got []string
			for _, item := range v.Items() {
				one, _ := item.Text()
				got = append(got, one)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%q is %q", text, got)
			}
		})
		if len(f.Faults()) > 0 {
			t.Errorf("%q: %v", text, f.Faults())
		}
	}
}

// A file that is too long or too deeply nested is a fault, and does not crash the program.
func TestLongAndDeepFilesAreFaults(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("#", MaxBytes+1),
		"a: " + strings.Repeat("[", 500) + strings.Repeat("]", 500),
		strings.Repeat("[", 100_000),
		"a: " + strings.Repeat("{b: ", 500) + strings.Repeat("}", 500),
		"a: &a [*a]\n",
		"a: &a *a\n",
	} {
		f, root := Parse([]byte(text), env)
		root.Fields(nil, func(_ string, v Node) {
			for _, item := range v.Items() {
				item.Text()
			}
		})
		if len(f.Faults()) == 0 {
			t.Errorf("%.20q: no fault", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../program/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, text := range []string{"a: &x [1, *x]\n", "? a\n: b\n", "!!str a: b", "a: 'x\n", "%YAML 1.2\n---\na: b", "\t- a", "a: ${HOST:-${X}}", "<<: {a: 1}", "a: |2-\n  x", "- - - a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "[")+strings.Count(text, "{")+strings.Count(text, "- ")+strings.Count(text, "? ") < 1000 {
			dump(text)
		}
	})
}

// If a file contains a tab, the error mentions the tab, because the user cannot see it.
func TestTabIsNamedInError(t *testing.T) {
	f, _ := Parse([]byte("a:\n\tb: c\n"), env)
	if faults := f.Faults(); len(faults) != 1 || faults[0].Error() != "2:1: there is a tab: YAML is indented with spaces" {
		t.Errorf("%v", faults)
	}
}
