package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chain returns a Chain with these rules.
func chain(t testing.TB, rules ...Rule) *Chain {
	t.Helper()
	c, faults := New(rules, &record.Parser{Location: time.UTC})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return c
}

// parse parses a line. more contains the attributes that an input adds.
func parse(f record.Format, line string, more ...slog.Attr) *record.Event {
	var ev record.Event
	(&record.Parser{Format: f, Location: time.UTC}).Parse([]byte(line), &ev)
	ev.More = more
	return &ev
}

// where returns a Where with one condition.
func where(field string, patterns ...string) Where { return Where{{field, patterns}} }

func TestRulesChangeOnlyTheirFields(t *testing.T) {
	add := func(p ...Setting) Rule { return Rule{Add: p} }
	set := func(p ...Setting) Rule { return Rule{Set: p} }
	rename := func(p ...Pair) Rule { return Rule{Rename: p} }
	remove := func(names ...string) Rule { return Rule{Remove: names} }
	hide := func(keys ...string) Rule { return Rule{Redact: &Redact{Keys: keys}} }
	match := func(patterns ...string) Rule { return Rule{Redact: &Redact{Patterns: patterns}} }
	for _, c := range []struct {
		rule     Rule
		in, want string
	}{
		{add(Setting{"a", "x"}), `{}`, `{"a":"x"}`},
		{add(Setting{"a", "x"}), " { } \r\n", " {\"a\":\"x\" } \r\n"},
		{add(Setting{"a", "x"}, Setting{"b", "\"é\n"}), `{"c":1.10 }` + "\n", `{"c":1.10,"a":"x","b":"\"é\n" }` + "\n"},
		{add(Setting{"a", "x"}), `{"a":null}`, `{"a":null}`},
		{add(Setting{"a", "x"}), `{"\u0061":1}`, `{"\u0061":1}`},
		{add(Setting{"o.a", "x"}), `{"o":{}}`, `{"o":{"a":"x"}}`},
		{add(Setting{"o.a", "x"}), `{"o":{"a":1}}`, `{"o":{"a":1}}`},
		{add(Setting{"o.a", "x"}), `{"o.a":1,"o":{}}`, `{"o.a":1,"o":{}}`},
		{add(Setting{"o.a", "x"}), `{"o":[{"a":1}]}`, `{"o":[{"a":1}],"o.a":"x"}`},
		{add(Setting{"o.p.a", "x"}), `{"o":{"b":1},"c":2}`, `{"o":{"b":1,"p.a":"x"},"c":2}`},
		{add(Setting{"a", "x y"}, Setting{"b", ""}), "level=info c=1 \n", "level=info c=1 a=\"x y\" b=\"\" \n"},
		{add(Setting{"c", "x"}), "level=info c=1", "level=info c=1"},
		{add(Setting{"a", "x"}), "text\n", "text\n"},

		{set(Setting{"a", "x"}), `{"a" : 1 , "b":2,"a":{"a":3}}`, `{"a" : "x" , "b":2,"a":"x"}`},
		{set(Setting{"a", "x"}), `{"b":2}`, `{"b":2,"a":"x"}`},
		{set(Setting{"o.a", "x"}), `{"o":{"a":[1,{"a":2}]},"o.a":3}`, `{"o":{"a":"x"},"o.a":"x"}`},
		{set(Setting{"a", "x"}), `level=info a="1 2" a=3`, `level=info a=x a=x`},
		{set(Setting{"a", "x y"}), `level=info b=1`, `level=info b=1 a="x y"`},

		{rename(Pair{"a", "b"}), `{"a": 1,"c":"\u0041","a":2}`, `{"b": 1,"c":"\u0041","b":2}`},
		{rename(Pair{"a", "b"}), `{"a":1,"b":2}`, `{"b":1}`},
		{rename(Pair{"a", "b"}), `{"b":2,"c":3}`, `{"b":2,"c":3}`},
		{rename(Pair{"a", "b"}), `level=info b=2 a=1`, `level=info b=1`},
		{rename(Pair{"a b", "a_b"}), `level=info a_b=1`, `level=info a_b=1`},
		{rename(Pair{"a", "b"}, Pair{"b", "a"}), `{"a":1,"b":2}`, `{"b":1,"a":2}`},
		{rename(Pair{"a", "b"}, Pair{"b", "a"}), `level=info a=1 b=2`, `level=info b=1 a=2`},
		{rename(Pair{"a", "b"}, Pair{"b", "a"}), `{"a":1}`, `{"b":1}`},
		{rename(Pair{"a", "b"}, Pair{"b", "c"}), `{"a":1,"b":2,"c":3}`, `{"b":1,"c":2}`},
		{rename(Pair{"a", "c"}, Pair{"b", "c"}), `{"a":1,"b":2}`, `{"c":2}`},
		{rename(Pair{"o.a", "b"}, Pair{"b", "o.a"}), `{"o":{"a":1,"x":0},"b":2}`, `{"o":{"x":0,"a":2},"b":1}`},
		{rename(Pair{"o.a", "o"}), `{"o":{"a":1,"c":2},"x":0}`, `{"x":0,"o":1}`},
		{rename(Pair{"a", "a.b"}), `{"a":{"b":1,"c":2}}`, `{"a.b":{"c":2}}`},
		{rename(Pair{"a", "b"}), `{"c":1}`, `{"c":1}`},
		{rename(Pair{"o.a", "o.b"}), `{"o":{"a":1,"c":2}}`, `{"o":{"b":1,"c":2}}`},
		{rename(Pair{"o.a", "a"}), `{"o":{"a":{"x":[1]},"c":2}}`, `{"o":{"c":2},"a":{"x":[1]}}`},
		{rename(Pair{"o.a", "a"}), `{"o":{"a":1}}`, `{"o":{},"a":1}`},
		{rename(Pair{"a", "o.a"}), `{"a":1,"o":{}}`, `{"o":{"a":1}}`},
		{rename(Pair{"a", "o.b"}), `{"o":{"x":0},"a":1,"a":2}`, `{"o":{"x":0,"b":1,"b":2}}`},
		{rename(Pair{"a", "o.b"}), `{"a":1}`, `{"o.b":1}`},
		{rename(Pair{"a", "a.b"}), `{"a":{"c":1}}`, `{"a.b":{"c":1}}`},
		{rename(Pair{"o.a", "o.a.b"}), `{"o":{"a":{"c":1}}}`, `{"o":{"a.b":{"c":1}}}`},
		{rename(Pair{"a", "b c"}), `level=info  a="1 2"`, `level=info  b_c="1 2"`},

		{remove("a"), `{"a":1}`, `{}`},
		{remove("a"), `{ "a" : 1 }`, `{  }`},
		{remove("a"), `{"a":1, "b":2}`, `{"b":2}`},
		{remove("a"), `{"b":2 , "a":1 }`, `{"b":2 }`},
		{remove("a"), `{"a":1,"a":2,"b":3,"a":4,"a":5}`, `{"b":3}`},
		{remove("a", "b"), `{"a":1,"b":2}`, `{}`},
		{remove("o.a"), `{"o":{"a":1},"o":{"b":0,"a":2},"o.a":3}`, `{"o":{},"o":{"b":0}}`},
		{remove("o.p.q"), `{"o":{"p.q":1,"p":{"q":2,"r":3}},"o.p":{"q":4}}`, `{"o":{"p":{"r":3}},"o.p":{}}`},
		{remove("a"), `{"\u0061":"}","b\"a":1}`, `{"b\"a":1}`},
		{remove("a"), "a=1  level=info a=2 b=3 a=4\n", "level=info b=3\n"},
		{remove("level", "a"), "level=info a=1\n", "\n"},

		{hide("pin"), `{"PIN":[1,{"x":"y"}],"a":[{"b":{"Pin":null,"pins":1}}],"p\u0069n":2}`, `{"PIN":"[redacted]","a":[{"b":{"Pin":"[redacted]","pins":1}}],"p\u0069n":"[redacted]"}`},
		{hide("*pin", "card.number"), `{"a_pin":1,"card":{"number":2},"number":3}`, `{"a_pin":"[redacted]","card":{"number":"[redacted]"},"number":3}`},
		{hide("pin"), `{"msg":"got {\"pin\":\"12\"}"}`, `{"msg":"got {\"pin\":\"[redacted]\"}"}`},
		{hide("pin"), `level=info pin="1 2" pins=3 user.pin=4`, `level=info pin=[redacted] pins=3 user.pin=[redacted]`},
		{hide("pin"), `got {"pin":"12"}`, `got {"pin":"[redacted]"}`},
		{match(`\d{4}`), `{"a":"x1234","b":["\u0031\u0032\u0033\u0034y"],"c":12345,"d":123,"e1234":true,"f":"\u0041"}`, `{"a":"x[redacted]","b":["[redacted]y"],"c":"[redacted]5","d":123,"e[redacted]":true,"f":"\u0041"}`},
		{match(`\d{4}`), `level=info a=x1234 b="\u0031234 5" c1234=1`, `level=info a=x[redacted] b="[redacted] 5" c[redacted]=1`},
		{match(`pw=\S+`), `level=info pw=1 a=2`, `level=info [redacted] a=2`},
		{match(`\d{4}`), "card 1234 5678\r\n", "card [redacted] [redacted]\r\n"},
		{Rule{Redact: &Redact{Keys: []string{"pin"}, Patterns: []string{"x+"}, Replacement: `"*"`}}, `{"pin":1,"a":"xx$1"}`, `{"pin":"\"*\"","a":"\"*\"$1"}`},
	} {
		ev := parse(record.Auto, c.in)
		f := ev.Format
		if chain(t, c.rule).Apply(ev) != Kept {
			t.Errorf("%s: the record was dropped", c.in)
		}
		if got := string(ev.Raw); got != c.want {
			t.Errorf("%+v\n%s\n got %s\nwant %s", c.rule, c.in, got, c.want)
		}
		if !bytes.HasPrefix(ev.Raw, ev.Line) || !bytes.Equal(ev.Line, record.TrimEnd(ev.Raw)) {
			t.Errorf("line %q is not the beginning of %q", ev.Line, ev.Raw)
		}
		if ev.Format != f {
			t.Errorf("%s: the format changed from %v to %v", c.in, f, ev.Format)
		}
	}
}

