package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
)

type user struct {
	Name string `json:"name"`
	Age  int    `json:"age"`
}

type lazy struct{ v slog.Value }

func (l lazy) LogValue() slog.Value { return l.v }

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }

func shown(t testing.TB, s encode.Scope, r *encode.Record) string {
	t.Helper()
	rec, m, err := s.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	if !isRecord(rec) {
		t.Fatalf("invalid record: %x", rec)
	}
	return string(codec{}.AppendJSON(nil, rec, m))
}

// Each kind of attribute, group and id becomes the documented field of a record.
func TestRecordFields(t *testing.T) {
	x := exporterFor(t, new(peer), nil)
	at := time.Unix(1, 5).UTC()
	root := x.Encoder().Scope()
	const trace, span = "0102030405060708090a0b0c0d0e0f10", "0102030405060708"
	for _, tc := range []struct {
		name  string
		scope encode.Scope
		level slog.Level
		attrs []slog.Attr
		want  string // JSON after the body
	}{
		{"none", root, 0, nil, ``},
		{"scalars", root, slog.LevelError, []slog.Attr{slog.String("s", "a\xff"), slog.Int("i", -1), slog.Uint64("u", math.MaxUint64), slog.Uint64("v", 7), slog.Float64("f", 1.5),
			slog.Float64("nan", math.NaN()), slog.Bool("b", true), slog.Bool("c", false), slog.Duration("d", time.Second), slog.Time("t", at), slog.Any("nil", nil), slog.Any("raw", []byte{1, 2})},
			`,"attributes":{"s":"a�","i":-1,"u":"18446744073709551615","v":7,"f":1.5,"nan":"NaN","b":true,"c":false,"d":1000000000,"t":"1970-01-01T00:00:01.000000005Z","nil":null,"raw":"AQI="}`},
		{"values", root, slog.Level(3), []slog.Attr{slog.Any("err", errors.New("boom")), slog.Any("user", user{"é\n", 3}), slog.Any("list", []any{1, 2.5, "x", nil, true, []int{}}), slog.Any("m", map[string]any{"a": map[string]int{}}),
			slog.Any("lazy", lazy{slog.GroupValue(slog.Int("x", 1))}), slog.Any("big", json.Number("123456789012345678901234567890"))},
			`,"attributes":{"err":"boom","user":{"name":"é\n","age":3},"list":[1,2.5,"x",null,true,[]],"m":{"a":{}},"lazy":{"x":1},"big":"123456789012345678901234567890"}`},
		{"groups", root.WithAttrs([]slog.Attr{slog.Int("a", 1)}).WithGroup("g").WithAttrs([]slog.Attr{slog.Int("b", 2)}).WithGroup("h"), 0,
			[]slog.Attr{slog.Group("i", "c", 3), slog.Group("", "d", 4), slog.Group("empty"), {}}, `,"attributes":{"a":1,"g":{"b":2,"h":{"i":{"c":3},"d":4}}}`},
		{"empty groups", root.WithGroup("g").WithGroup("h"), 0, nil, ``},
		{"ids", root.WithGroup("g"), 0, []slog.Attr{slog.String("trace_id", trace), slog.String("span_id", span), slog.Int("a", 1)},
			`,"attributes":{"g":{"a":1}},"trace_id":"` + trace + `","span_id":"` + span + `"`},
		{"no ids", root, 0, []slog.Attr{slog.String("trace_id", strings.Repeat("0", 32)), slog.String("span_id", "zz02030405060708"), slog.Group("g", "trace_id", trace)},
			`,"attributes":{"trace_id":"` + strings.Repeat("0", 32) + `","span_id":"zz02030405060708","g":{"trace_id":"` + trace + `"}}`},
		{"ids of With", root.WithAttrs([]slog.Attr{slog.String("trace_id", trace)}), 0, nil, `,"trace_id":"` + trace + `"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := shown(t, tc.scope, &encode.Record{Time: at, Level: tc.level, Message: "m", Attrs: tc.attrs})
			body := `{"time":"1970-01-01T00:00:01.000000005Z","level":"` + tc.level.String() + `","body":"m"`
			if !sameJSON(t, got, body+tc.want+"}") {
				t.Errorf("got  %s\nwant %s", got, body+tc.want+"}")
			}
		})
	}
	for l, want := range map[slog.Level]string{-8: "TRACE", 12: "FATAL", 13: "ERROR+5"} {
		if got := shown(t, root, &encode.Record{Level: l}); !strings.Contains(got, `"level":"`+want+`"`) {
			t.Errorf("%d: %s", l, got)
		}
	}
	got := shown(t, root, &encode.Record{Time: at, Attrs: []slog.Attr{slog.Any("p", panics{})}})
	if !strings.Contains(got, "no") || !json.Valid([]byte(got)) {
		t.Errorf("a value that panics: %s", got)
	}
	if got := shown(t, root, &encode.Record{Message: "m"}); strings.Contains(got, `"time"`) {
		t.Errorf("record without a time: %s", got)
	}
}

// sameJSON compares two objects. It ignores the order of their top-level members only.
func sameJSON(t testing.TB, a, b string) bool {
	var x, y map[string]json.RawMessage
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil || len(x) != len(y) {
		return false
	}
	for k := range x {
		if string(x[k]) != string(y[k]) {
			return false
		}
	}
	return true
}

// Values nested deeper than maxDepth are written as text.
func TestValuesBelowDepthLimitAreText(t *testing.T) {
	x := exporterFor(t, new(peer), nil)
	s := x.Encoder().Scope()
	for range 40 {
		s = s.WithGroup("g")
	}
	list := []any{}
	attr := slog.Int("x", 1)
	for range 60 {
		list, attr = []any{list}, slog.Attr{Key: "h", Value: slog.GroupValue(attr, slog.Any("t", token("secret")))}
	}
	for _, s := range []encode.Scope{s, x.Encoder().Scope()} {
		rec, _, err := s.Append(nil, &encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("l", list), attr}})
		if err != nil {
			t.Fatal(err)
		}
		_, data, _, _, _ := next(rec)
		if n := deepest(data, tagAttr); n > 3*maxDepth+8 {
			t.Errorf("messages have depth %d", n)
		}
		if !bytes.Contains(rec, []byte(`{"h":{"x":1,"t":"hidden"},"t":"hidden"}`)) || bytes.Contains(rec, []byte("secret")) {
			t.Errorf("got %q", rec)
		}
	}
}

// A token hides its value with LogValue.
type token string

func (token) LogValue() slog.Value { return slog.StringValue("hidden") }

// deepest returns the maximum nesting depth of the messages in b. At the top level, only fields
// whose tag is the parameter top count.
func deepest(b []byte, top byte) (depth int) {
	for len(b) > 0 {
		tag, data, _, rest, ok := next(b)
		if !ok {
			return depth
		}
		b = rest
		if tag == top {
			depth = max(depth, 1+deepestPair(data))
		}
	}
	return depth
}

func deepestPair(kv []byte) int {
	for len(kv) > 0 {
		tag, data, _, rest, ok := next(kv)
		if !ok {
			return 0
		}
		kv = rest
		if tag == tagValue {
			return 1 + deepestAny(data)
		}
	}
	return 0
}

func deepestAny(v []byte) (most int) {
	tag, data, _, _, ok := next(v)
	if !ok || tag != tagList && tag != tagArray {
		return 0
	}
	for len(data) > 0 {
		_, item, _, rest, ok := next(data)
		if !ok {
			return most
		}
		data = rest
		if tag == tagList {
			most = max(most, 2+deepestPair(item))
		} else {
			most = max(most, 2+deepestAny(item))
		}
	}
	return most
}

// No list of pairs has a duplicate key, at any depth: the second attribute with the same key gets a
// "_".
func TestKeysAreUnique(t *testing.T) {
	const trace, other = "0102030405060708090a0b0c0d0e0f10", "0102030405060708090a0b0c0d0e0f11"
	const span, otherSpan = "0102030405060708", "0102030405060709"
	group := func(s encode.Scope) encode.Scope { return s.WithGroup("g") }
	with := func(attrs ...slog.Attr) func(encode.Scope) encode.Scope {
		return func(s encode.Scope) encode.Scope { return s.WithAttrs(attrs) }
	}
	for name, tc := range map[string]struct {
		scope []func(encode.Scope) encode.Scope
		attrs []slog.Attr
		want  string
	}{
		"call":   {nil, []slog.Attr{slog.Int("a", 1), slog.String("a", "x"), slog.Any("a", nil), slog.Bool("b", true), slog.Duration("b", 2), slog.Any("b", []byte("x"))}, `"a":1,"a_":"x","a__":null,"b":true,"b_":2,"b__":"eA=="`},
		"kinds":  {nil, []slog.Attr{slog.Float64("a", 1.5), slog.Uint64("a", 2), slog.Any("a", errors.New("e")), slog.Any("a", user{"n", 1}), slog.Any("a", json.RawMessage(`"x"`)), slog.Group("a", "a", 1)}, `"a":1.5,"a_":2,"a__":"e","a___":{"name":"n","age":1},"a____":"x","a_____":{"a":1}`},
		"with":   {[]func(encode.Scope) encode.Scope{with(slog.Int("a", 1), slog.Int("a", 2)), with(slog.Int("a", 3))}, []slog.Attr{slog.Int("a", 4), slog.Int("b", 5)}, `"a":1,"a_":2,"a__":3,"a___":4,"b":5`},
		"groups": {[]func(encode.Scope) encode.Scope{with(slog.Int("g", 1)), group, with(slog.Int("g", 2)), group}, []slog.Attr{slog.Int("a", 3), slog.Int("a", 4), slog.Group("h", "a", 5), slog.Group("h", "a", 6)}, `"g":1,"g_":{"g":2,"g_":{"a":3,"a_":4,"h":{"a":5},"h_":{"a":6}}}`},
		"inline": {nil, []slog.Attr{slog.Int("a", 1), slog.Group("", "a", 2), slog.Group("", slog.Group("", "a", 3))}, `"a":1,"a_":2,"a__":3`},
		"empty":  {nil, []slog.Attr{slog.Group("a", slog.Group("b")), slog.Int("a", 1), slog.Group("a")}, `"a":1`},
		"JSON":   {nil, []slog.Attr{slog.Any("a", json.RawMessage(`{"x":1,"x":[{"y":1,"y":2}],"\u0078":3}`)), slog.Int("x", 1)}, `"a":{"x":1,"x_":[{"y":1,"y_":2}],"x__":3},"x":1`},
		"bytes":  {nil, []slog.Attr{slog.Int("a\xff", 1), slog.Int("a\xfe", 2)}, "\"a\ufffd\":1,\"a\ufffd_\":2"},
		"ids": {[]func(encode.Scope) encode.Scope{with(slog.String("trace_id", trace))}, []slog.Attr{slog.String("trace_id", trace), slog.String("trace_id", other), slog.String("span_id", span), slog.String("span_id", otherSpan), slog.String("span_id", "x")},
			`"trace_id":"` + other + `","span_id":"` + otherSpan + `","span_id_":"x"},"trace_id":"` + trace + `","span_id":"` + span + `"`},
	} {
		s := exporterFor(t, new(peer), nil).Encoder().Scope()
		for _, f := range tc.scope {
			s = f(s)
		}
		for range 2 { // encoded into the same memory
			got := shown(t, s, &encode.Record{Message: "m", Attrs: tc.attrs})
			if _, attrs, _ := strings.Cut(got, `"attributes":{`); strings.TrimRight(attrs, "}") != strings.TrimRight(tc.want, "}") && !sameJSON(t, got, `{"level":"INFO","body":"m","attributes":{`+tc.want+`}`) {
				t.Errorf("%s: got  %s\nwant %s", name, got, tc.want)
			}
			if unique := string(new(keyset.Set).AppendJSON(nil, []byte(got), "", "")); unique != got {
				t.Errorf("%s: duplicate key in %s", name, got)
			}
		}
	}
	x := exporterFor(t, new(peer), func(c *Config) { c.AddSource = true })
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	r := &encode.Record{Message: "m", PC: pcs[0], Attrs: []slog.Attr{slog.Int("code.line.number", 1)}}
	if got := shown(t, x.Encoder().Scope(), r); !strings.Contains(got, `"code.line.number_":1`) {
		t.Errorf("with the source: %s", got)
	}
	rec, m, err := x.AppendLine(nil, time.Time{}, batch.NoLevel, []byte("line"), []slog.Attr{slog.Int("a", 1), slog.Int("a", 2)})
	if got := string(codec{}.AppendJSON(nil, rec, m)); err != nil || got != `{"body":"line","attributes":{"a":1,"a_":2}}` {
		t.Errorf("line: %s, %v", got, err)
	}
}

// A time that OTLP cannot represent is written as an attribute, and the observed time is the
// current time.
func TestUnrepresentableTimeIsAttribute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := exporterFor(t, new(peer), nil)
		now := uint64(time.Now().UnixNano())
		for text, valid := range map[string]bool{
			"1969-12-31T23:59:59.999999999Z": false, "1970-01-01T00:00:00Z": false, "1970-01-01T00:00:00.000000001Z": true, "2026-01-02T03:04:05Z": true,
			"2262-04-11T23:47:14.999999999Z": true, "2262-04-11T23:47:15Z": false, "0001-01-01T00:00:00.000000001Z": false, "9999-12-31T23:59:59Z": false,
		} {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			attrs := []slog.Attr{slog.Int("original_time", 1)}
			rec, m, err := x.Encoder().Scope().Append(nil, &encode.Record{Time: at.In(time.FixedZone("", 3600)), Message: "m", Attrs: attrs})
			line, ml, errLine := x.AppendLine(nil, at, slog.LevelInfo, []byte("m"), attrs)
			if err != nil || errLine != nil {
				t.Fatal(err, errLine)
			}
			for _, rec := range [][]byte{rec, line} {
				got := string(codec{}.AppendJSON(nil, rec, m))
				want := `{"time":"` + text + `","level":"INFO","body":"m","attributes":{"original_time":1}}`
				observed := uint64(at.UnixNano())
				if !valid {
					want, observed = `{"level":"INFO","body":"m","attributes":{"original_time":"`+text+`","original_time_":1}}`, now
				}
				if got != want || observedOf(t, rec) != observed {
					t.Errorf("%s: %s, observed at %d", text, got, observedOf(t, rec))
				}
			}
			if want := values.UnixNano(at); m.Time != want || ml.Time != want {
				t.Errorf("%s: the metadata has %d and %d, want %d", text, m.Time, ml.Time, want)
			}
		}
	})
}

// observedOf returns the observed time of a record in Unix ns.
func observedOf(t *testing.T, rec []byte) uint64 {
	t.Helper()
	_, data, _, _, _ := next(rec)
	for len(data) > 0 {
		tag, _, n, rest, ok := next(data)
		if !ok {
			t.Fatal("invalid record")
		}
		if data = rest; tag == tagObserved {
			return n
		}
	}
	t.Fatal("the record has no observed time")
	return 0
}

func TestSlogtest(t *testing.T) {
	var p *peer
	var log *forebay.Logger
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		p = new(peer)
		log = loggerFor(t, p)
		return log.Slog().Handler()
	}, func(t *testing.T) map[string]any {
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal([]byte(p.records()[0]), &m); err != nil {
			t.Fatal(err)
		}
		if attrs, ok := m["attributes"].(map[string]any); ok {
			for k, v := range attrs {
				m[k] = v
			}
		}
		m[slog.MessageKey] = m["body"]
		return m
	})
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	race.Skip(t)
	s := exporterFor(t, new(peer), nil).Encoder().Scope().WithAttrs([]slog.Attr{slog.String("a", "b")}).WithGroup("g")
	r := &encode.Record{Time: time.Now(), Message: "User 42 performed purchase", Attrs: []slog.Attr{slog.Int("id", 42), slog.String("s", "x"), slog.Float64("f", 1.5), slog.Bool("b", true),
		slog.Duration("d", time.Second), slog.String("trace_id", "0102030405060708090a0b0c0d0e0f10"), slog.Group("g", "x", 1), slog.Time("t", time.Now()),
		slog.Any("j", json.RawMessage(`{"a":1,"b":"text \n","c":[1,2.5],"d":{"e":true,"f":null}}`))}}
	dst := make([]byte, 0, 1<<10)
	if n := allocs.PerRun(1000, func() { dst, _, _ = s.Append(dst[:0], r) }); n > 0 {
		t.Errorf("Append allocates %v times", n)
	}
}

func TestGapMarkerHasDropsByReason(t *testing.T) {
	var d batch.Drops
	d[batch.Full] = 3
	c := exporterFor(t, new(peer), func(c *Config) { c.AddSource = true }).Encoder().Codec()
	got := string(c.AppendJSON(nil, c.AppendMarker(nil, d, time.Unix(1, 0)), batch.Meta{}))
	if want := `{"time":"1970-01-01T00:00:01Z","level":"WARN","body":"records dropped","attributes":{"dropped":3,"dropped_full":3}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := string(c.AppendJSON(nil, []byte("xy\xff"), batch.Meta{})); got != `{"raw":"xy�"}` && !json.Valid([]byte(got)) {
		t.Errorf("raw: %s", got)
	}
}

// The codec converts any content of a spool to a JSON object.
func FuzzCodec(f *testing.F) {
	x := exporterFor(f, new(peer), nil)
	rec, _, _ := x.AppendLine(nil, time.Unix(1, 0), batch.NoLevel, []byte("line"), []slog.Attr{slog.Any("l", []any{1, map[string]any{"a": nil}})})
	f.Add(rec)
	f.Add([]byte("\x12\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m map[string]any
		if js := x.Encoder().Codec().AppendJSON(nil, b, batch.Meta{}); json.Unmarshal(js, &m) != nil {
			t.Errorf("%x is %s", b, js)
		}
	})
}

// With any text in a message, a key or a json.RawMessage, the record is decoded to valid JSON
// without duplicate keys in an object.
func FuzzValue(f *testing.F) {
	x := exporterFor(f, new(peer), nil)
	for _, s := range []string{`{"a":1,"a":{"b":1,"\u0062":2}}`, `{"a":[1,2.5,"x\u00e9\n",null,true],"b":{}}`, `[[[]]]`, `"x"`, `1e400`, `123456789012345678901`, `-0.5`, `{`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := shown(t, x.Encoder().Scope(), &encode.Record{Message: s, Attrs: []slog.Attr{slog.String(s, s), slog.Any("v", json.RawMessage(s))}})
		if !json.Valid([]byte(got)) {
			t.Errorf("%q is %s", s, got)
		}
		if unique := string(new(keyset.Set).AppendJSON(nil, []byte(got), "", "")); unique != got {
			t.Errorf("%q: duplicate key in %s", s, got)
		}
	})
}

// The functions partialProto and partialJSON do not panic, whatever the response.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x0a\x07\x08\x02\x12\x03bad"))
	f.Add([]byte(`{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"bad"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		partialProto(b)
		partialJSON(b)
	})
}
