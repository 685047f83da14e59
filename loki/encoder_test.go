package loki

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
)

func TestAttributesBecomeLabelsAndMetadata(t *testing.T) {
	long := strings.Repeat("x", 3000)
	many := Config{Labels: map[string]string{}, LabelAttrs: []string{"p1", "p2", "p3"}}
	for i := range 13 {
		many.Labels[fmt.Sprintf("s%02d", i)] = "v"
	}
	for _, tt := range []struct {
		name   string
		c      Config
		with   []func(encode.Scope) encode.Scope
		attrs  []slog.Attr
		labels string
		meta   map[string]string
		line   string
		count  counts
	}{
		{name: "level", labels: `{app="test", level="warn"}`},
		{name: "no level", c: Config{NoLevelLabel: true}, labels: `{app="test"}`},
		{name: "global wins over level", c: Config{Labels: map[string]string{"level": "mine"}}, labels: `{level="mine"}`},
		{name: "level name", c: Config{LevelName: "sev.erity"}, labels: `{app="test", sev_erity="warn"}`},
		{name: "attributes", c: Config{LabelAttrs: []string{"b", "http.method", "level", "app", "1x"}},
			attrs: []slog.Attr{slog.Int("b", 2), slog.Group("http", slog.String("method", "GET\n\"")), slog.String("level", "no"), slog.String("app", "no"), slog.String("1x", "y")},
			// Labels from attributes remain in the line.
			labels: `{_1x="y", app="test", b="2", http_method="GET\n\"", level="warn"}`,
			line:   `{"msg":"hi","b":2,"http":{"method":"GET\n\""},"level":"no","app":"no","1x":"y"}`},
		{name: "attribute of With, record wins", c: Config{LabelAttrs: []string{"a", "b"}}, with: []func(encode.Scope) encode.Scope{with(slog.Int("a", 1), slog.Int("b", 1))},
			attrs: []slog.Attr{slog.Int("b", 2)}, labels: `{a="1", app="test", b="2", level="warn"}`},
		{name: "attribute in open group", c: Config{LabelAttrs: []string{"g.a", "a"}}, with: []func(encode.Scope) encode.Scope{inGroup("g")},
			attrs: []slog.Attr{slog.Int("a", 2)}, labels: `{app="test", g_a="2", level="warn"}`},
		{name: "too long", c: Config{LabelAttrs: []string{"a"}}, attrs: []slog.Attr{slog.String("a", long)}, labels: `{app="test", level="warn"}`,
			meta: map[string]string{"a": long}, count: counts{labelTooLong: 1}},
		{name: "too many", c: many, attrs: []slog.Attr{slog.Int("p2", 2), slog.Int("p3", 3), slog.Int("p1", 1)},
			labels: `{level="warn", p1="1", s00="v", s01="v", s02="v", s03="v", s04="v", s05="v", s06="v", s07="v", s08="v", s09="v", s10="v", s11="v", s12="v"}`,
			meta:   map[string]string{"p2": "2", "p3": "3"}, count: counts{labelTooMany: 2}},
		{name: "typed values are alike", c: Config{LabelAttrs: []string{"id", "d", "t"}, MetadataAttrs: []string{"f", "e", "nan", "l"}},
			attrs:  []slog.Attr{slog.Any("id", someUUID), slog.Duration("d", time.Second), slog.Time("t", time.Unix(1, 5)), slog.Float64("f", 1.5), slog.Any("e", errors.New("bad")), slog.Float64("nan", nan()), slog.Any("l", []int{1})},
			labels: `{app="test", d="1000000000", id="01234567-89ab-cdef-fedc-ba9876543210", level="warn", t="1970-01-01T00:00:01.000000005Z"}`,
			meta:   map[string]string{"f": "1.5", "e": "bad", "nan": "NaN", "l": "[1]"}},
		{name: "metadata all", c: Config{MetadataAll: true}, with: []func(encode.Scope) encode.Scope{with(slog.Int("w", 1)), inGroup("g")},
			attrs:  []slog.Attr{slog.Int("a.b", 1), slog.Group("h", slog.Int("x", 2)), slog.Int("a_b", 3), slog.String("none", "")},
			labels: `{app="test", level="warn"}`, meta: map[string]string{"w": "1", "g_a_b": "1", "g_a_b_": "3", "g_h_x": "2"}},
		{name: "trace in metadata", c: Config{TraceID: inMetadata, SpanID: inNone}, with: []func(encode.Scope) encode.Scope{inGroup("g")},
			attrs:  []slog.Attr{slog.String("trace_id", "t1"), slog.String("span_id", "s1"), slog.Int("a", 1)},
			labels: `{app="test", level="warn"}`, meta: map[string]string{"trace_id": "t1"}, line: `{"msg":"hi","g":{"a":1}}`},
		{name: "trace of With", c: Config{TraceID: inMetadata}, with: []func(encode.Scope) encode.Scope{with(slog.String("trace_id", "t1"), slog.Int("a", 1))},
			labels: `{app="test", level="warn"}`, meta: map[string]string{"trace_id": "t1"}, line: `{"msg":"hi","a":1}`},
		{name: "metadata limits", c: Config{MetadataAll: true, Limits: Limits{MaxMetadataPairs: 2, MaxMetadataBytes: 10}},
			attrs:  []slog.Attr{slog.String("a", "1234567890"), slog.Int("b", 1), slog.Int("c", 2), slog.Int("d", 3)},
			labels: `{app="test", level="warn"}`, meta: map[string]string{"b": "1", "c": "2"}, count: counts{metadataLeftOut: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, w := range []string{wireProtobuf, wireJSON} {
				c := tt.c
				c.Wire = w
				if c.Labels == nil {
					c.Labels = map[string]string{"app": "test"}
				}
				p := new(peer)
				e := &encoded{t: t, s: sinkFor(t, p, c)}
				scope := e.s.Encoder().Scope()
				for _, f := range tt.with {
					scope = f(scope)
				}
				if err := e.add(scope, encode.Record{Level: slog.LevelWarn, Message: "hi", Attrs: tt.attrs}).send(); err != nil {
					t.Fatal(err)
				}
				r := p.requests()[0]
				if r.err != nil {
					t.Fatal(r.err)
				}
				st := r.streams[0]
				if w == wireProtobuf && st.Labels != tt.labels {
					t.Errorf("labels %s\nwant %s", st.Labels, tt.labels)
				}
				if !maps.Equal(st.Entries[0].Meta, tt.meta) {
					t.Errorf("%s: metadata %v, want %v", w, st.Entries[0].Meta, tt.meta)
				}
				if tt.line != "" && st.Entries[0].Line != tt.line {
					t.Errorf("%s: line %s, want %s", w, st.Entries[0].Line, tt.line)
				}
				if got := e.s.observed.counts(); got != tt.count {
					t.Errorf("%s: counted %v, want %v", w, got, tt.count)
				}
			}
		})
	}
}