// setting returns settings of one field.
func setting(name, value string) []Setting { return []Setting{{name, value}} }

// A field that a rule adds or sets has the type of its Setting in every format.
func TestSetFieldsKeepTheirType(t *testing.T) {
	typed := []Setting{{"i", json.Number("1")}, {"f", json.Number("-0.5")}, {"t", true}, {"s", "1"}, {"w", "true"}, {"x", "a b"}, {"e", ""}, {"q", `"`}, {"l", "007"}}
	const fields = `"i":1,"f":-0.5,"t":true,"s":"1","w":"true","x":"a b","e":"","q":"\"","l":"007"`
	for _, rule := range []Rule{{Set: typed}, {Add: typed}} {
		for in, want := range map[string]string{
			`{"k":1}`:   `{"k":1,` + fields + `}`,
			`k=1 msg=m`: `{"k":1,"msg":"m",` + fields + `}`,
			`text`:      `{"msg":"text",` + fields + `}`,
		} {
			ev := parse(record.Auto, in)
			chain(t, rule).Apply(ev)
			if got, err := record.NewEncoder(record.AsJSON).Encode(ev); err != nil || string(got) != want+"\n" {
				t.Errorf("%s\n got %s\nwant %s (%v)", in, got, want, err)
			}
		}
	}
	ev := parse(record.Auto, `{"i":"x","s":2}`, slog.String("t", "x"))
	chain(t, Rule{Set: typed[:4]}).Apply(ev)
	if got, _ := record.NewEncoder(record.AsJSON).Encode(ev); string(got) != `{"i":1,"s":"1","f":-0.5,"t":true}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestWhereSelectsByField(t *testing.T) {
	const obj = `{"level":"warn","msg":"a \u0062 c","n":1.50,"t":true,"z":null,"o":{"a":{"b":"x"}},"o.a.c":"lit","d":"1","d":"2","l":[1,2]}`
	const pairs = `level=warn msg="a b \"c\"" n=1.50 e= o.a=x`
	const text = `2024-05-06 07:08:09 ERROR it broke`
	more := []slog.Attr{slog.String("tag", "web"), slog.Int("port", 80), slog.Group("labels", slog.String("app", "shop")), slog.String("known", "more")}
	for _, c := range []struct {
		line string
		w    Where
		want bool
	}{
		{obj, nil, true},
		{obj, where("level", "warn"), true}, {obj, where("level", "info"), true}, {obj, where("level", "error"), false},
		{obj, where("level", "!error"), true}, {obj, where("level", "!WARN"), false}, {obj, where("level", "info", "!error"), true}, {obj, where("level", "info", "!warn"), false},
		{obj, where("level", "info+2"), true}, {obj, where("level", "*"), true}, {obj, where("level", "!*"), false},
		{`{"a":1}`, where("level", "trace"), false}, {`{"a":1}`, where("level", "!error"), true}, {`{"a":1}`, where("level", "!*"), true}, {`{"a":1}`, where("level", "info", "!error"), false},
		{obj, where("msg", "a b c"), true}, {obj, where("msg", "a?b*"), true}, {obj, where("msg", "b"), false},
		{`{"message":"x","msg":"y"}`, where("msg", "x"), true}, {`{"msg":1,"message":"y"}`, where("msg", "y"), true}, {`{"a":"x"}`, where("msg", "*"), false}, {`{"a":"x"}`, where("msg", "!*"), true},
		{obj, where("n", "1.50"), true}, {obj, where("n", "1.5"), false}, {obj, where("t", "true"), true}, {obj, where("z", "null"), true}, {obj, where("l", "[1,2]"), true},
		{obj, where("o.a.b", "x"), true}, {obj, where("o.a.c", "lit"), true}, {obj, where("o.a", `{"b":"x"}`), true}, {obj, where("o.a.d", "*"), false}, {obj, where("o.a.d", "!*"), true},
		{obj, where("d", "2"), true}, {obj, where("d", "1"), false}, // the last value is used, as in jq, Go, Python, Loki and Elasticsearch
		{`{"user":"bob","user":"root"}`, where("user", "!root"), false}, {`{"u":"a","\u0075":"b"}`, where("u", "b"), true},
		{`{"o":{"a":1},"o":{"a":2}}`, where("o.a", "2"), true}, {`{"o":{"a":1},"o":{"b":2}}`, where("o.a", "*"), false}, {`{"o":{"a":1},"o":2}`, where("o.a", "*"), false},
		{`{"o.p":{"a":1},"o":{"x":2}}`, where("o.p.a", "1"), true}, {`{"o.a":1,"o":{"a":2}}`, where("o.a", "1"), true},
		{`{"msg":"a","msg":"b"}`, where("msg", "b"), true}, {`{"msg":"a","message":"x","msg":"b"}`, where("msg", "b"), true},
		{`{"level":"debug","level":"error"}`, where("level", "warn"), true}, {`{"level":"error","msg":"x","level":"debug"}`, where("level", "info"), false}, {`{"level":"error","level":"?"}`, where("level", "error"), true},
		{`user=bob user=root x=1`, where("user", "root"), true}, {`msg=a message=x msg=b`, where("msg", "b"), true}, {`level=error x=1 level=debug`, where("level", "info"), false},
		{obj, where("n", "2", "1*"), true}, {obj, where("n", "1*", "!*5?"), false}, {obj, where("n", "!2", "!3"), true}, {obj, where("missing", "!2"), true}, {obj, where("missing", "2", "!3"), false},
		{obj, Where{{"n", []string{"1*"}}, {"t", []string{"false"}}}, false}, {obj, Where{{"n", []string{"1*"}}, {"t", []string{"true"}}}, true},
		{obj, where("tag", "w*"), true}, {obj, where("port", "80"), true}, {obj, where("labels.app", "shop"), true}, {obj, where("labels.x", "*"), false},
		{pairs, where("msg", `a b "c"`), true}, {pairs, where("e", ""), true}, {pairs, where("n", "1.50"), true}, {pairs, where("o.a", "x"), true}, {pairs, where("tag", "web"), true}, {pairs, where("level", "warn", "!error"), true},
		{`{"a":"é"}`, where("a", "?"), true}, {`{"a":"é"}`, where("a", "??"), false}, {`{"a":""}`, where("a", "!"), false}, {`{"a":"x"}`, where("a", "!"), true},
		{text, where("msg", "*broke"), true}, {text, where("level", "error"), true}, {text, where("tag", "web"), true}, {text, where("known", "more"), true}, {`{"tag":"mine","port":1,"labels":{"app":"mine"}}`, Where{{"tag", []string{"web"}}, {"port", []string{"80"}}, {"labels.app", []string{"shop"}}}, true}, {`tag=mine`, where("tag", "mine"), false}, {text, where("it", "*"), false},
	} {
		if faults := c.w.Check(); faults != nil {
			t.Error(faults)
		}
		if got := c.w.Matches(parse(record.Auto, c.line, more...)); got != c.want {
			t.Errorf("%s\n%v: got %v, want %v", c.line, c.w, got, c.want)
		}
	}
	if !where("a", "true").Matches(parse(record.Logfmt, "a b=1")) {
		t.Error("a logfmt name without a value does not have the value true")
	}
}

func TestGlobMatchesWholeText(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"**", "abc", true}, {"a*c", "abcbc", true}, {"a*b", "abcbc", false}, {"*b*", "abc", true},
		{"?", "", false}, {"?", "é", true}, {"*é?", "aéb", true}, {"*??", "é", false}, {"*?b", "éb", true}, {"*??é*", "€éb", false}, {"*é", "é\xc3é", true}, {"?", "\xff", true}, {"a?", "a*", true}, {"a*a*a*b", strings.Repeat("a", 50), false},
	} {
		if got := glob(c.pattern, []byte(c.text)); got != c.want {
			t.Errorf("glob(%q, %q): got %v, want %v", c.pattern, c.text, got, c.want)
		}
	}
}

// If a rule changes the level or the time in the line, the following rules use the new value.
// Attributes from the input are kept.
func TestLevelAndTimeFollow(t *testing.T) {
	at := func(s string) time.Time { v, _ := time.Parse(time.RFC3339, s); return v }
	inputTime := at("2020-01-01T00:00:00Z")
	const old, later = "2024-05-06T07:08:09Z", "2025-05-06T07:08:09Z"
	for _, c := range []struct {
		rule  Rule
		in    string
		level slog.Level
		time  time.Time
	}{
		{Rule{Set: []Setting{{"level", "error"}}}, `{"level":"info"}`, slog.LevelError, inputTime},
		{Rule{Set: []Setting{{"time", later}}}, `{"level":"warn","time":"` + old + `"}`, slog.LevelWarn, at(later)},
		{Rule{Rename: []Pair{{"prio", "severity"}}}, `{"prio":"error"}`, slog.LevelError, inputTime},
		{Rule{Remove: []string{"level", "time"}}, `{"level":"error","time":"` + old + `"}`, slog.LevelError, at(old)},
		{Rule{Set: []Setting{{"level", "error"}}}, `level=info a=1`, slog.LevelError, inputTime},
		{Rule{Remove: []string{"ts", "a"}}, `level=warn a=1 ts=` + old, slog.LevelWarn, at(old)},
		{Rule{Redact: &Redact{Patterns: []string{"ERROR"}}}, old + ` ERROR a`, slog.LevelError, at(old)},
	} {
		ev := parse(record.Auto, c.in+"\n", slog.String("tag", "x"))
		if ev.Time.IsZero() {
			ev.Time = inputTime
		}
		seen := Rule{Where: where("level", c.level.String(), "!"+(c.level+1).String()), Add: []Setting{{"seen", "yes"}}}
		if chain(t, c.rule, seen).Apply(ev) != Kept {
			t.Errorf("%s: the record was dropped", c.in)
		}
		if !ev.HasLevel || ev.Level != c.level || !ev.Time.Equal(c.time) || len(ev.More) == 0 || ev.More[0].Key != "tag" {
			t.Errorf("%s: %+v", c.in, ev)
		}
		if _, ok := fieldText(ev, "seen", nil); !ok {
			t.Errorf("%s: the second rule saw the old level", c.in)
		}
		// Parsing the changed line returns the level and the time of the event.
		if fresh := parse(ev.Format, string(ev.Raw)); fresh.HasLevel && fresh.Level != ev.Level || !fresh.Time.IsZero() && !fresh.Time.Equal(ev.Time) {
			t.Errorf("%s: %+v, parsed again %+v", c.in, ev, fresh)
		}
	}
}

// The level and the time from the input have precedence over those in the line. If a rule changes
// the level or the time in the line, the new value is used.
func TestInputHasPrecedence(t *testing.T) {
	known := time.Unix(1_600_000_000, 0)
	const in = `{"level":"info","time":"2024-05-06T07:08:09Z","a":"x"}`
	add := Rule{Add: []Setting{{"b", "y"}}}
	if c := chain(t, add, Rule{Where: where("level", "!error"), Drop: true}, add, Rule{Remove: []string{"a"}}); true {
		ev := parse(record.Auto, in)
		ev.Level, ev.Time = slog.LevelError, known
		if c.Apply(ev) != Kept || ev.Level != slog.LevelError || !ev.HasLevel || !ev.Time.Equal(known) {
			t.Errorf("%+v", ev)
		}
	}
	for _, c := range []struct {
		rules []Rule
		level slog.Level
		at    int64
	}{
		{[]Rule{{Set: []Setting{{"level", "warn"}}}}, slog.LevelWarn, 1_600_000_000},
		{[]Rule{{Set: []Setting{{"time", "2020-09-13T12:26:41Z"}}}}, slog.LevelError, 1_600_000_001},
		{[]Rule{add, {Where: where("level", "error"), Set: []Setting{{"level", "debug"}}}, {Where: where("level", "!info"), Set: []Setting{{"level", "info"}}}}, slog.LevelInfo, 1_600_000_000},
		{[]Rule{{Remove: []string{"level", "time"}}}, slog.LevelError, 1_600_000_000},
	} {
		ev := parse(record.Auto, in)
		ev.Level, ev.Time = slog.LevelError, known
		if chain(t, c.rules...).Apply(ev) != Kept || ev.Level != c.level || ev.Time.Unix() != c.at {
			t.Errorf("%+v: %+v", c.rules, ev)
		}
	}
}

// Rules change a copy of the attributes from the input. The slice of the input is not modified.
func TestFieldsOfInputCanBeChanged(t *testing.T) {
	given := []slog.Attr{slog.String("tag", "web"), slog.Group("labels", slog.String("app", "shop"), slog.String("pin", "1234")), slog.String("pin", "5678")}
	for _, c := range []struct {
		rule Rule
		line string
		want string
	}{
		{Rule{Add: []Setting{{"a", "x"}, {"tag", "y"}}}, "text", `text [tag=web labels=[app=shop pin=1234] pin=5678 a=x]`},
		{Rule{Add: []Setting{{"tag", "y"}, {"labels.app", "y"}}}, `{}`, `{} [tag=web labels=[app=shop pin=1234] pin=5678]`},
		{Rule{Set: []Setting{{"tag", "y"}, {"labels.app", "z"}, {"a", "x"}}}, "text", `text [tag=y labels=[app=z pin=1234] pin=5678 a=x]`},
		{Rule{Set: []Setting{{"tag", "y"}}}, `{"tag":1}`, `{"tag":"y"} [tag=y labels=[app=shop pin=1234] pin=5678]`},
		{Rule{Set: []Setting{{"tag", "y"}}}, `{}`, `{} [tag=y labels=[app=shop pin=1234] pin=5678]`},
		{Rule{Rename: []Pair{{"tag", "t"}, {"pin", "labels"}}}, "text", `text [t=web labels=5678]`},
		{Rule{Rename: []Pair{{"tag", "pin"}, {"pin", "tag"}}}, "text", `text [pin=web labels=[app=shop pin=1234] tag=5678]`},
		{Rule{Rename: []Pair{{"tag", "a"}}}, `{"a":1}`, `{} [a=web labels=[app=shop pin=1234] pin=5678]`},
		{Rule{Remove: []string{"pin", "labels.pin"}}, `{"pin":1}`, `{} [tag=web labels=[app=shop]]`},
		{Rule{Redact: &Redact{Keys: []string{"pin"}}}, "text", `text [tag=web labels=[app=shop pin=[redacted]] pin=[redacted]]`},
		{Rule{Redact: &Redact{Patterns: []string{`\d+`}, Replacement: "#"}}, "a 1", `a # [tag=web labels=[app=shop pin=#] pin=#]`},
	} {
		ev := parse(record.Auto, c.line, given...)
		chain(t, c.rule).Apply(ev)
		if got := fmt.Sprintf("%s %v", ev.Line, ev.More); got != c.want {
			t.Errorf("%+v\n got %s\nwant %s", c.rule, got, c.want)
		}
		if got := fmt.Sprint(given); got != `[tag=web labels=[app=shop pin=1234] pin=5678]` {
			t.Fatalf("%+v modified the list of the input: %s", c.rule, got)
		}
	}
}

