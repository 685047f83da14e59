package fluent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// asJSON encodes the record r with the scope s and returns the fields as JSON.
func asJSON(t *testing.T, s encode.Scope, r *encode.Record) string {
	t.Helper()
	out, m, err := s.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Record json.RawMessage }
	if err := json.Unmarshal(Codec().AppendJSON(nil, out, m), &v); err != nil {
		t.Fatal(err)
	}
	return string(v.Record)
}

// The arguments of ReplaceAttr and the resulting fields are the same as with the JSON encoder of
// package encode.
func TestReplaceAttrMatchesJSONEncoder(t *testing.T) {
	var paths []string
	replace := func(groups []string, a slog.Attr) slog.Attr {
		paths = append(paths, strings.Join(append(slices.Clone(groups), a.Key), "."))
		switch a.Key {
		case "gone", slog.TimeKey:
			return slog.Attr{}
		case "secret":
			return slog.String("secret", "xxx")
		case "group":
			return slog.Group("made", "secret", 1, "gone", 2, "left", 3)
		case "spread":
			return slog.Group("", "a", 1, "b", 2)
		case "valuer":
			return slog.Any("valuer", wrapped{slog.StringValue("resolved")})
		case "panics":
			panic("no")
		case slog.LevelKey:
			if a.Value.Any() == slog.LevelWarn {
				return slog.String("severity", "warning")
			}
		case "msg":
			return slog.String("text", a.Value.String()+"!")
		}
		return a
	}
	mine, err := NewEncoder(&EncoderOptions{ReplaceAttr: replace})
	if err != nil {
		t.Fatal(err)
	}
	with := func(s encode.Scope) []encode.Scope {
		base := s.WithAttrs([]slog.Attr{slog.Int("gone", 1), slog.Int("kept", 2)})
		in := base.WithGroup("g").WithAttrs([]slog.Attr{slog.String("secret", "s"), slog.Any("valuer", wrapped{slog.GroupValue(slog.Int("gone", 1), slog.Int("x", 2))})})
		return []encode.Scope{s, base, in, in.WithGroup("h"), s.WithGroup("e").WithAttrs([]slog.Attr{slog.Int("gone", 1)})}
	}
	attrs := [][]slog.Attr{
		nil,
		{slog.String("secret", "s"), slog.Int("gone", 1), slog.Int("n", 1)},
		{slog.Group("sub", "secret", 1, "gone", 2, slog.Group("deep", "secret", 3, "gone", 4), slog.Group("all", "gone", 1))},
		{slog.Group("all", "gone", 1), slog.Int("group", 1), slog.Int("spread", 1), slog.Int("panics", 1)},
		{slog.Group("", "secret", 1, "gone", 2), slog.Any("valuer", 1), slog.Any("m", map[string]any{"secret": 1, "v": slog.GroupValue(slog.Int("secret", 1))})},
		{{}, slog.Group("none"), slog.Any("nil", nil)},
	}
	theirs := encode.JSON(&encode.Options{ReplaceAttr: replace})
	mineScopes, theirScopes := with(mine.Scope()), with(theirs.Scope())
	for i := range mineScopes {
		for j, as := range attrs {
			if j == 4 { // encoding/json cannot encode a slog.Value
				as = as[:2]
			}
			r := encode.Record{Time: time.Unix(1, 0), Level: slog.Level(4 * (j % 2)), Message: "m", Attrs: as}
			paths = nil
			got := asJSON(t, mineScopes[i], &r)
			calls := paths
			paths = nil
			line, _, err := theirScopes[i].Append(nil, &r)
			if err != nil {
				t.Fatal(err)
			}
			line = new(keyset.Set).AppendJSON(nil, line, "", "")
			if !equalJSON(got, string(line)) {
				t.Errorf("scope %d, attributes %d:\n got %swant %s", i, j, got+"\n", line)
			}
			paths = slices.DeleteFunc(paths, func(p string) bool { return p == slog.TimeKey })
			if !slices.Equal(calls, paths) {
				t.Errorf("scope %d, attributes %d: called with\n%q, want\n%q", i, j, calls, paths)
			}
		}
	}
	// ReplaceAttr is not called for the fields of a struct value.
	r := encode.Record{Attrs: attrs[4][2:]}
	if got := asJSON(t, mine.Scope(), &r); !strings.Contains(got, `"secret":1`) || strings.Contains(got, "xxx") {
		t.Error(got)
	}
}