func nan() float64 { z := 0.0; return z / z }

func TestLevelLabel(t *testing.T) {
	for l, want := range map[slog.Level]string{-8: "trace", -5: "trace", -4: "debug", -1: "debug", 0: "info", 3: "info", 4: "warn", 8: "error", 11: "error", 12: "fatal", 100: "fatal"} {
		if got := values.LevelWord(l); got != want {
			t.Errorf("%d: %s, want %s", l, got, want)
		}
	}
}

func TestTenantAttrSelectsTenant(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{Tenant: "main", TenantAttr: "org", Concurrency: 1})}
	scope := e.s.Encoder().Scope()
	now := time.Now()
	e.add(nil, event(now, 0, "a"))
	e.add(nil, event(now, 0, "b", slog.String("org", "other")))
	e.add(scope.WithAttrs([]slog.Attr{slog.String("org", "third")}), event(now, 0, "c"))
	e.add(scope.WithGroup("g"), event(now, 0, "d", slog.String("org", "main")))
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range p.requests() {
		for _, en := range r.streams[0].Entries {
			got[en.Line] = r.header["X-Scope-Orgid"][0]
		}
	}
	if want := map[string]string{`{"msg":"a"}`: "main", `{"msg":"b"}`: "other", `{"msg":"c"}`: "third", `{"msg":"d"}`: "main"}; !maps.Equal(got, want) {
		t.Errorf("tenants %v, want %v", got, want)
	}
}