// Text has three fields: msg, level and time.
func TestTextHasThreeFields(t *testing.T) {
	const line = "2024-05-06 07:08:09 ERROR it broke\n"
	pair := func(a, b string) []Pair { return []Pair{{a, b}} }
	for _, c := range []struct {
		rule     Rule
		in, want string // want is the record encoded as JSON
	}{
		{Rule{Set: setting("msg", "gone")}, line, `{"time":"2024-05-06T07:08:09.000000000Z","level":"ERROR","msg":"gone","tag":"web"}`},
		{Rule{Add: setting("msg", "gone")}, "text", `{"msg":"text","tag":"web"}`},
		{Rule{Set: setting("level", "warn")}, line, `{"time":"2024-05-06T07:08:09.000000000Z","level":"WARN","msg":"2024-05-06 07:08:09 ERROR it broke","tag":"web"}`},
		{Rule{Add: setting("level", "warn")}, line, `{"time":"2024-05-06T07:08:09.000000000Z","level":"ERROR","msg":"2024-05-06 07:08:09 ERROR it broke","tag":"web"}`},
		{Rule{Add: setting("level", "trace")}, "text", `{"level":"TRACE","msg":"text","tag":"web"}`},
		{Rule{Set: setting("level", "loud")}, "text", `{"msg":"text","tag":"web","level":"loud"}`},
		{Rule{Set: setting("level", "loud")}, line, `{"time":"2024-05-06T07:08:09.000000000Z","level":"ERROR","msg":"2024-05-06 07:08:09 ERROR it broke","tag":"web","input.level":"loud"}`},
		{Rule{Set: setting("time", "2025-01-02T03:04:05Z")}, "text", `{"time":"2025-01-02T03:04:05.000000000Z","msg":"text","tag":"web"}`},
		{Rule{Rename: pair("tag", "level")}, "text", `{"msg":"text","level":"web"}`},
		{Rule{Rename: pair("tag", "msg")}, "text", `{"msg":"web"}`},
		{Rule{Rename: pair("tag", "level")}, line, `{"time":"2024-05-06T07:08:09.000000000Z","msg":"2024-05-06 07:08:09 ERROR it broke","level":"web"}`},
		{Rule{Remove: []string{"level", "time", "msg"}}, line, `{"msg":"2024-05-06 07:08:09 ERROR it broke","tag":"web"}`},
	} {
		ev := parse(record.Text, c.in, slog.String("tag", "web"))
		if chain(t, c.rule).Apply(ev) != Kept {
			t.Errorf("%+v: the record was dropped", c.rule)
		}
		if got, err := record.NewEncoder(record.AsJSON).Encode(ev); err != nil || string(got) != c.want+"\n" {
			t.Errorf("%+v\n%s\n got %s\nwant %s (%v)", c.rule, c.in, got, c.want, err)
		}
	}
	ev := parse(record.Text, "text")
	if c := chain(t, Rule{Set: setting("level", "error")}, Rule{Where: where("level", "error"), Drop: true}); c.Apply(ev) == Kept {
		t.Error("the second rule did not use the level that the first one has set")
	}
}

