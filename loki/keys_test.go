package loki

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
)

// The keys of a line are unique.
func TestKeysOfLineAreUnique(t *testing.T) {
	for name, tt := range map[string]struct {
		c     Config
		attrs []slog.Attr
		with  []func(encode.Scope) encode.Scope
		want  string
	}{
		"level and message":  {c: Config{NoLevelLabel: true, Line: Line{MessageKey: "level"}}, want: `{"level":"m","level_":"info"}`},
		"bytes":              {attrs: []slog.Attr{slog.Int("a\xff", 1), slog.Int("a\xfe", 2), slog.Int("a\ufffd", 3)}, want: `{"msg":"m","a` + "\ufffd" + `":1,"a` + "\ufffd" + `_":2,"a` + "\ufffd" + `__":3}`},
		"bytes of a group":   {with: []func(encode.Scope) encode.Scope{with(slog.Int("g\xff", 1)), inGroup("g\xfe")}, attrs: []slog.Attr{slog.Int("a", 2)}, want: `{"msg":"m","g` + "\ufffd" + `":1,"g` + "\ufffd" + `_":{"a":2}}`},
		"bytes of a message": {c: Config{Line: Line{MessageKey: "m\xff"}}, attrs: []slog.Attr{slog.Int("m\xfe", 1)}, want: `{"m` + "\ufffd" + `":"m","m` + "\ufffd" + `_":1}`},
	} {
		for _, w := range []string{wireProtobuf, wireJSON} {
			tt.c.Wire = w
			e, _ := encodeOne(t, tt.c, encode.Record{Message: "m", Attrs: tt.attrs}, tt.with...)
			if e.Line != tt.want {
				t.Errorf("%s: got %q, want %q", name, e.Line, tt.want)
			}
		}
	}
}

type count int

func (c count) String() string { return "counted" }

// The keys of a logfmt line are unique, and its values are the same as in labels and metadata.
func TestLogfmtKeysAreUnique(t *testing.T) {
	for name, tt := range map[string]struct {
		c     Config
		attrs []slog.Attr
		with  []func(encode.Scope) encode.Scope
		want  string
	}{
		"keys":    {attrs: []slog.Attr{slog.String("msg", "x"), slog.Int("a", 1), slog.Int("a", 2), slog.Group("g", "b", 3), slog.Int("g.b", 4), slog.Int("a b", 5), slog.Int("a_b", 6)}, want: `msg=m msg_=x a=1 a_=2 g.b=3 g.b_=4 a_b=5 a_b_=6`},
		"with":    {with: []func(encode.Scope) encode.Scope{with(slog.Int("a", 1)), inGroup("g"), with(slog.Int("a", 2))}, attrs: []slog.Attr{slog.Int("a", 3), slog.Group("", slog.Int("a", 4))}, want: `msg=m a=1 g.a=2 g.a_=3 g.a__=4`},
		"level":   {c: Config{NoLevelLabel: true, Line: Line{MessageKey: "level"}}, attrs: []slog.Attr{slog.Int("level", 1)}, want: `level_=info level=m level__=1`},
		"values":  {attrs: []slog.Attr{slog.Any("b", []byte("hey")), slog.Any("c", count(3)), slog.Any("d", []any{time.Second, errors.New("e")})}, want: `msg=m b=aGV5 c=3 d="[1000000000,\"e\"]"`},
		"groups":  {attrs: []slog.Attr{slog.Any("u", attrUser{1}), slog.Any("u", attrUser{2}), slog.Any("v", appender{slog.Any("c", count(3))})}, want: `msg=m u.id=1 u.id_=1 u.id__=2 u.id___=2 v.c=3`},
		"front":   {c: Config{NoLevelLabel: true, Line: Line{Collisions: "prefix", MessageKey: "level"}}, attrs: []slog.Attr{slog.Int("a", 1), slog.Int("a", 2), slog.Group("g", "b", 3), slog.Int("g.b", 4)}, want: `_level=info level=m a=1 _a=2 g.b=3 _g.b=4`},
		"no name": {attrs: []slog.Attr{slog.Int("", 1), slog.Int("", 2), slog.Int("", 3)}, want: `msg=m _=1 __=2 ___=3`},
		"errors":  {attrs: []slog.Attr{slog.Any("err", fmt.Errorf("a: %w", io.EOF)), slog.Any("group", asGroup{})}, want: `msg=m err="a: EOF" group.code=7`},
		"chain": {c: Config{Line: Line{Errors: "chain"}}, attrs: []slog.Attr{slog.Any("err", fmt.Errorf("a: %w", io.EOF)), slog.Int("err_chain", 1), slog.Int("e_stack", 2),
			slog.Any("e", fmt.Errorf("b: %w", io.EOF)), slog.Group("g", slog.Any("err", fmt.Errorf("a: %w", io.EOF))), slog.Int("g.err_chain", 3)},
			want: `msg=m err="a: EOF" err_chain=EOF err_chain_=1 e_stack=2 e_="b: EOF" e__chain=EOF g.err="a: EOF" g.err_chain=EOF g.err_chain_=3`},
		"no time": {attrs: []slog.Attr{slog.Int("time", 1), slog.Int("source", 2), slog.Any("nil", nil)}, want: `msg=m time=1 source=2 nil=null`},
		"nothing": {want: `msg=m`},
	} {
		tt.c.Line.Body, tt.c.MetadataAll = bodyLogfmt, true
		e, _ := encodeOne(t, tt.c, encode.Record{Message: "m", Attrs: tt.attrs}, tt.with...)
		if e.Line != tt.want {
			t.Errorf("%s: got  %s\nwant %s", name, e.Line, tt.want)
		}
		for key, value := range map[string]string{"b": "aGV5", "c": "3", "d": `[1000000000,"e"]`} {
			if name == "values" && e.Meta[key] != value {
				t.Errorf("metadata %s is %s", key, e.Meta[key])
			}
		}
	}
}
