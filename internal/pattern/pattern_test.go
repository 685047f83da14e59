package pattern

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestParseRejectsUnbalancedBraces(t *testing.T) {
	for text, want := range map[string]string{
		"{":       "is not closed",
		"a{b":     "is not closed",
		"a}b":     "has no matching {",
		"{}":      "has no name",
		"{a{b}":   "not a field name",
		"{app}}":  "has no matching {",
		"logs.{}": "has no name",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{"": "", "logs": "logs", "a{{b}}": "a{b}"} {
		p, err := Parse(text)
		if got, fixed := p.Fixed(); err != nil || !fixed || got != want || p.String() != text {
			t.Errorf("%q: %q, %v, %v", text, got, fixed, err)
		}
	}
	if p, err := Parse("a.{b}.c"); err != nil {
		t.Error(err)
	} else if _, fixed := p.Fixed(); fixed || strings.Join(p.Texts(), "|") != "a.|.c" {
		t.Errorf("fixed %v, texts %q", fixed, p.Texts())
	}
}

func TestFillInsertsValues(t *testing.T) {
	logfmt, _ := encode.CodecFor("application/logfmt")
	jsonCodec, _ := encode.CodecFor("application/json")
	upper := func(dst, v []byte) []byte { return append(dst, strings.ToUpper(string(v))...) }
	for _, c := range []struct {
		pattern, rec string
		codec        batch.Codec
		level        slog.Level
		clean        func(dst, v []byte) []byte
		want         string
	}{
		{pattern: "logs", rec: "x", want: "logs"},
		{pattern: "logs.{level}", rec: "x", level: slog.LevelWarn, want: "logs.warn"},
		{pattern: "{level}", level: slog.LevelError + 4, want: "fatal"},
		{pattern: "{level}", level: slog.LevelDebug - 1, want: "trace"},
		{pattern: "{app}", rec: `{"app":"shop"}`, want: "shop"},
		{pattern: "{app}", rec: ` { "x" : [1,{"app":"no"}] , "app" : "shop" } ` + "\n", codec: jsonCodec, want: "shop"},
		{pattern: "{app}-{n}-{ok}", rec: `{"app":"a\u00e9\"b","n":-1.5e3,"ok":true}`, want: `aé"b--1.5e3-true`},
		{pattern: "{app}", rec: `{"app":""}`, want: ""},
		{pattern: "{app}", rec: `{"app":null}`, want: "-"},
		{pattern: "{app}", rec: `{"app":["x"]}`, want: "-"},
		{pattern: "{app}", rec: `{"other":1}`, want: "-"},
		{pattern: "{app}", rec: `not JSON`, want: "-"},
		{pattern: "{app}", rec: `{"app":"cut`, codec: jsonCodec, want: "-"},
		{pattern: "{a.b.c}", rec: `{"a":{"b":{"c":7}}}`, want: "7"},
		{pattern: "{a.b.c}", rec: `{"a":{"b":{"c":7}},"a.b.c":8}`, want: "8"},
		{pattern: "{a.b}", rec: `{"a":{"b":null},"a.c":1}`, want: "-"},
		{pattern: "{a.b}", rec: `{"a":1}`, want: "-"},
		{pattern: "{é}", rec: `{"\u00e9":"x"}`, want: "x"},
		{pattern: "{app}", rec: `app=shop n=1`, codec: logfmt, want: "shop"},
		{pattern: "l.{app}.{x}", rec: `{"app":"shop"}`, clean: upper, want: "l.SHOP.-"},
	} {
		p, err := Parse(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		f := Filler{Clean: c.clean, Missing: "-"}
		rec := batch.Record{Data: []byte(c.rec), Meta: batch.Meta{Level: c.level}}
		for range 2 {
			if got := string(f.Append([]byte("> "), &p, c.codec, &rec)); got != "> "+c.want {
				t.Errorf("%s of %s: %s, want %s", c.pattern, c.rec, got, c.want)
			}
		}
	}
}

func TestFillAllocatesNothing(t *testing.T) {
	p, err := Parse("logs.{app}.{user.id}.{level}")
	if err != nil {
		t.Fatal(err)
	}
	f, dst := Filler{}, make([]byte, 0, 100)
	rec := batch.Record{Data: []byte(`{"time":"2026","app":"sh\u00f6p","user":{"id":"x1"},"msg":"hello"}`)}
	if n := allocs.PerRun(100, func() { dst = f.Append(dst[:0], &p, nil, &rec) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// For every record, Append returns, and finds each member that encoding/json finds.
func FuzzFill(f *testing.F) {
	for _, s := range []string{`{"app":"x"}`, `{"a":{"app":1}}`, `{"app":"\ud800"}`, `{`, `[]`, "", `{"app":1}{"app":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("{app}")
		if err != nil {
			t.Fatal(err)
		}
		fill := Filler{Missing: "\xff"}
		got := string(fill.Append(nil, &p, nil, &batch.Record{Data: data}))
		var obj map[string]any
		if json.Unmarshal(data, &obj) != nil && got != "\xff" {
			t.Errorf("%q: %q", data, got)
		}
		if s, ok := obj["app"].(string); ok && strings.Count(string(data), "app") == 1 && !strings.Contains(string(data), "\\") && got != s && strings.ToValidUTF8(got, "") == got {
			t.Errorf("%q: %q, want %q", data, got, s)
		}
	})
}

func TestIsTextByCodec(t *testing.T) {
	if !IsText(nil) {
		t.Error("plain lines are no text")
	}
	for _, form := range []string{"application/json", "application/logfmt", "text/plain"} {
		if c, ok := encode.CodecFor(form); !ok || !IsText(c) {
			t.Errorf("%s is no text", form)
		}
	}
	if IsText(binary{}) {
		t.Error("a binary form is text")
	}
}

type binary struct{ batch.Codec }

func (binary) ContentType() string { return "application/x-binary" }
