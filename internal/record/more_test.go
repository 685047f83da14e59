package record_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// Additional fields of the input (Event.More) are written last, for any format of the line.
func TestFieldsOfTheInputFollowThoseOfTheLine(t *testing.T) {
	more := []slog.Attr{slog.String("pod", "a b"), slog.String("container", "c")}
	for _, c := range []struct{ in, json, logfmt string }{
		{`{"a": 1 } ` + "\n", `{"a": 1,"pod":"a b","container":"c"}`, `a=1 pod="a b" container=c`},
		{"{}\n", `{"pod":"a b","container":"c"}`, `pod="a b" container=c`},
		{"{ }", `{"pod":"a b","container":"c"}`, `pod="a b" container=c`},
		{"a=1 b=2\n", `{"a":1,"b":2,"pod":"a b","container":"c"}`, `a=1 b=2 pod="a b" container=c`},
		{"some text\n", `{"msg":"some text","pod":"a b","container":"c"}`, `msg="some text" pod="a b" container=c`},
	} {
		for as, want := range map[record.Encoding]string{record.AsJSON: c.json, record.AsLogfmt: c.logfmt, record.AsRaw: ""} {
			var ev record.Event
			new(record.Parser).Parse([]byte(c.in), &ev)
			ev.More = more
			got, err := record.NewEncoder(as).Encode(&ev)
			if as == record.AsRaw {
				want = c.in
			} else {
				want += "\n"
			}
			if err != nil || string(got) != want {
				t.Errorf("%q as %s: %s (%v), want %s", c.in, as, got, err, want)
			}
			if as == record.AsJSON && !json.Valid(got) {
				t.Errorf("%s is not valid", got)
			}
		}
	}
}

// The names in the output are unique. A field of the line keeps its name. An input field of the
// same name is renamed, or omitted if both have the same value.
func TestFieldsOfTheInputHaveUniqueNames(t *testing.T) {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for _, c := range []struct {
		in, json, logfmt string
		more             []slog.Attr
	}{
		{`{"pod":"mine","a":1}`, `{"pod":"mine","a":1,"input.pod":"p","stream":"out"}`, `pod=mine a=1 input.pod=p stream=out`, nil},
		{`{"\u0070od":"p","stream":1}`, `{"\u0070od":"p","stream":1,"input.stream":"out"}`, `pod=p stream=1 input.stream=out`, nil},
		{`{"\u0070od":"mine"}`, `{"\u0070od":"mine","input.pod":"p","stream":"out"}`, `pod=mine input.pod=p stream=out`, nil},
		{`{"pod":"mine","input.pod":"too"}`, `{"pod":"mine","input.pod":"too","input.input.pod":"p","stream":"out"}`, `pod=mine input.pod=too input.input.pod=p stream=out`, nil},
		{`{"pod":{"pod":"in"},"stream":"out"}`, `{"pod":{"pod":"in"},"stream":"out","input.pod":"p"}`, `pod.pod=in stream=out input.pod=p`, nil},
		{"pod=mine stream=out", `{"pod":"mine","stream":"out","input.pod":"p"}`, `pod=mine stream=out input.pod=p`, nil},
		{"some text", `{"msg":"some text","tag":"a","input.tag":"b","input.input.tag":"c","input.msg":"m"}`,
			`msg="some text" tag=a input.tag=b input.input.tag=c input.msg=m`,
			[]slog.Attr{slog.String("tag", "a"), slog.String("tag", "b"), slog.String("tag", "a"), slog.String("tag", "c"), slog.String("msg", "m"), slog.String("msg", "some text")}},
		{"2026-05-06T07:08:09Z ERROR x", `{"time":"2026-05-06T07:08:09.000000000Z","level":"ERROR","msg":"2026-05-06T07:08:09Z ERROR x","input.time":"t"}`,
			`time=2026-05-06T07:08:09.000000000Z level=ERROR msg="2026-05-06T07:08:09Z ERROR x" input.time=t`,
			[]slog.Attr{slog.String("time", "t"), slog.Time("time", at), slog.String("level", "ERROR")}},
		{"ok ", `{"msg":"ok ","level":"x","time":"t"}`, `msg="ok " level=x time=t`, []slog.Attr{slog.String("level", "x"), slog.String("time", "t")}},
	} {
		for as, want := range map[record.Encoding]string{record.AsJSON: c.json, record.AsLogfmt: c.logfmt} {
			var ev record.Event
			new(record.Parser).Parse([]byte(c.in), &ev)
			if ev.More = c.more; ev.More == nil {
				ev.More = []slog.Attr{slog.String("pod", "p"), slog.String("stream", "out")}
			}
			enc := record.NewEncoder(as)
			for range 2 {
				if got, err := enc.Encode(&ev); err != nil || string(got) != want+"\n" {
					t.Errorf("%q as %s: %s (%v), want %s", c.in, as, got, err, want)
				}
			}
		}
	}
}