type wrapped struct{ v slog.Value }

func (w wrapped) LogValue() slog.Value { return w.v }

func TestReplaceAttrSetsTagAndSource(t *testing.T) {
	enc, err := NewEncoder(&EncoderOptions{TagKey: "tag", AddSource: true, SourceKey: "src", ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case "service":
			return slog.String("tag", "svc."+a.Value.String())
		case "src":
			if src, ok := a.Value.Any().(*slog.Source); ok {
				return slog.String("src", "in "+src.Function[strings.LastIndexByte(src.Function, '.')+1:])
			}
		case "loop":
			return slog.Any("loop", endless{})
		}
		return a
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := encode.Record{PC: callerPC(), Message: "m", Attrs: []slog.Attr{slog.String("service", "x"), slog.Int("loop", 1)}}
	out, m, err := enc.Scope().Append(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	text := string(Codec().AppendJSON(nil, out, m))
	for _, want := range []string{`"tag":"svc.x"`, `"src":"in callerPC"`, `"level":"INFO"`, `!ERROR: groups nested too deeply`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	// ReplaceAttr is called for attributes from With, but not for the time of the record.
	s := enc.Scope().WithAttrs([]slog.Attr{slog.String("service", "y")})
	out, m, err = s.Append(nil, &encode.Record{Time: time.Unix(7, 0)})
	if text := string(Codec().AppendJSON(nil, out, m)); err != nil || !strings.Contains(text, `"tag":"svc.y","time":"1970-01-01T00:00:07Z"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// A group is omitted if all its attributes are omitted.
func TestEmptyGroupsAreOmitted(t *testing.T) {
	enc, _ := NewEncoder(&EncoderOptions{LevelKey: "-", MessageKey: "-"})
	r := encode.Record{Attrs: []slog.Attr{slog.Group("a", slog.Group("b"), slog.Attr{}), slog.Int("n", 1)}}
	if got := asJSON(t, enc.Scope(), &r); got != `{"n":1}` {
		t.Error(got)
	}
}

func TestReplaceAttrAllocatesNothing(t *testing.T) {
	race.Skip(t)
	enc, _ := NewEncoder(&EncoderOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { return a }})
	s := enc.Scope().WithGroup("g")
	r := encode.Record{Time: time.Now(), Message: "m", Attrs: []slog.Attr{slog.String("b", "x"), slog.Group("d", slog.Int("e", 1))}}
	dst := bytes.NewBuffer(make([]byte, 0, 1024)).AvailableBuffer()
	var m batch.Meta
	n := allocs.PerRun(100, func() { dst, m, _ = s.Append(dst[:0], &r) })
	if n > 1 { // converting the level to an any allocates
		t.Errorf("%v allocations (%v)", n, m)
	}
}

func callerPC() uintptr {
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	return pcs[0]
}

// The type stacked is an error with a stack. Its marshal methods must not be called.
type stacked struct {
	error
	Code int
}

func (stacked) Callers() []uintptr           { return []uintptr{callerPC()} }
func (stacked) MarshalJSON() ([]byte, error) { return []byte(`{"code":1}`), nil }
func (stacked) MarshalText() ([]byte, error) { return []byte("a text"), nil }

// An error and its details are written as the same attributes as by the JSON encoder of package
// encode.
func TestErrorsMatchJSONEncoder(t *testing.T) {
	outer := fmt.Errorf("outer: %w", errors.Join(io.EOF, fmt.Errorf("b: %w", stacked{io.ErrNoProgress, 1})))
	deep := error(io.EOF)
	for range 30 {
		deep = errors.Join(deep, io.EOF)
	}
	attrs := []slog.Attr{
		slog.Any("err", outer), slog.Any("own", stacked{io.EOF, 1}), slog.Any("bytes\xff", io.EOF),
		slog.Group("g", slog.Any("err", outer), slog.Any("v", wrapped{slog.AnyValue(outer)})), slog.Any("deep", deep), slog.Int("n", 1),
	}
	for _, form := range []string{"", "text", "chain", "verbose"} {
		enc, err := NewEncoder(&EncoderOptions{Errors: form})
		if err != nil {
			t.Fatal(err)
		}
		theirs := encode.JSON(&encode.Options{Errors: form, TimeKey: "-"}).Scope().WithAttrs(attrs[:1]).WithGroup("w").WithAttrs(attrs[:2])
		r := encode.Record{Time: time.Unix(1, 0), Message: "m", Attrs: attrs}
		line, _, _ := theirs.Append(nil, &r)
		line = new(keyset.Set).AppendJSON(nil, line, "", "")
		got := asJSON(t, enc.Scope().WithAttrs(attrs[:1]).WithGroup("w").WithAttrs(attrs[:2]), &r)
		if !equalJSON(got, string(line)) {
			t.Errorf("%q:\n got %s\nwant %s", form, got, line)
		}
		if has := strings.Contains(got, `"err_stack":["github.com/`) && strings.Contains(got, `"deep_chain":[["`); has != (form == "chain") {
			t.Errorf("%q: %s", form, got)
		}
	}
	// The nested lists of an error chain count toward maxLevels.
	enc, err := NewEncoder(&EncoderOptions{Errors: "chain"})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for s := enc.Scope(); len(s.(*scope).levels) < maxLevels; s = s.WithGroup("g") {
		out, _, _ := s.Append(nil, &encode.Record{Attrs: []slog.Attr{slog.Any("deep", deep)}})
		most = max(most, msgpack.Nested(out, 200))
	}
	if most != maxLevels+1 { // the entry itself is one level
		t.Errorf("%d levels", most)
	}
	if _, err := NewEncoder(&EncoderOptions{Errors: "object"}); err == nil || !strings.Contains(err.Error(), `EncoderOptions.Errors: "object" is not an error format: use text, chain, verbose`) {
		t.Error(err)
	}
	if _, err := New(Config{Errors: "stack"}); err == nil || !strings.Contains(err.Error(), `Config.Errors: "stack" is not an error format`) {
		t.Error(err)
	}
	s, err := New(Config{Errors: "chain"})
	if err != nil {
		t.Fatal(err)
	}
	if got := asJSON(t, s.Encoder().Scope(), &encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("err", fmt.Errorf("a: %w", io.EOF))}}); got != `{"level":"INFO","msg":"m","err":"a: EOF","err_chain":["EOF"]}` {
		t.Error(got)
	}
}

// The source position of a call is computed once and cached, so encoding it again does not
// allocate.
func TestSourceAllocatesNothing(t *testing.T) {
	race.Skip(t)
	enc, err := NewEncoder(&EncoderOptions{AddSource: true})
	if err != nil {
		t.Fatal(err)
	}
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	r := encode.Record{Time: time.Unix(1, 0), Message: "m", PC: pcs[0]}
	scope, dst := enc.Scope(), make([]byte, 0, 1<<10)
	if n := allocs.PerRun(100, func() { dst, _, _ = scope.Append(dst[:0], &r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if !bytes.Contains(dst, []byte("TestSourceAllocatesNothing")) {
		t.Errorf("%q", dst)
	}
}

// An error attribute without details is written without allocations.
func TestErrorAllocatesNothing(t *testing.T) {
	race.Skip(t)
	enc, err := NewEncoder(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := encode.Record{Time: time.Unix(1, 0), Message: "m", Attrs: []slog.Attr{slog.Any("err", fmt.Errorf("a: %w", io.EOF)), slog.Any("eof", io.EOF)}}
	scope, dst := enc.Scope(), make([]byte, 0, 1<<10)
	if n := allocs.PerRun(100, func() { dst, _, _ = scope.Append(dst[:0], &r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// If a map has a key twice, underscores are appended to the second key.
func TestDuplicateKeysAreRenamed(t *testing.T) {
	enc, err := NewEncoder(&EncoderOptions{Errors: "verbose"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		scope func(encode.Scope) encode.Scope
		attrs []slog.Attr
		want  string
	}{
		"attributes": {nil, []slog.Attr{slog.Int("a", 1), slog.Int("a", 2), slog.Int("a", 3)}, `"a":1,"a_":2,"a__":3`},
		"built in":   {nil, []slog.Attr{slog.Int("msg", 1), slog.Int("level", 2)}, `"msg_":1,"level_":2`},
		"group":      {nil, []slog.Attr{slog.Group("g", slog.Int("a", 1), slog.Int("a", 2)), slog.Int("g", 3)}, `"g":{"a":1,"a_":2},"g_":3`},
		"inline":     {nil, []slog.Attr{slog.Int("a", 1), slog.Group("", slog.Int("a", 2))}, `"a":1,"a_":2`},
		"with": {func(s encode.Scope) encode.Scope { return s.WithAttrs([]slog.Attr{slog.Int("a", 1), slog.Int("a", 2)}) },
			[]slog.Attr{slog.Int("a", 3), slog.Int("b", 4)}, `"a":1,"a_":2,"a__":3,"b":4`},
		"with once": {func(s encode.Scope) encode.Scope { return s.WithAttrs([]slog.Attr{slog.Int("a", 1)}) },
			[]slog.Attr{slog.Int("a", 3)}, `"a":1,"a_":3`},
		"open group": {func(s encode.Scope) encode.Scope {
			return s.WithAttrs([]slog.Attr{slog.Int("g", 1)}).WithGroup("g").WithAttrs([]slog.Attr{slog.Int("a", 1)})
		}, []slog.Attr{slog.Int("a", 2), slog.Int("msg", 3)}, `"g":1,"g_":{"a":1,"a_":2,"msg":3}`},
		"resolved": {nil, []slog.Attr{slog.Any("a", wrapped{slog.GroupValue(slog.Int("x", 1), slog.Int("x", 2))})}, `"a":{"x":1,"x_":2}`},
		"error":    {nil, []slog.Attr{slog.Any("err", fmt.Errorf("x: %w", io.EOF)), slog.Int("err", 1)}, ""},
	} {
		s := enc.Scope()
		if tt.scope != nil {
			s = tt.scope(s)
		}
		got := asJSON(t, s, &encode.Record{Time: time.Unix(1, 0), Message: "m", Attrs: tt.attrs})
		if want := `{"level":"INFO","msg":"m",` + tt.want + `}`; tt.want != "" && got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if again := string(new(keyset.Set).AppendJSON(nil, []byte(got), "", "")); again != got {
			t.Errorf("%s: %s", name, got)
		}
	}
	entry, err := appendJSONEvent(nil, time.Unix(1, 0), []byte(`{"a":1,"b":{"x":1,"x":[{"y":1,"y":2}]},"a":2,"\u0061":3}`))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Record json.RawMessage }
	if err := json.Unmarshal(Codec().AppendJSON(nil, entry, batch.Meta{}), &v); err != nil {
		t.Fatal(err)
	}
	if want := `{"a":1,"b":{"x":1,"x_":[{"y":1,"y_":2}]},"a_":2,"a__":3}`; string(v.Record) != want {
		t.Errorf("%s, want %s", v.Record, want)
	}
}