func TestMaxStreamsLimitsStreams(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{LabelAttrs: []string{"user"}, TenantAttr: "org", Limits: Limits{MaxStreams: 10}})}
	for i := range 100 {
		e.add(nil, event(time.Now(), 0, "x", slog.Int("user", i)))
	}
	if n := e.s.Stats().Streams; n > 10 {
		t.Errorf("got %d streams", n)
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, st := range p.streams() {
		for _, en := range st.Entries {
			if m := en.Meta["user"]; m != "" {
				seen[m] = true
			} else {
				_, after, _ := strings.Cut(st.Labels, `user="`)
				seen[strings.TrimSuffix(after, `"}`)] = true
			}
		}
	}
	if len(seen) != 100 {
		t.Errorf("reported %d users", len(seen))
	}
}

// Another process can use the stream definitions that this process has stored. An invalid
// definition gets an id, and the records with this id are refused.
func TestDictionaryIsReadByOtherProcess(t *testing.T) {
	a, b := sinkFor(t, new(peer), Config{LabelAttrs: []string{"x"}, TenantAttr: "org"}), sinkFor(t, new(peer), Config{})
	_, m, err := a.Encoder().Scope().Append(nil, &encode.Record{Attrs: []slog.Attr{slog.String("x", "y\""), slog.String("org", "o")}})
	if err != nil {
		t.Fatal(err)
	}
	def, ok := a.streams.AppendStream([]byte("head"), m.Stream)
	if !ok || !bytes.HasPrefix(def, []byte("head")) {
		t.Fatalf("%q %v", def, ok)
	}
	id := b.streams.Stream(def[4:])
	st := b.streams.get(id)
	if string(st.labels) != `{app="test", level="info", x="y\""}` || st.tenant != "o" || b.streams.Stream(def[4:]) != id {
		t.Errorf("stream %s of %s", st.labels, st.tenant)
	}
	if _, ok := a.streams.AppendStream(nil, 999999); ok {
		t.Error("an id without a stream has a definition")
	}
	for _, bad := range []string{"", "\x02", "\x01\xff", "\x01\x03ab", "\x01\x01/{}", "\x01\x00x"} {
		if st := b.streams.get(b.streams.Stream([]byte(bad))); st == nil || !st.broken {
			t.Errorf("%q: %+v", bad, st)
		}
	}
	for i := range 1000 {
		def := append(appendStreamDef(nil, nil), fmt.Sprintf(`{a="%d"}`, i)...)
		if id := b.streams.Stream(def); b.streams.Stream(def) != id || !bytes.Equal(b.streams.get(id).key, def) {
			t.Fatal(i)
		}
	}
}

