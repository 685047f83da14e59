package transform

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
)

// A tree is a JSON value. It has a simple implementation of the rules, whose results are compared
// with the results of a Chain.
type tree struct {
	raw     string // text of the value if it is not an object
	object  bool
	keys    []string // keys as written in the text, with their quotes
	members []*tree
}

// read decodes a JSON value.
func read(t *testing.T, raw []byte) *tree {
	raw = bytes.TrimSpace(raw)
	if raw[0] != '{' {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		return &tree{raw: b.String()}
	}
	o := &tree{object: true}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.Token()
	for dec.More() {
		from := dec.InputOffset()
		if _, err := dec.Token(); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		key := strings.TrimLeft(string(raw[from:dec.InputOffset()]), ", \t\r\n")
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		o.keys, o.members = append(o.keys, key), append(o.members, read(t, v))
	}
	return o
}

// String returns o as JSON without spaces.
func (o *tree) String() string {
	if !o.object {
		return o.raw
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(k + ":" + o.members[i].String())
	}
	b.WriteByte('}')
	return b.String()
}

// keyText returns the name in a quoted key.
func keyText(key string) (s string) {
	json.Unmarshal([]byte(key), &s)
	if !strings.Contains(key, `\`) {
		s = key[1 : len(key)-1] // keep invalid UTF-8, which json.Unmarshal replaces
	}
	return s
}

// quoteKey returns s as a JSON string.
func quoteKey(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return strings.TrimSpace(b.String())
}

// A found is a field that the method find has returned: the member in.members[at].
type found struct {
	in *tree
	at int
}

// find returns the fields with the given name.
func (o *tree) find(name string) (fs []found) {
	for i, k := range o.keys {
		if keyText(k) == name {
			fs = append(fs, found{o, i})
		} else if rest, ok := strings.CutPrefix(name, keyText(k)+"."); ok && o.members[i].object {
			fs = append(fs, o.members[i].find(rest)...)
		}
	}
	return fs
}

// place returns the object to which a new field is added, and the name of the field in the object.
func (o *tree) place(name string) (*tree, string) {
	for i, k := range o.keys {
		if rest, ok := strings.CutPrefix(name, keyText(k)+"."); ok && o.members[i].object {
			return o.members[i].place(rest)
		}
	}
	return o, name
}

// insert adds a member to o.
func (o *tree) insert(name string, v *tree) {
	o.keys, o.members = append(o.keys, quoteKey(name)), append(o.members, v)
}

// delete removes o.members[at].
func (o *tree) delete(at int) {
	o.keys, o.members = slices.Delete(o.keys, at, at+1), slices.Delete(o.members, at, at+1)
}

func (o *tree) add(name, value string) {
	if len(o.find(name)) == 0 {
		in, name := o.place(name)
		in.insert(name, &tree{raw: quoteKey(value)})
	}
}

func (o *tree) set(name, value string) {
	for _, f := range o.find(name) {
		f.in.members[f.at] = &tree{raw: quoteKey(value)}
	}
	o.add(name, value)
}

func (o *tree) remove(name string) {
	for _, f := range slices.Backward(o.find(name)) {
		f.in.delete(f.at)
	}
}

func (o *tree) rename(name, to string) {
	if strings.HasPrefix(name, to+".") {
		o.rename(name, "\x00")
		name = "\x00"
	}
	if len(o.find(name)) == 0 {
		return
	}
	o.remove(to)
	fs := o.find(name)
	in, rest := o.place(to)
	var moved []*tree
	for _, f := range fs {
		v, key := f.in.members[f.at], keyText(f.in.keys[f.at])
		switch {
		case in == f.in:
			f.in.keys[f.at] = quoteKey(rest)
		case v.holds(in):
			f.in.keys[f.at] = quoteKey(to[len(name)-len(key):])
		default:
			moved = append(moved, v)
		}
	}
	for _, f := range slices.Backward(fs) {
		if slices.Contains(moved, f.in.members[f.at]) {
			f.in.delete(f.at)
		}
	}
	for _, v := range moved {
		in.insert(rest, v)
	}
}

// holds reports whether o and other are the same object, or o contains other.
func (o *tree) holds(other *tree) bool {
	return o == other || slices.ContainsFunc(o.members, func(m *tree) bool { return m.holds(other) })
}

// fuzzed contains the seed lines of the fuzz tests.
var fuzzed = []string{
	`{"a":1,"a.b":2,"a":{"b":{"c":1},"b.c":2,"a":"x"},"b":[{"a":1}],"":{"":1}}`, `{ "a" : { } , "b" : null }`, `{}`, `{"\u0061":"\u0031","a":-1.50e+7}`,
	`{"password":"x","a":{"Password":[1,2]},"msg":"{\"password\":1}"}`, `{"a":"` + "\xff" + `"}`, "level=info a=1 a.b=\"x y\"  b=", "a b=1", "text", `{"a":{"b":{"a":{"b":1}}},"b":{"a":{}}}`,
}

// A Chain changes a line in the same way as simple functions: tree for JSON, and doPairs for
// logfmt. Text, the end of the line and the memory of the caller do not change.
func FuzzFields(f *testing.F) {
	for i, line := range fuzzed {
		f.Add(uint8(i), []byte(line), "a.b", "x\"y")
		f.Add(uint8(i+1), []byte(line), "a", "b.c")
		f.Add(uint8(i+2), []byte(line), "a.b", "a")
		f.Add(uint8(i+3), []byte(line), "a", "a.b")
		f.Add(uint8(i), []byte(line), "a.c", "2")
	}
	f.Fuzz(func(t *testing.T, op uint8, line []byte, name, value string) {
		if name == "" || value == "" || name == value || !utf8.ValidString(name) || !utf8.ValidString(value) || strings.ContainsAny(name+value, "\u2028\u2029\ufffd\b\f\u007f") {
			return // JSON encoders escape these characters in different ways
		}
		ev := parse(record.Auto, string(line))
		var want *tree
		if ev.Format == record.JSON {
			want = read(t, ev.Line)
		}
		var r Rule
		do := func(*tree) {}
		switch op % 4 {
		case 0:
			r.Add, do = []Setting{{name, value}}, func(o *tree) { o.add(name, value) }
		case 1:
			r.Set, do = []Setting{{name, value}}, func(o *tree) { o.set(name, value) }
		case 2:
			r.Remove, do = []string{name}, func(o *tree) { o.remove(name) }
		case 3:
			r.Rename, do = []Pair{{name, value}}, func(o *tree) { o.rename(name, value) }
		}
		before := *ev
		given := string(line)
		where(name, value, "!*x").Matches(ev)
		c := chain(t, r)
		c.Apply(ev)
		if string(before.Raw) != given {
			t.Fatalf("the memory of the caller was changed to %q", before.Raw)
		}
		if ev.Format != before.Format || !bytes.Equal(record.TrimEnd(ev.Raw), ev.Line) || string(ev.Raw[len(ev.Line):]) != string(before.Raw[len(before.Line):]) {
			t.Fatalf("got %q from %q", ev.Raw, given)
		}
		switch ev.Format {
		case record.Text:
			if string(ev.Raw) != given {
				t.Fatalf("got %q from %q", ev.Raw, given)
			}
		case record.JSON:
			if do(want); !record.IsObject(ev.Line) || read(t, ev.Line).String() != want.String() {
				t.Fatalf("%d %q %q\n   %q\ngot  %s\nwant %s", op%4, name, value, given, ev.Line, want)
			}
		case record.Logfmt:
			want := doPairs(op%4, pairsOf(t, before.Line), name, value)
			if got := pairsOf(t, ev.Line); !slices.Equal(got, want) {
				t.Fatalf("%d %q %q\n   %q\ngot  %q\nwant %q", op%4, name, value, given, got, want)
			}
		}
	})
}

// A pair is a logfmt pair as it is written in the line. The value includes the "=".
type pair struct{ name, value string }

// pairsOf returns the pairs of a logfmt line.
func pairsOf(t *testing.T, line []byte) (list []pair) {
	if !record.Pairs(line, func(m record.Member) bool {
		list = append(list, pair{string(line[m.Key:m.KeyEnd]), string(line[m.KeyEnd:m.End])})
		return true
	}) {
		t.Fatalf("%q is not logfmt", line)
	}
	return list
}

// doPairs is a simple implementation of the rules for the pairs of a logfmt line.
func doPairs(op uint8, list []pair, name, value string) []pair {
	name = jsontext.LogfmtKey(name)
	named := func(name string) bool { return slices.ContainsFunc(list, func(p pair) bool { return p.name == name }) }
	text := string(jsontext.AppendText(nil, value))
	if text == value && !record.IsText(value) {
		text = `"` + text + `"` // a string like 2 or true remains a string
	}
	set := "=" + text
	switch op {
	case 1:
		for i := range list {
			if list[i].name == name {
				list[i].value = set
			}
		}
		fallthrough
	case 0:
		if !named(name) {
			list = append(list, pair{name, set})
		}
	case 2:
		list = slices.DeleteFunc(list, func(p pair) bool { return p.name == name })
	case 3:
		if to := jsontext.LogfmtKey(value); named(name) && to != name {
			list = slices.DeleteFunc(list, func(p pair) bool { return p.name == to })
			for i := range list {
				if list[i].name == name {
					list[i].name = to
				}
			}
		}
	}
	return list
}

// Redaction hides the values of all fields with a redacted name, and a JSON line remains valid. A
// second redaction changes nothing.
func FuzzRedact(f *testing.F) {
	for _, line := range fuzzed {
		f.Add([]byte(line), `\d+`)
		f.Add([]byte(line), `pass`)
	}
	f.Fuzz(func(t *testing.T, line []byte, pattern string) {
		byKey, byPattern := chain(t, Rule{Redact: &Redact{Keys: []string{"password"}}}), (*Chain)(nil)
		if c, faults := New([]Rule{{Redact: &Redact{Patterns: []string{pattern}}}}, nil); faults == nil {
			byPattern = c
		}
		ev := parse(record.Auto, string(line))
		json := ev.Format == record.JSON
		byKey.Apply(ev)
		if json {
			if !record.IsObject(ev.Line) {
				t.Fatalf("got %q from %q", ev.Line, line)
			}
			var checkHidden func(o *tree)
			checkHidden = func(o *tree) {
				for i, k := range o.keys {
					if strings.EqualFold(keyText(k), "password") && o.members[i].raw != `"[redacted]"` {
						t.Fatalf("got %q from %q", ev.Line, line)
					}
					checkHidden(o.members[i])
				}
			}
			checkHidden(read(t, ev.Line))
		}
		again := *ev
		byKey.Clone().Apply(&again)
		if !bytes.Equal(again.Raw, ev.Raw) {
			t.Fatalf("a second redaction changed %q to %q", ev.Raw, again.Raw)
		}
		if byPattern == nil {
			return
		}
		ev = parse(record.Auto, string(line))
		byPattern.Apply(ev)
		if json && !record.IsObject(ev.Line) {
			t.Fatalf("got %q from %q", ev.Line, line)
		}
	})
}

// The function glob has the same result as a simple recursive implementation.
func FuzzGlob(f *testing.F) {
	f.Add("a*?é", "xaéb")
	f.Add("*a*b?*", "aab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 20 || len(text) > 40 || !utf8.ValidString(pattern) || !utf8.ValidString(text) {
			return
		}
		var match func(p, s []rune) bool
		match = func(p, s []rune) bool {
			switch {
			case len(p) == 0:
				return len(s) == 0
			case p[0] == '*':
				return match(p[1:], s) || len(s) > 0 && match(p, s[1:])
			case len(s) == 0:
				return false
			}
			return (p[0] == '?' || p[0] == s[0]) && match(p[1:], s[1:])
		}
		if strings.Count(pattern, "*") < 5 && glob(pattern, []byte(text)) != match([]rune(pattern), []rune(text)) {
			t.Errorf("glob(%q, %q) differs from the recursive implementation", pattern, text)
		}
	})
}