func TestDropAndSample(t *testing.T) {
	kept := func(c *Chain, line string, n int) (kept int) {
		for range n {
			if c.Apply(parse(record.Auto, line)) == Kept {
				kept++
			}
		}
		return kept
	}
	drop := chain(t, Rule{Where: where("level", "!warn"), Drop: true})
	if kept(drop, `{"level":"info"}`, 1) != 0 || kept(drop, `{"level":"warn"}`, 1) != 1 {
		t.Error("the drop rule did not drop exactly the records below warn")
	}
	c := chain(t, Rule{Where: where("a", "1"), Sample: &Sample{OneIn: 10}})
	if n := kept(c, `{"a":1}`, 100); n != 10 {
		t.Errorf("the sample kept %d of 100 records, want 10", n)
	}
	if n := kept(c, `{"a":2}`, 100); n != 100 {
		t.Errorf("kept %d of 100 records that the rule does not select, want all", n)
	}
	clone := c.Clone()
	n := 0
	for range 50 { // c and clone share the counter
		n += kept(c, `{"a":1}`, 1) + kept(clone, `{"a":1}`, 1)
	}
	if n != 10 {
		t.Errorf("a chain and its clone kept %d of 100 records, want 10", n)
	}

	by := chain(t, Rule{Sample: &Sample{OneIn: 10, By: "trace.id"}})
	total := 0
	for i := range 5000 {
		line := fmt.Sprintf(`{"trace":{"id":"%x"},"n":%d}`, i, i)
		n := kept(by, line, 3) + kept(by.Clone(), fmt.Sprintf("level=info trace.id=%x", i), 1)
		if n != 0 && n != 4 {
			t.Fatalf("%s: kept %d of 4 records of a trace, want none or all", line, n)
		}
		total += n / 4
	}
	if total < 400 || total > 600 {
		t.Errorf("kept %d of 5000 traces, want about 500", total)
	}
	if n := kept(by, "text", 20); n != 2 {
		t.Errorf("kept %d of 20 records without a trace, want 2", n)
	}
	n = 0
	for i := range 200 { // an attribute from the input has precedence over a field of the line
		if by.Apply(parse(record.Auto, fmt.Sprintf(`{"trace.id":%d}`, i), slog.String("trace.id", "same"))) == Kept {
			n++
		}
	}
	if n != 0 && n != 200 {
		t.Errorf("kept %d of 200 records of a trace that the input has set, want none or all", n)
	}
}