// If an earlier version has stored a stream definition with label values that Loki refuses, these
// values are replaced. All other definitions are unchanged.
func TestDictionaryOfEarlierVersionIsRepaired(t *testing.T) {
	s := sinkFor(t, new(peer), Config{TenantAttr: "org"})
	for in, want := range map[string]string{
		"{a=\"x\ufffdy\", b=\"é\"}":        `{a="x?y", b="é"}`,
		"{a=\"x\xffy\"}":                   `{a="x?y"}`,
		`{a="\ufffd", b="\xff\"", c="ok"}`: `{a="?", b="?\"", c="ok"}`,
		`{a="\U0000fffd\377"}`:             `{a="??"}`,
		`{a="\x01\n\\", b="ö"}`:            `{a="\x01\n\\", b="ö"}`,
		`{a="\ufffd", b=nonsense}`:         `{a="\ufffd", b=nonsense}`,
		`{a="\ufffd"; b="x"}`:              `{a="\ufffd"; b="x"}`,
		`{a="\ufffd"b=""c=""d=""e=""f=""}`: `{a="\ufffd"b=""c=""d=""e=""f=""}`,
		`{=""}b="\ufffd"a=""}`:             `{=""}b="\ufffd"a=""}`,
		`{a="\ufffd", }`:                   `{a="\ufffd", }`,
		`{a="1", b="2"}`:                   `{a="1", b="2"}`,
		`{}`:                               `{}`,
	} {
		st := s.streams.get(s.streams.Stream(append(appendStreamDef(nil, []byte("t")), in...)))
		if string(st.labels) != want || st.tenant != "t" || st.broken {
			t.Errorf("%s: got %s of %q", in, st.labels, st.tenant)
		}
	}
	// A repaired definition and a record with the same labels belong to the same stream.
	c := sinkFor(t, new(peer), Config{LabelAttrs: []string{"x"}})
	_, m, err := c.Encoder().Scope().Append(nil, &encode.Record{Attrs: []slog.Attr{slog.String("x", "a\xff")}})
	if err != nil {
		t.Fatal(err)
	}
	if id := c.streams.Stream(append(appendStreamDef(nil, nil), "{app=\"test\", level=\"info\", x=\"a\ufffd\"}"...)); id != m.Stream {
		t.Errorf("got stream ids %d and %d, want equal ids", id, m.Stream)
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	r := newRegistry(1<<20, false, new(observations))
	var wg sync.WaitGroup
	ids := make([][]uint32, 4)
	for w := range ids {
		wg.Go(func() {
			for i := range 3000 {
				key := append(appendStreamDef(nil, nil), fmt.Sprintf(`{a="%d"}`, i)...)
				st := r.find(key)
				if st == nil {
					st = r.add(key, false)
				}
				if got := r.get(st.id); got != st {
					t.Errorf("definition maps to another stream, %d", st.id)
				}
				ids[w] = append(ids[w], st.id)
			}
		})
	}
	wg.Wait()
	for w := range ids {
		if !reflect.DeepEqual(ids[w], ids[0]) {
			t.Error("the stream ids differ")
		}
	}
}

func TestCodecReadsEntries(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, w := range []string{wireProtobuf, wireJSON} {
		s := sinkFor(t, new(peer), Config{Wire: w, MetadataAttrs: []string{"k"}, TenantAttr: "org"})
		rec, m, err := s.Encoder().Scope().Append(nil, &encode.Record{Time: at, Message: "a\"b", Attrs: []slog.Attr{slog.String("k", "v"), slog.String("org", "o")}})
		if err != nil {
			t.Fatal(err)
		}
		got := string(s.Encoder().Codec().AppendJSON([]byte("x"), rec, m))
		want := `x{"time":"2026-01-02T03:04:05.000000006Z","labels":"{app=\"test\", level=\"info\"}","tenant":"o","line":{"msg":"a\"b","k":"v"},"metadata":{"k":"v"}}`
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", w, got, want)
		}
	}
}

// Gap markers are warnings in stream 0, because package deliver writes them with the id 0.
func TestGapMarkersAreInTheStreamOfWarnings(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON, wireGzip} {
		for _, noLabel := range []bool{false, true} {
			p := new(peer)
			s := sinkFor(t, p, Config{Wire: w, NoLevelLabel: noLabel, LabelAttrs: []string{"dropped"}})
			for _, ct := range []string{contentTypeProtobuf, contentTypeJSON} {
				codec := s.codecFor(ct, 0)
				e := &encoded{t: t, s: s}
				e.Append(codec.AppendMarker(nil, batch.Drops{batch.Full: 3}, time.Now()), 0, batch.Meta{Time: time.Now().UnixNano()})
				if got := sendIn(t, t.Context(), s, e.as(codec)); got != nil {
					t.Fatal(got)
				}
			}
			line, labels := `{"msg":"records dropped","dropped":3,"dropped_full":3}`, `{app="test", level="warn"}`
			if noLabel {
				line, labels = `{"msg":"records dropped","level":"warn","dropped":3,"dropped_full":3}`, `{app="test"}`
			}
			for _, r := range p.requests() {
				if st := r.streams[0]; st.Entries[0].Line != line || r.header["Content-Type"][0] == "application/x-protobuf" && st.Labels != labels {
					t.Errorf("%s: %+v", w, st)
				}
			}
		}
	}
}

