package record

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// checkFlat compares the flattened form of a JSON line with its members, each encoded as an
// attribute.
func checkFlat(t *testing.T, line []byte) {
	t.Helper()
	ev := parse(JSON, string(line))
	if ev.Format != JSON {
		return
	}
	enc := NewEncoder(AsLogfmt)
	got, err := enc.Append([]byte("before "), &ev)
	if err != nil || !utf8.Valid(got) || bytes.IndexByte(got, '\n') != len(got)-1 {
		t.Fatalf("%q became %q, %v", line, got, err)
	}
	if again, _ := enc.Encode(&ev); string(again) != string(got[len("before "):]) {
		t.Fatalf("%q became %q, then %q", line, got, again)
	}
	if bytes.Count(line, []byte{'{'}) > maxGroups || bytes.IndexByte(ev.Line, '\r') >= 0 || !utf8.Valid(line) {
		return // Attrs omits members that are nested more deeply, and changes lists that contain them
	}
	want, _, _ := enc.pairs.Append([]byte("before "), &encode.Record{Attrs: Attrs(ev.Line)})
	if !bytes.Equal(got, want) {
		t.Fatalf("%q:\n got %q\nwant %q", line, got, want)
	}
}

var flattened = []string{
	`{}`, ` { } `, `{"":1}`, `{"":{"":2}}`, `{"a":{},"b":[],"c":{ },"d":null}`, `{"a":{"b":{"c":{"d":1}},"e":2},"f":3}`,
	`{"a":"","b":" ","c":"=","d":"x=y z","e":"é","f":"日 本","g":"` + "\u2028" + `","h":"` + "\x7f" + `","i":"long enough for two words","j":"without_any_space_at_all"}`,
	`{"a b":1,"c=d":2,"é":3,"` + "\u202e" + `":4,"e\"f":5,"\u0061":6,"g\nh":7,"` + "\x7f" + `":8}`,
	`{"a":"\"","b":"\\","c":"\/","d":"\u00e9","e":"\ud83d\ude00","f":"\ud83d","g":"\n","h":"\u0061b","i":"x\u0020y"}`,
	`{"a":[1,"two",{"b":[]}],"b":[ "x y" ],"c":["\u00e9\\"],"o":{"l":["é"],"a b":{"c d":"e f"}}}`,
	`{"a":1.00,"b":-0,"c":1e400,"d":12345678901234567890123,"e":true,"f":false,"g":0.5E-7}`,
	" { \"a\" : 1 ,\t\"b\" : { \"c\" : \"d\" } , \"e\" : [ 1 , 2 ] } \r\n",
	"{\"a\":\"\xff\",\"b\xfe\":1,\"c\":[\"\xfd\"],\"d\":\"\\n\xff\"}", "{\"a\":[1,\r2],\"b\":\r3}",
}

// Each kind of member has the documented form in logfmt.
func TestFlatten(t *testing.T) {
	for _, s := range flattened {
		checkFlat(t, []byte(s))
	}
	for n := range 30 { // with the end of the string at every offset within a word
		x := strings.Repeat("x", n)
		for _, end := range []string{"", " ", "=", "é", "\x7f", `\n`, ` "`[:1] + `\"`} {
			checkFlat(t, []byte(`{"`+x+end+`":"`+x+end+`"}`))
			checkFlat(t, []byte(`{"a":"`+end+x+`","b":"y z"}`))
		}
	}
	for _, c := range []struct{ in, want string }{
		{"{\"a\":\"\xff\",\"b\xfe\":1,\"c\":[\"\xfd\"]}", "a=\"\uFFFD\" b_=1 c=\"[\\\"\uFFFD\\\"]\"\n"},
		{"{\"a\":[1,\r2]}", `a="[1,\r2]"` + "\n"},
	} {
		ev := parse(JSON, c.in)
		if got, err := NewEncoder(AsLogfmt).Encode(&ev); string(got) != c.want || err != nil {
			t.Errorf("%q became %q, want %q (%v)", c.in, got, c.want, err)
		}
	}
}

// Deeply nested objects lose no data.
func TestFlattenDeep(t *testing.T) {
	for _, n := range []int{1, 99, 100, 101, 102, 9_999} {
		ev := parse(JSON, strings.Repeat(`{"a":`, n+1)+`"x y"`+strings.Repeat("}", n+1))
		got, err := NewEncoder(AsLogfmt).Encode(&ev)
		want := strings.Repeat("a.", n) + `a="x y"` + "\n"
		if n > maxGroups {
			rest := n - maxGroups
			want = strings.Repeat("a.", maxGroups) + `a="` + strings.Repeat(`{\"a\":`, rest) + `\"x y\"` + strings.Repeat("}", rest) + `"` + "\n"
		}
		if string(got) != want || err != nil {
			t.Errorf("depth %d: %.300s, %v", n, got, err)
		}
	}
}

// Any JSON line becomes the logfmt of its members.
func FuzzFlatten(f *testing.F) {
	for _, s := range append(flattened, scanned...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		line, _, _ = bytes.Cut(line, []byte{'\n'})
		checkFlat(t, line)
	})
}

// JSON lines are encoded without allocations in every encoding.
func TestJSONDoesNotAllocate(t *testing.T) {
	for _, line := range []string{
		`{"time":"2024-05-06T07:08:09.123456789Z","level":"INFO","msg":"request served to the client","method":"GET","path":"/v2/items/4711","status":200,"took":0.1179,"cached":false}` + "\n",
		`{"ts":1714979289.5,"lvl":"warn","msg":"größer \"als\" \u00e9","o":{"a":{"b":"c d"},"l":[1,{"x":2}]},"none":null}` + "\r\n",
		`{"level":30,"time":1531171074631,"err":"a\nb"} `,
	} {
		for _, as := range []Encoding{AsRaw, AsJSON, AsLogfmt} {
			p, enc, raw := Parser{Location: time.UTC}, NewEncoder(as), []byte(line)
			var ev Event
			one := func() {
				p.Parse(raw, &ev)
				Meta(&ev)
				if _, err := enc.Encode(&ev); err != nil || ev.Format != JSON {
					t.Fatal(err)
				}
			}
			one()
			if n := allocs.PerRun(100, one); n != 0 {
				t.Errorf("%q as %v: %g allocations", line, as, n)
			}
		}
	}
}