// Clones can be used concurrently.
func TestClonesRunConcurrently(t *testing.T) {
	c := chain(t, Rule{Where: where("a", "x*"), Set: []Setting{{"b", "y"}}}, Rule{Redact: &Redact{Keys: []string{"pin"}, Patterns: []string{`\d{4}`}}}, Rule{Sample: &Sample{OneIn: 4}})
	var wg sync.WaitGroup
	var kept atomic.Int64
	for range 4 {
		clone := c.Clone()
		wg.Go(func() {
			for i := range 500 {
				ev := parse(record.Auto, fmt.Sprintf(`{"a":"x%d","pin":%d,"c":"1234"}`, i, i))
				if clone.Apply(ev) != Kept {
					continue
				}
				kept.Add(1)
				if want := fmt.Sprintf(`{"a":"x%d","pin":"[redacted]","c":"[redacted]","b":"y"}`, i); string(ev.Line) != want {
					t.Errorf("%s, want %s", ev.Line, want)
				}
			}
		})
	}
	wg.Wait()
	if kept.Load() != 500 {
		t.Errorf("kept %d of 2000 records, want 500", kept.Load())
	}
}

func TestInvalidRulesAreReported(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{}, "rule 1: it has no action: use one of add, set, rename, remove, redact, parse, decolorize, sample, limit and drop"},
		{Rule{Drop: true, Remove: []string{"a"}}, "rule 1: it has 2 actions, which have no order: write a separate item for each"},
		{Rule{Add: []Setting{}}, "rule 1: add: it is empty; name a field, or leave the rule out"},
		{Rule{Set: []Setting{{"", "x"}}}, "rule 1: set[0]: the name of a field is empty"},
		{Rule{Rename: []Pair{{"a", "b"}, {"a", ""}}}, "rule 1: rename[1]: a has no new name; to remove it, use remove"},
		{Rule{Rename: []Pair{{"a", "a"}}}, "rule 1: rename[0]: a already has that name"},
		{Rule{Remove: []string{}}, "rule 1: remove: it is empty; name a field, or leave the rule out"},
		{Rule{Remove: []string{"a", ""}}, "rule 1: remove[1]: the name of a field is empty"},
		{Rule{Sample: &Sample{}}, "rule 1: sample.one_in: 0: use 1 or more; 10 keeps one record in ten"},
		{Rule{Redact: &Redact{}}, "rule 1: redact: it hides nothing: add keys or patterns"},
		{Rule{Redact: &Redact{Keys: []string{"a", "*"}}}, `rule 1: redact.keys[1]: "*": * alone hides everything there; add a part of the name, as in *token`},
		{Rule{Redact: &Redact{Keys: []string{"a..b"}}}, `rule 1: redact.keys[0]: "a..b": a part of it is empty; leave out the dot`},
		{Rule{Redact: &Redact{Patterns: []string{"("}}}, "rule 1: redact.patterns[0]: missing closing ): `(`"},
		{Rule{Redact: &Redact{Patterns: []string{"a*"}}}, `rule 1: redact.patterns[0]: "a*" matches the empty text; write an expression for at least one character`},
		{Rule{Redact: &Redact{Keys: []string{"a"}, Replacement: "a\nb"}}, `rule 1: redact.replacement: "a\nb" has control characters; leave them out`},
		{Rule{Drop: true, Where: where("", "a")}, "rule 1: where[0].field: it is empty; name a field, or level or msg"},
		{Rule{Drop: true, Where: where("a")}, "rule 1: where[0].patterns: a has no pattern; * matches every value, !* matches records without the field"},
		{Rule{Drop: true, Where: where("level", "warn", "!warm")}, `rule 1: where[0].patterns[1]: level: "warm" is not a level: use trace, debug, info, warn, error or fatal`},
	} {
		ch, faults := New([]Rule{c.rule}, nil)
		if len(faults) != 1 || faults[0].Error() != c.want {
			t.Errorf("%v, want %s", faults, c.want)
		}
		if _, ok := faults[0].(*Fault); !ok || ch != nil {
			t.Errorf("%T, %v", faults[0], ch)
		}
	}
	if _, faults := New([]Rule{{}, {Where: where("", ""), Redact: &Redact{Patterns: []string{"(", "["}}}}, nil); len(faults) != 4 || faults[3].(*Fault).Rule != 1 {
		t.Error(faults)
	}
	if faults := where("level", "x").Check(); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "where[0].patterns[0]: level: ") {
		t.Error(faults)
	}
	if c, faults := New(nil, nil); faults != nil || c.Apply(parse(record.Auto, "a")) != Kept {
		t.Error(faults)
	}
}

