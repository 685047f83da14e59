package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/stamp"
)

// isObject implements IsObject with encoding/json.
func isObject(line []byte) bool {
	t := bytes.TrimLeft(line, " \t\r")
	return len(t) > 0 && t[0] == '{' && json.Valid(t)
}

// checkScan compares the result of Parse with encoding/json.
func checkScan(t *testing.T, line []byte) {
	t.Helper()
	want := isObject(line)
	if got := IsObject(line); got != want {
		t.Fatalf("IsObject(%q): %v, json.Valid %v", line, got, want)
	}
	p := Parser{Format: JSON, Location: time.UTC}
	var ev Event
	p.Parse(line, &ev)
	if got := ev.Format == JSON; got != isObject(ev.Line) || got == (p.Unparsed > 0) {
		t.Fatalf("%q is %v, Unparsed %d", line, ev.Format, p.Unparsed)
	}
	if ev.Format != JSON {
		if text := parse(Text, string(line)); text.Level != ev.Level || text.HasLevel != ev.HasLevel || !text.Time.Equal(ev.Time) || ev.levelKey != nil || ev.timeKey != nil {
			t.Fatalf("%q is text, but has level or time of invalid JSON: %+v", line, ev)
		}
		return
	}
	if ascii := bytes.IndexFunc(ev.Line, func(r rune) bool { return r > 0x7f }) < 0; ev.ascii != ascii {
		t.Fatalf("%q: ascii %v", line, ev.ascii)
	}
	if ref := decoded(t, ev.Line); ref.Level != ev.Level || ref.HasLevel != ev.HasLevel || !ref.Time.Equal(ev.Time) ||
		!bytes.Equal(ref.levelKey, ev.levelKey) || !bytes.Equal(ref.timeKey, ev.timeKey) {
		t.Fatalf("%q: %+v, encoding/json has %+v", line, ev, ref)
	}
}

// decoded finds the level and the time of an object with encoding/json.
func decoded(t *testing.T, line []byte) (ev Event) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if _, err := dec.Token(); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		written := bytes.HasSuffix(line[:dec.InputOffset()], []byte(`"`+key.(string)+`"`)) // true if the key has no escapes
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		text := strings.TrimSuffix(strings.TrimPrefix(string(value), `"`), `"`)
		switch k := []byte(key.(string)); {
		case !written:
		case isLevelKey(k) && (!ev.HasLevel || string(ev.levelKey) == string(k)):
			if l, ok := fieldLevel(k, []byte(text)); ok {
				ev.Level, ev.HasLevel, ev.levelKey, ev.notLevels = l, true, k, 0
			} else {
				ev.notLevels++
			}
		case isTimeKey(k) && (ev.Time.IsZero() || string(ev.timeKey) == string(k)):
			var at time.Time
			if m, ok := stamp.Find([]byte(text), time.UTC); ok && !m.Yearless {
				at = m.Time
			} else if !ok && value[0] != '"' {
				at, _ = stamp.FromNumber(text)
			}
			if !at.IsZero() {
				ev.Time, ev.timeKey, ev.notTimes = at, k, 0
			} else {
				ev.notTimes++
			}
		}
	}
	return ev
}