// With GapLabels, gap markers go to a separate stream, without a warning event.
func TestGapLabelsMakeSeparateStream(t *testing.T) {
	p := new(peer)
	s := sinkFor(t, p, Config{GapLabels: map[string]string{"kind": "gap"}})
	codec := s.codecFor(contentTypeProtobuf, 0)
	e := &encoded{t: t, s: s}
	e.Append(codec.AppendMarker(nil, batch.Drops{batch.Full: 3}, time.Now()), 0, batch.Meta{Time: time.Now().UnixNano()})
	if got := sendIn(t, t.Context(), s, e.as(codec)); got != nil {
		t.Fatal(got)
	}
	late := &encoded{t: t, s: s}
	if err := late.add(nil, event(time.Now(), slog.LevelWarn, "late")).send(); err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, r := range p.requests() {
		for _, st := range r.streams {
			labels = append(labels, st.Labels)
		}
	}
	if want := []string{`{app="test", kind="gap", level="warn"}`, `{app="test", level="warn"}`}; fmt.Sprint(labels) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", labels, want)
	}
	for _, bad := range []map[string]string{{"app": "x"}, {"level": "x"}, {"": "x"}, {"kind": ""}, {"a.b": "x", "a_b": "y"}} {
		if _, err := newSink(Config{URL: "http://127.0.0.1:1", Labels: map[string]string{"app": "test"}, GapLabels: bad}); err == nil || !strings.Contains(err.Error(), "gap_labels") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// labelname.Tail can lengthen a name even if its buffer has no spare capacity.
func TestTailGrowsWithinFullBuffer(t *testing.T) {
	for _, name := range []string{"", "a", "010", "__x", "a.b", "é"} {
		for room := range 4 {
			buf := append(make([]byte, 0, 1+len(name)+room), 'x')
			got := labelname.Tail(append(buf, name...), 1)
			if want := "x" + labelname.Of(name); string(got) != want {
				t.Errorf("%q: got %q, want %q", name, got, want)
			}
		}
	}
}

func FuzzCodec(f *testing.F) {
	pb, js := sinkFor(f, new(peer), Config{MetadataAll: true}), sinkFor(f, new(peer), Config{Wire: wireJSON, MetadataAll: true})
	for _, s := range []*Driver{pb, js} {
		rec, _, _ := s.Encoder().Scope().Append(nil, &encode.Record{Time: time.Unix(1, 1), Message: "m\\\"", Attrs: []slog.Attr{slog.Int("a", 1)}})
		f.Add(rec)
		f.Add(rec[:len(rec)-2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range []*Driver{pb, js} {
			if out := s.Encoder().Codec().AppendJSON(nil, b, batch.Meta{}); !json.Valid(out) {
				t.Fatalf("%q becomes %q", b, out)
			}
			e := &encoded{t: t, s: s}
			e.Append(b, 0, batch.Meta{Time: time.Now().UnixNano()})
			_ = e.send() // Send must not panic
		}
	})
}

// The protobuf and the JSON encoding of a record have the same content for a strict decoder.
func FuzzEntry(f *testing.F) {
	f.Add("m", "k", "v", int64(1))
	f.Add("\xff\u2028", "a.b", "\"\\\n\x00", int64(-5))
	f.Fuzz(func(t *testing.T, msg, key, value string, n int64) {
		r := encode.Record{Time: time.Now(), Message: msg, Attrs: []slog.Attr{slog.String(key, value), slog.Int64(key, n), slog.Group(key, slog.String("x", value))}}
		c := Config{LabelAttrs: []string{"k"}, MetadataAll: true, BatchBytes: 4 << 10}
		a, la := encodeOne(t, c, r)
		c.Wire = wireJSON
		b, _ := encodeOne(t, c, r)
		if a.Line != b.Line || !maps.Equal(a.Meta, b.Meta) || !a.Time.Equal(b.Time) {
			t.Fatalf("protobuf %+v\njson %+v", a, b)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(a.Line), &m); err != nil {
			t.Fatalf("%s: %v", a.Line, err)
		}
		if _, labels, ok := parseStreamDef(append(appendStreamDef(nil, nil), la...)); !ok || !json.Valid(appendLabelsJSON(nil, labels)) {
			t.Fatalf("labels %s", la)
		}
	})
}

func TestAppendLineUsesConfigOfLabels(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		p := new(peer)
		s := sinkFor(t, p, Config{Wire: w, MetadataAttrs: []string{"k"}})
		rec, m, err := s.AppendLine(nil, time.Now(), slog.LevelError, []byte("raw \xff line"), []slog.Attr{slog.String("k", "v"), slog.String("z", "v")})
		if err != nil {
			t.Fatal(err)
		}
		e := &encoded{t: t, s: s}
		e.Append(rec, 0, m)
		if err := e.send(); err != nil {
			t.Fatal(err)
		}
		got := p.requests()[0].streams[0]
		if got.Entries[0].Line != "raw \ufffd line" || !maps.Equal(got.Entries[0].Meta, map[string]string{"k": "v"}) || !strings.Contains(got.Labels, "error") {
			t.Errorf("%s: %+v", w, got)
		}
		rec, _, err = s.AppendLine(nil, time.Now(), 0, []byte("line"), []slog.Attr{slog.String("k", "")})
		if err != nil || w == wireJSON && !bytes.HasSuffix(rec, []byte(`,"line"]`)) {
			t.Errorf("%s, metadata without a value: %q, %v", w, rec, err)
		}
	}
}

func TestEncodingAndPushingDoNotAllocate(t *testing.T) {
	race.Skip(t)
	failed := newCounting("outer", newCounting("inner", nil))
	simple := []slog.Attr{slog.Int("UserId", 42), slog.String("Action", "buy"), slog.String("ResourceId", "r-1"), slog.Float64("Elapsed", 1.25), slog.Bool("Ok", true), slog.Any("CorrelationId", someUUID)}
	for _, tt := range []struct {
		name  string
		c     Config
		attrs []slog.Attr
	}{
		{"simple", Config{}, simple},
		{"json", Config{Wire: wireJSON}, simple},
		{"labels and metadata", Config{LabelAttrs: []string{"Action"}, MetadataAttrs: []string{"ResourceId", "UserId"}, UniqueTimes: true}, simple},
		{"trace in metadata", Config{TraceID: inMetadata}, append(simple, slog.String("trace_id", "abc"))},
		{"errors", Config{}, []slog.Attr{slog.Any("err", failed)}},
		{"errors as objects", Config{Line: Line{Errors: "object"}}, []slog.Attr{slog.Any("err", failed)}},
		{"objects and metadata", Config{MetadataAll: true, Line: Line{Errors: "exception"}}, []slog.Attr{slog.Any("err", failed), slog.Int("n", 1)}},
		{"collisions in front", Config{Line: Line{Collisions: "prefix"}}, []slog.Attr{slog.Any("err", failed)}},
		{"errors in metadata", Config{MetadataAll: true}, []slog.Attr{slog.Any("err", failed), slog.Int("n", 1)}},
		{"groups in metadata", Config{MetadataAll: true}, []slog.Attr{slog.Group("g", "a", 1, slog.Group("h", "b", someUUID))}},
	} {
		s := sinkFor(t, new(peer), tt.c)
		scope := s.Encoder().Scope()
		r := encode.Record{Time: time.Now(), Message: "hello", Attrs: tt.attrs}
		dst := make([]byte, 0, 4096)
		if n := allocs.PerRun(200, func() {
			var err error
			if dst, _, err = scope.Append(dst[:0], &r); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
	s := sinkFor(t, stored204{}, Config{})
	e := &encoded{t: t, s: s}
	for i := range 3000 {
		e.add(nil, event(time.Now(), 0, fmt.Sprint(i), simple...))
	}
	b := e.as(e.s.Encoder().Codec())
	if n := allocs.PerRun(20, func() {
		if o := sendIn(t, t.Context(), s, b); o != nil {
			t.Fatal(o)
		}
	}); n > 40 {
		t.Errorf("a session with a push of 3000 records: %v allocations", n)
	}
	// Within one session a push allocates only the response, which the transport creates.
	l := &life{ctx: t.Context()}
	ses, err := s.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	if n := allocs.PerRun(20, func() {
		l.answers = l.answers[:0]
		if err := ses.Send(b); err != nil || len(l.answers) != 1 {
			t.Fatal(err, l.answers)
		}
	}); n > 1 {
		t.Errorf("a push of 3000 records: %v allocations", n)
	}
	ses.Close()
}

// Records of an invalid tenant become dead letters when they are sent, even by another process. So
// do records of a new tenant if MaxStreams streams exist. The dead letter contains the tenant in
// its metadata.
func TestRecordsOfInvalidTenantBecomeDeadLetters(t *testing.T) {
	for _, wire := range []string{"protobuf", "json"} {
		for reason, tenant := range map[string]string{"bad-tenant": "no/slash", "streams-full": "new"} {
			p := new(peer)
			c := Config{LabelAttrs: []string{"user"}, TenantAttr: "org", Wire: wire, Limits: Limits{MaxStreams: 8}}
			a := &encoded{t: t, s: sinkFor(t, p, c)}
			for i := range 10 {
				a.add(nil, event(time.Now(), 0, "x", slog.Int("user", i)))
			}
			if err := a.send(); err != nil {
				t.Fatal(err)
			}
			before := a.s.observed.counts()
			other := &encoded{t: t, s: sinkFor(t, p, c)} // another process, which reads the streams from a spool
			for _, attr := range []slog.Attr{slog.String("org", tenant), slog.Attr{}} {
				rec, m, err := a.s.Encoder().Scope().Append(nil, &encode.Record{Time: time.Now(), Message: "y", Attrs: []slog.Attr{attr}})
				if err != nil {
					t.Fatal(err)
				}
				a.Append(rec, 0, m)
				def, _ := a.s.streams.AppendStream(nil, m.Stream)
				m.Stream = other.s.streams.Stream(def)
				other.Append(rec, 0, m)
			}
			for name, e := range map[string]*encoded{"first": a, "other": other} {
				o := e.send()
				bad := len(o.refused())
				if bad != 1 || !o.Open.Empty() || !strings.Contains(o.Refusal.Error(), "the tenant") {
					t.Errorf("%s %s: %v", name, reason, o)
					continue
				}
				if got := e.s.observed.counts(); got.byReason()[reason] != before.byReason()[reason]+1 && name == "first" {
					t.Errorf("%s: counted %v, before %v", reason, got.byReason(), before.byReason())
				}
				b := e.as(e.s.Encoder().Codec())
				text := b.Codec.AppendJSON(nil, b.At(o.refused()[0]).Data, b.At(o.refused()[0]).Meta)
				if want := `"metadata":{"org":"` + tenant + `"}`; !strings.Contains(string(text), want) || !strings.Contains(string(text), `"msg":"y"`) {
					t.Errorf("%s %s: %s", name, reason, text)
				}
			}
		}
	}
}

// If label values have used up MaxStreams, records of a tenant that has a stream lose their labels
// from attributes. No record is lost, at any level.
func TestTenantWithStreamLosesLabelsNotRecords(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{LabelAttrs: []string{"user"}, TenantAttr: "org", Limits: Limits{MaxStreams: 10}})}
	for i := range 40 {
		for k, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			e.add(nil, event(time.Now(), level, "x", slog.Int("user", 3*i+k), slog.String("org", "known")))
		}
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	if n := len(p.lines()); n != 120 {
		t.Errorf("%d of 120 records arrived", n)
	}
	if n := e.s.Stats().Streams; n > 10+len(levelNames) {
		t.Errorf("got %d streams", n)
	}
	if n := e.s.observed.counts()[streamsFull]; n != 116 {
		t.Errorf("counted %d labels, want 116", n)
	}
}

// A line without a level has no level label, but its stream has at least one label.
func TestLineWithoutLevelHasNoLevelLabel(t *testing.T) {
	for want, c := range map[string]Config{
		`{app=\"x\"}`:            {Labels: map[string]string{"app": "x"}},
		`{k=\"v\"}`:              {LabelAttrs: []string{"k"}},
		`{severity=\"unknown\"}`: {LevelName: "severity"},
	} {
		c.URL = "http://h:3100"
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		rec, m, err := s.AppendLine(nil, time.Now(), batch.NoLevel, []byte("line"), []slog.Attr{slog.String("k", "v")})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(s.Encoder().Codec().AppendJSON(nil, rec, m)); !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
