package loki

import (
	"log/slog"
	"testing"

	"github.com/forebay-log/forebay/encode"
)

// TestNoKeyTwice: whatever keys are called, none stands twice in a line.
func TestNoKeyTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		c     Config
		attrs []slog.Attr
		with  []func(encode.Scope) encode.Scope
		want  string
	}{
		"level and message":  {c: Config{MessageKey: "level", NoLevelLabel: true}, want: `{"level":"m","level_":"info"}`},
		"bytes":              {attrs: []slog.Attr{slog.Int("a\xff", 1), slog.Int("a\xfe", 2), slog.Int("a\ufffd", 3)}, want: `{"Message":"m","a` + "\ufffd" + `":1,"a` + "\ufffd" + `_":2,"a` + "\ufffd" + `__":3}`},
		"bytes of a group":   {with: []func(encode.Scope) encode.Scope{with(slog.Int("g\xff", 1)), inGroup("g\xfe")}, attrs: []slog.Attr{slog.Int("a", 2)}, want: `{"Message":"m","g` + "\ufffd" + `":1,"g` + "\ufffd" + `_":{"a":2}}`},
		"bytes of a message": {c: Config{MessageKey: "m\xff"}, attrs: []slog.Attr{slog.Int("m\xfe", 1)}, want: `{"m` + "\ufffd" + `":"m","m` + "\ufffd" + `_":1}`},
	} {
		for _, w := range []Wire{Protobuf, JSON} {
			tt.c.Wire = w
			e, _ := one(t, tt.c, encode.Record{Message: "m", Attrs: tt.attrs}, tt.with...)
			if e.Line != tt.want {
				t.Errorf("%s: got %q, want %q", name, e.Line, tt.want)
			}
		}
	}
}
