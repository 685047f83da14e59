package record_test

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/forebay-log/forebay/internal/record"
)

// What is known of a line besides comes last, in whatever form the line is.
func TestMore(t *testing.T) {
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