// After redaction, no encoding of the record contains the secret. It does not matter how deep the
// secret was, or whether it was escaped.
func TestRedactionHidesSecrets(t *testing.T) {
	const secret = "hunter2"
	escaped := ""
	for _, c := range secret {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	deep := strings.Repeat(`{"a":[`, 200) + `{"password":"` + secret + `"}` + strings.Repeat(`]}`, 200)
	quoted := `{"password":"` + secret + `"}`
	for range 5 {
		b, _ := json.Marshal(quoted)
		quoted = `{"body":` + string(b) + `}`
	}
	byKey := []string{
		`{"password":"hunter2"}`, `{"PassWord":["hunter2",{"hunter2":"hunter2"}]}`, `{"a":1,"password":{"x":{"y":"hunter2"}},"password":"hunter2"}`,
		`{"pass\u0077ord":"hunter2","\u0070assword":"` + escaped + `"}`, `{"user.password":"hunter2"}`, `{"l":[[{"password":"hunter2"}]]}`, deep, quoted,
		`{"msg":"body {\"password\":\"hunter2\",\"x"}`, `{"password":"hunter2","a":"` + "\xff\xfe" + `"}`, `{"password" :	"hunter2" }`,
		`level=info password=hunter2`, `level=info password="a hunter2 \" b" password=hunter2`, `level=info msg="{\"password\":\"hunter2\"}"`, `level=info user.Password="hunter2"`,
		`body: {"password":"hunter2"}`, `cut {"password":"hunter2`, `{"password":"hunter2"} trailing`, `{"password":"hunter2",}`, `go "{\"password\":\"hunter2\"}"`,
	}
	byPattern := append([]string{
		`{"a":"` + escaped + `"}`, `{"hunter2":1}`, `{"msg":"my hunter2"}`, `{"a":[["hunter2"]]}`, `{"a":"{\"b\":\"` + strings.ReplaceAll(escaped, `\`, `\\`) + `\"}"}`,
		`level=info a="` + escaped + `"`, `level=info hunter2=a`, `level=info a=xhunter2x`, "my hunter2", "hunter2\r", `{"a":"hunter2`, "\xffhunter2\xff",
	}, byKey...)
	for _, set := range []struct {
		redact Redact
		lines  []string
	}{
		{Redact{Keys: []string{"password"}}, byKey}, {Redact{Patterns: []string{"(?i)" + secret}}, byPattern},
		{Redact{Keys: []string{"password"}, Patterns: []string{secret}, Replacement: "xxx"}, byPattern},
	} {
		c := chain(t, Rule{Redact: &set.redact})
		for _, line := range set.lines {
			for _, end := range []string{"", "\n", "\r\n"} {
				more := []slog.Attr{slog.String("a", secret), slog.Group("g", slog.String("password", secret)), slog.Any("m", map[string]string{"password": secret})}
				if set.redact.Patterns == nil {
					more = more[1:]
				}
				ev := parse(record.Auto, line+end, more...)
				valid := ev.Format == record.JSON
				c.Apply(ev)
				if leaks(ev.Raw, secret, escaped) || leaks(ev.Line, secret, escaped) {
					t.Errorf("%q became %q, which contains the secret", line, ev.Raw)
				}
				if shown := fmt.Sprint(ev.More); strings.Contains(shown, secret) {
					t.Errorf("%s", shown)
				}
				if valid != json.Valid(ev.Line) {
					t.Errorf("%q became %q, which is not valid JSON", line, ev.Line)
				}
				for _, as := range []record.Encoding{record.AsRaw, record.AsJSON, record.AsLogfmt} {
					out, err := record.NewEncoder(as).Encode(ev)
					if err != nil || leaks(out, secret, escaped) {
						t.Errorf("%q became %q, %v", line, out, err)
					}
				}
			}
		}
	}
}

// leaks reports whether b contains the secret, as text or with any escape sequences. escaped is the
// secret with all characters escaped.
func leaks(b []byte, secret, escaped string) bool {
	low := strings.ReplaceAll(strings.ToLower(string(b)), `\`, "")
	return strings.Contains(low, secret) || strings.Contains(low, strings.ReplaceAll(escaped, `\`, ""))
}

// The time to process a line is proportional to its length. If it were quadratic, this test would
// not end. Large buffers are not kept.
func TestTimeIsProportionalToLength(t *testing.T) {
	const large = 3 << 19 // more than keptBytes
	size := race.Fewer(large, 4)
	rules := []Rule{
		{Where: where("a.b.c", "x*y*z", "!*q*q*q"), Set: []Setting{{"a.b", "x"}}}, {Add: []Setting{{"n.m", "x"}}}, {Set: []Setting{{"a", "x"}}}, {Rename: []Pair{{"b.c", "d"}, {"e", "f.g"}}},
		{Remove: []string{"x.y", "z", "a"}}, {Redact: &Redact{Keys: []string{"password", "*token", "card.number"}, Patterns: []string{"sk-[a-z]+"}}}, {Sample: &Sample{OneIn: 1, By: "msg"}},
	}
	c := chain(t, rules...)
	for name, line := range map[string]string{
		"text":             strings.Repeat("a", size),
		"string":           `{"msg":"` + strings.Repeat("a", large) + `"}`,
		"escapes":          `{"msg":"` + strings.Repeat(`\u0041`, size/6) + `"}`,
		"quotes":           `{"msg":"` + strings.Repeat(`\"`, large/2) + `"}`,
		"backslashes":      `{"msg":"` + strings.Repeat(`\\`, size/2) + `"}`,
		"broken escapes":   `{"msg":"` + strings.Repeat(`\u12`, size/4) + `"}`,
		"members":          `{` + strings.Repeat(`"a":1,`, size/6) + `"z":2}`,
		"passwords":        `{` + strings.Repeat(`"password":1,`, size/12) + `"z":2}`,
		"paths":            `{` + strings.Repeat(`"a":{"b":{}},`, size/12) + `"z":2}`,
		"deep":             strings.Repeat(`{"a":`, 9000) + `1` + strings.Repeat(`}`, 9000),
		"too deep":         strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat(`}`, 100_000),
		"too deep in text": `{"msg":"` + strings.Repeat(`{\"a\":`, 100_000) + `1` + strings.Repeat(`}`, 100_000) + `"}`,
		"lists":            `{"a":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}`,
		"open":             strings.Repeat(`{"password":[`, 100_000),
		"names in text":    strings.Repeat(`"password":`, size/11),
		"no UTF-8":         `{"msg":"` + strings.Repeat("\xff", size) + `"}`,
		"logfmt":           "level=info " + strings.Repeat("a=1 ", size/4),
		"logfmt quotes":    `level=info a="` + strings.Repeat(`\"`, size/2) + `"`,
	} {
		ev := parse(record.Auto, line+"\n")
		valid := ev.Format == record.JSON
		c.Apply(ev)
		if valid && !json.Valid(ev.Line) {
			t.Errorf("%s: the line is not valid JSON any more", name)
		}
		c.Apply(parse(record.Auto, "{}"))
		if cap(c.bufs[0]) > keptBytes || cap(c.bufs[1]) > keptBytes || cap(c.text) > keptBytes {
			t.Errorf("%s: the buffers are kept", name)
		}
	}
}

func TestApplyDoesNotAllocate(t *testing.T) {
	race.Skip(t)
	const line = `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","status":200,"http":{"path":"/v2","pin":"1234","x":{"pin":[1]}},"a":1}` + "\n"
	const pairs = `time=2024-05-06T07:08:09.123Z level=info msg="request served" method=GET status=200 a=1` + "\n"
	w := Where{{"level", []string{"info", "!error"}}, {"http.path", []string{"/v?", "!/v3*"}}, {"method", []string{"POST", "GET"}}, {"status", []string{"2*"}}}
	for name, rules := range map[string][]Rule{
		"add": {{Where: w, Add: []Setting{{"tenant", "shop"}, {"http.x.y", "\"z\""}, {"a", "x"}}}}, "set": {{Where: w, Set: []Setting{{"a", "x"}, {"http.path", "y"}, {"new", "z"}}}},
		"rename": {{Where: w, Rename: []Pair{{"a", "b"}, {"http.x", "x"}, {"missing", "m"}}}}, "remove": {{Where: w, Remove: []string{"a", "http.pin", "msg"}}},
		"redact": {{Where: w, Redact: &Redact{Keys: []string{"pin", "*token", "card.number"}}}}, "sample": {{Sample: &Sample{OneIn: 2, By: "http.path"}}},
		"pattern without a match": {{Redact: &Redact{Patterns: []string{"sk-[a-z]+"}}}},
	} {
		for _, in := range []string{line, pairs} {
			c := chain(t, rules...)
			given := parse(record.Auto, in, slog.String("tag", "web"))
			ev := *given
			if n := allocs.PerRun(100, func() {
				ev = *given
				c.Apply(&ev)
			}); n > 0 {
				t.Errorf("%s: %v allocations for %s", name, n, in)
			}
			if in == line && name != "sample" && !strings.HasPrefix(name, "pattern") && string(ev.Raw) == line {
				t.Errorf("%s: the rule did not change the line", name)
			}
		}
	}
}

func BenchmarkApply(b *testing.B) {
	const line = `{"time":"2024-05-06T07:08:09.123Z","level":"info","msg":"request served","method":"GET","path":"/v2/items","status":200,"took":0.0123,"client":"10.1.2.3","pin":"1234"}` + "\n"
	for name, rule := range map[string]Rule{
		"where": {Where: where("status", "5*"), Drop: true}, "add": {Add: []Setting{{"tenant", "shop"}}}, "set": {Set: []Setting{{"status", "204"}}}, "rename": {Rename: []Pair{{"client", "peer"}}},
		"remove": {Remove: []string{"client"}}, "redact": {Redact: &Redact{Keys: []string{"pin", "*token"}}}, "pattern": {Redact: &Redact{Patterns: []string{"sk-[a-z]{8}"}}},
	} {
		b.Run(name, func(b *testing.B) {
			c := chain(b, rule)
			given := parse(record.Auto, line)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			var ev record.Event
			for b.Loop() {
				ev = *given
				c.Apply(&ev)
			}
		})
	}
}