var scanned = []string{
	`{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"a \"b\" \\ \u00e9\ud83d\ude00 é","n":[1,-0.5e+10,{"level":"error"}],"o":{"a":{},"b":[]},"t":true,"f":false,"z":null}`,
	"{}", " \t\r{ } \r\n", "\n{}", "{}\n{}", "{} x", "{", "}", "[]", `"a"`, "1", "", "{\x00}",
	`{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1,"b"`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":{]}`,
	`{"a":"` + "\xff\xfe" + `"}`, `{"a":"` + "\x1f" + `"}`, `{"a":"` + "\x7f" + `"}`, `{"a":"tab` + "\t" + `"}`, `{"long enough":"` + "\x1f" + `and more"}`,
	`{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12"}`, `{"a":"\uABcd"}`, `{"a":"\ud800"}`, `{"a":"\/\b\f\n\r\t"}`, `{"a":"\`, `{"a":"\u`, `{"a":"\"`,
	`{"a":-}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":1e+}`, `{"a":+1}`, `{"a":-0}`, `{"a":0.0}`, `{"a":1E-7}`, `{"a":1-}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":--1}`,
	`{"a":tru}`, `{"a":True}`, `{"a":truex}`, `{"a":nul`, `{"a":false}`,
	`{"level":"warn","level":"error"}`, `{"level":{"x":1},"lvl":"warn"}`, `{"l\u0065vel":"warn"}`, `{"time":{"at":"2024-05-06T07:08:09Z"}}`, `{"time":1700000000}`, `{"time":[1700000000]}`,
	`{"level":"warn","time":"2024-05-06T07:08:09Z"`, `{"level" : "warn" , "ts" : 1700000000.5 }`,
}

// Parse agrees with encoding/json on lines with each kind of value and error.
func TestScan(t *testing.T) {
	for _, s := range scanned {
		checkScan(t, []byte(s))
	}
	// Test all prefixes of a line, and the line with another byte at each position.
	line := []byte(scanned[0])
	for i := range line {
		checkScan(t, line[:i])
		had := line[i]
		for _, c := range []byte("\"\\{}[],:01eE.+-tfnu /\t\r\x00\x1f\x7f\x80\xff") {
			line[i] = c
			checkScan(t, line)
		}
		line[i] = had
	}
	// Test strings that end at every offset within a word.
	for n := range 40 {
		for _, end := range []string{`"}`, `"} `, `"`, `\"}`, "\x01\"}", `é"}`, `\u00e9"}`, `","level":"warn"}`} {
			checkScan(t, []byte(`{"a":"`+strings.Repeat("x", n)+end))
		}
	}
}

// Nesting is limited exactly as in encoding/json.
func TestScanDepth(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 9_998, 9_999, 10_000, 10_001} {
		for _, s := range []string{
			`{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}",
			strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n),
			`{"a":[` + strings.Repeat("[],", n) + strings.Repeat("{},", n) + "0]}", // a wide list is not deep
		} {
			if got, want := IsObject([]byte(s)), json.Valid([]byte(s)); got != want {
				t.Errorf("depth %d, %.12s…: %v, want %v", n, s, got, want)
			}
		}
	}
}

// Parse agrees with encoding/json on any line.
func FuzzScan(f *testing.F) {
	for _, s := range scanned {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		line, _, _ = bytes.Cut(line, []byte{'\n'})
		checkScan(t, line)
	})
}

// A line that is already in the wanted format is not copied.
func TestEncodeInPlace(t *testing.T) {
	for _, c := range []struct {
		line    string
		want    string
		inPlace bool
	}{
		{`{"level":"info","msg":"grüß"}` + "\n", `{"level":"info","msg":"grüß"}` + "\n", true},
		{" \t" + `{"level":"info"}` + "\n", `{"level":"info"}` + "\n", true},
		{`{"level":"info"} ` + "\n", `{"level":"info"}` + "\n", false},
		{`{"level":"info"}` + "\r\n", `{"level":"info"}` + "\n", false},
		{`{"level":"info"}`, `{"level":"info"}` + "\n", false},
		{"{\"msg\":\"\xff\"}\n", "{\"msg\":\"\uFFFD\"}\n", false},
	} {
		p := Parser{Location: time.UTC}
		enc := NewEncoder(AsJSON)
		line := []byte(c.line)
		var ev Event
		p.Parse(line, &ev)
		rec, err := enc.Encode(&ev)
		if string(rec) != c.want || err != nil {
			t.Errorf("%q became %q, want %q (%v)", c.line, rec, c.want, err)
		}
		rec[len(rec)-2] = '!'
		if got := bytes.IndexByte(line, '!') >= 0; got != c.inPlace {
			t.Errorf("%q: in place %v, want %v", c.line, got, c.inPlace)
		}
	}
}
