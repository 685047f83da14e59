package encode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
)

func TestEmptyGroupsAreOmitted(t *testing.T) {
	empty := valuer{slog.GroupValue()}
	w, n := slog.Int("w", 1), slog.Int("n", 2)
	with := func(s Scope, attrs ...slog.Attr) Scope { return s.WithAttrs(attrs) }
	for _, c := range []struct {
		scope        func(Scope) Scope
		attrs        []slog.Attr
		json, logfmt string
	}{
		{func(s Scope) Scope { return s }, nil, ``, ``},
		{func(s Scope) Scope { return s.WithGroup("g") }, nil, ``, ``},
		{func(s Scope) Scope { return s.WithGroup("g").WithGroup("h") }, nil, ``, ``},
		{func(s Scope) Scope { return s.WithGroup("g").WithGroup("h") }, []slog.Attr{n}, `,"g":{"h":{"n":2}}`, ` g.h.n=2`},
		{func(s Scope) Scope { return with(s.WithGroup("g"), w).WithGroup("h") }, nil, `,"g":{"w":1}`, ` g.w=1`},
		{func(s Scope) Scope { return with(s.WithGroup("g"), w).WithGroup("h") }, []slog.Attr{n}, `,"g":{"w":1,"h":{"n":2}}`, ` g.w=1 g.h.n=2`},
		{func(s Scope) Scope { return with(s, w) }, []slog.Attr{n}, `,"w":1,"n":2`, ` w=1 n=2`},
		{func(s Scope) Scope { return with(with(s, w), w) }, nil, `,"w":1,"w":1`, ` w=1 w=1`},
		{func(s Scope) Scope { return with(s.WithGroup("g"), slog.Group("e"), slog.Attr{}) }, []slog.Attr{n}, `,"g":{"n":2}`, ` g.n=2`},
		{func(s Scope) Scope { return with(s.WithGroup("g"), slog.Any("e", empty)) }, nil, ``, ``},
		{func(s Scope) Scope { return s.WithGroup("g") }, []slog.Attr{slog.Any("e", empty), {}, slog.Group("x", slog.Attr{})}, ``, ``},
		{func(s Scope) Scope { return s.WithGroup("g") }, []slog.Attr{slog.Group("a", slog.Group("b", slog.Attr{})), n}, `,"g":{"n":2}`, ` g.n=2`},
		{func(s Scope) Scope { return s.WithGroup("") }, []slog.Attr{slog.Group("", n, slog.Group("", w))}, `,"n":2,"w":1`, ` n=2 w=1`},
		{func(s Scope) Scope { return with(s.WithGroup("g"), slog.Group("", w)) }, []slog.Attr{slog.Any("", valuer{slog.GroupValue(n)})}, `,"g":{"w":1,"n":2}`, ` g.w=1 g.n=2`},
		{func(s Scope) Scope { return s }, []slog.Attr{{Key: "", Value: slog.IntValue(1)}, slog.Any("k", nil)}, `,"":1,"k":null`, ` _=1 k=<nil>`},
		{func(s Scope) Scope { return with(s.WithGroup("a.b"), w).WithGroup("c d") }, []slog.Attr{n}, `,"a.b":{"w":1,"c d":{"n":2}}`, ` a.b.w=1 a.b.c_d.n=2`},
	} {
		if got, want := encodeScope(t, c.scope(JSON(nil).Scope()), c.attrs...), `{"level":"INFO","msg":"m"`+c.json+"}\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
		if got, want := encodeScope(t, c.scope(Logfmt(nil).Scope()), c.attrs...), `level=INFO msg=m`+c.logfmt+"\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
		// A ReplaceAttr function that returns its argument does not change the line.
		same := func(_ []string, a slog.Attr) slog.Attr { return a }
		a := encodeScope(t, c.scope(JSON(nil).Scope()), c.attrs...)
		if b := encodeScope(t, c.scope(JSON(&Options{ReplaceAttr: same}).Scope()), c.attrs...); a != b {
			t.Errorf("with ReplaceAttr %swithout %s", b, a)
		}
	}
	s := JSON(nil).Scope()
	if s.WithGroup("") != s || s.WithAttrs(nil) != s || s.WithAttrs([]slog.Attr{{}}) != s {
		t.Error("a scope that adds nothing is not the scope itself")
	}
	deep := s
	for range 40 {
		deep = deep.WithGroup("g")
	}
	line := encodeScope(t, deep, n)
	if strings.Count(line, `"g":{`) != 40 || !json.Valid([]byte(line)) {
		t.Error(line)
	}
}

// WithAttrs encodes its attributes once, when it is called.
func TestWithAttrsEncodesOnce(t *testing.T) {
	v := &ptrValuer{"before"}
	s := JSON(nil).Scope().WithAttrs([]slog.Attr{slog.Any("v", v)})
	v.s = "after"
	if got := encodeScope(t, s); got != `{"level":"INFO","msg":"m","v":"before"}`+"\n" {
		t.Error(got)
	}
}

// Scopes derived from the same scope do not overwrite each other's attributes.
func TestScopesAreImmutable(t *testing.T) {
	for _, e := range []Encoder{JSON(nil), Logfmt(nil), Console(nil)} {
		base := e.Scope().WithAttrs([]slog.Attr{slog.Int("base", 1)}).WithGroup("g")
		a := base.WithAttrs([]slog.Attr{slog.String("k", "aaa"), slog.Any("err", textError{"stack a"})})
		wantA := encodeScope(t, a, slog.Int("n", 1))
		b := base.WithAttrs([]slog.Attr{slog.String("k", "bbb"), slog.Any("err", textError{"stack b"})})
		b.WithGroup("x")
		base.WithGroup("y").WithAttrs([]slog.Attr{slog.Int("z", 1)})
		if got := encodeScope(t, a, slog.Int("n", 1)); got != wantA {
			t.Errorf("got %swant %s", got, wantA)
		}
	}
}

// ReplaceAttr receives the groups of an attribute, regardless of the order of WithAttrs and
// WithGroup calls. Built-in attributes are in no group.
func TestReplaceAttrReceivesGroups(t *testing.T) {
	var paths []string
	replace := func(groups []string, a slog.Attr) slog.Attr {
		paths = append(paths, strings.Join(groups, "/")+":"+a.Key)
		if a.Key == "level" {
			return slog.Group("level", slog.Int("n", 1))
		}
		return a
	}
	for name, c := range map[string]struct {
		e    Encoder
		want string
	}{
		"json":    {JSON(&Options{ReplaceAttr: replace}), `{"level":{"n":1},"msg":"m","a":{"b":{"c":{"x":{"k":1,"g":{"h":2}}}}}}`},
		"logfmt":  {Logfmt(&Options{ReplaceAttr: replace}), `level.n=1 msg=m a.b.c.x.k=1 a.b.c.x.g.h=2`},
		"console": {Console(&Options{ReplaceAttr: replace}), `level.n=1 m  a.b.c.x.k=1 a.b.c.x.g.h=2`},
	} {
		base := c.e.Scope().WithGroup("a").WithGroup("b").WithGroup("c")
		x := base.WithGroup("x")
		base.WithGroup("y")
		paths = nil
		if got := encodeScope(t, x, slog.Int("k", 1), slog.Group("g", slog.Int("h", 2))); got != c.want+"\n" {
			t.Errorf("%s: got %swant %s", name, got, c.want)
		}
		if got, want := strings.Join(paths, " "), ":level :n :msg a/b/c/x:k a/b/c/x/g:h"; got != want {
			t.Errorf("%s: got %s want %s", name, got, want)
		}
	}
}

// ReplaceAttr receives the same groups as in slog, including for members of the source position and
// for built-in attributes that it has replaced with groups.
func TestReplaceAttrGroupsAsInSlog(t *testing.T) {
	var calls []string
	replace := func(groups []string, a slog.Attr) slog.Attr {
		calls = append(calls, strings.Join(groups, "/")+":"+a.Key)
		if a.Key == "msg" {
			return slog.Group("text", slog.Group("in", slog.String("m", a.Value.String())))
		}
		return a
	}
	log := func(h slog.Handler) []string {
		calls = nil
		l := slog.New(h).With("a", 1).WithGroup("g").With("b", slog.GroupValue(slog.Int("c", 1)))
		l.Info("m", "d", 1, slog.Group("e", "f", 1), "source", &slog.Source{Function: "f", Line: 1})
		return calls
	}
	want := log(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{AddSource: true, ReplaceAttr: replace}))
	if got := log(testHandler{JSON(&Options{AddSource: true, ReplaceAttr: replace}).Scope(), io.Discard}); !slices.Equal(got, want) {
		t.Errorf("JSON: called with\n%q, slog with\n%q", got, want)
	}
	want = log(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{AddSource: true, ReplaceAttr: replace}))
	for name, form := range map[string]func(*Options) Encoder{"logfmt": Logfmt, "console": Console} {
		if got := log(testHandler{form(&Options{AddSource: true, ReplaceAttr: replace}).Scope(), io.Discard}); !slices.Equal(got, want) {
			t.Errorf("%s: called with\n%q, slog with\n%q", name, got, want)
		}
	}
}

func TestEncodersAreSafeForConcurrentUse(t *testing.T) {
	same := func(_ []string, a slog.Attr) slog.Attr { return a }
	for _, e := range []Encoder{JSON(nil), JSON(&Options{ReplaceAttr: same, AddSource: true}), Logfmt(nil), Console(&Options{Color: true})} {
		base := e.Scope().WithGroup("g").WithAttrs(tenScalars())
		attrs := append(tenMixed(), slog.Group("h", slog.Group("i", slog.Int("n", 1))), slog.Any("map", map[string]any{"a": 1}), slog.Any("err", fmt.Errorf("w: %w", goError{callers()})))
		want, _, _ := base.WithGroup("z").Append(nil, &Record{Time: benchTime, Message: "m", Attrs: attrs})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				r := new(Record)
				var dst []byte
				for range 100 {
					r.Time, r.Message, r.Attrs = benchTime, "m", attrs
					dst, _, _ = base.WithGroup("z").Append(dst[:0], r)
					if string(dst) != string(want) {
						t.Errorf("got %swant %s", dst, want)
						return
					}
					base.WithAttrs(attrs[:3]).WithGroup("w")
					dst = e.Codec().AppendJSON(dst[:0], want, unknownMeta)
				}
			})
		}
		wg.Wait()
	}
}

type account struct {
	ID    int
	Owner *benchUser
	Inner *account
}

// AppendAttrs implements AttrAppender.
func (a *account) AppendAttrs(dst []slog.Attr) []slog.Attr {
	dst = append(dst, slog.Int("id", a.ID))
	if a.Owner != nil {
		dst = append(dst, slog.Any("owner", appender{a.Owner}))
	}
	if a.Inner != nil {
		dst = append(dst, slog.Any("inner", a.Inner), slog.Group("", slog.Int("inline", 1)))
	}
	return dst
}

type noAttrs struct{}

func (noAttrs) AppendAttrs(dst []slog.Attr) []slog.Attr { return dst }

// A shrinker is an AttrAppender that does not return the attributes already in dst.
type shrinker struct{}

func (shrinker) AppendAttrs([]slog.Attr) []slog.Attr { return nil }

// A wide is an AttrAppender that appends n attributes, an attribute for the field in (another
// wide), and n more attributes.
type wide struct {
	n  int
	in *wide
}

func (w *wide) AppendAttrs(dst []slog.Attr) []slog.Attr {
	for i := range w.n {
		dst = append(dst, slog.Int("a", i))
	}
	if w.in != nil {
		dst = append(dst, slog.Any("in", w.in))
	}
	for i := range w.n {
		dst = append(dst, slog.Int("z", i))
	}
	return dst
}

// A cached is an AttrAppender that returns its own slice instead of dst.
type cached []slog.Attr

func (c cached) AppendAttrs([]slog.Attr) []slog.Attr { return c }

func TestAttrAppenderMemoryIsAllocatedOnce(t *testing.T) {
	r := &Record{Message: "m"}
	s := JSON(&Options{LevelKey: "-"}).Scope()
	var dst []byte
	encode := func(v any) string {
		r.Attrs = []slog.Attr{slog.Any("v", v)}
		dst, _, _ = s.Append(dst[:0], r)
		return string(dst)
	}
	// Nested AttrAppenders do not overwrite the attributes of the outer ones.
	for _, n := range []int{1, 2, 3, 5, 20, 100} {
		want := `{"msg":"m","v":{`
		members := func(key string) (m string) {
			for i := range n {
				m += fmt.Sprintf(`,"%s":%d`, key, i)
			}
			return m
		}
		in := strings.TrimPrefix(members("a")+members("z"), ",")
		mid := strings.TrimPrefix(members("a"), ",") + `,"in":{` + in + `}` + members("z")
		want += strings.TrimPrefix(members("a"), ",") + `,"in":{` + mid + `}` + members("z") + "}}\n"
		v := &wide{n, &wide{n, &wide{n, nil}}}
		for range 3 {
			if got := encode(v); got != want {
				t.Fatalf("%d:\n got %s\nwant %s", n, got, want)
			}
		}
		if n := allocs.PerRun(20, func() { encode(v) }); n > 3 && !race.Enabled {
			t.Errorf("%v attributes: %v allocations", n, n)
		}
	}
	// No attribute remains in the scratch memory, even if an AttrAppender panics.
	for _, v := range []any{&wide{5, &wide{5, nil}}, halfway{}} {
		encode(v)
		for i, a := range r.Cache.Scratch.Attrs[:cap(r.Cache.Scratch.Attrs)] {
			if !a.Equal(slog.Attr{}) {
				t.Errorf("%T: attribute %d was not cleared: %v", v, i, a)
			}
		}
	}
	// A slice that belongs to the AttrAppender is neither cleared nor changed.
	own := cached{slog.Int("x", 1), slog.Any("y", &wide{2, nil}), slog.Int("z", 3)}
	for range 2 {
		if got, want := encode(own), `{"msg":"m","v":{"x":1,"y":{"a":0,"a":1,"z":0,"z":1},"z":3}}`+"\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
	}
}

type halfway struct{}

func (halfway) AppendAttrs(dst []slog.Attr) []slog.Attr {
	_ = append(dst, slog.String("secret", "s"))
	panic("half-way")
}

func TestAttrAppenderIsGroup(t *testing.T) {
	acc := &account{ID: 1, Inner: &account{ID: 2}}
	list := []account{{ID: 1}, {ID: 2}}
	for _, c := range []struct {
		attr         slog.Attr
		json, logfmt string
	}{
		{slog.Any("a", acc), `,"a":{"id":1,"inner":{"id":2},"inline":1}`, ` a.id=1 a.inner.id=2 a.inline=1`},
		{slog.Any("", acc), `,"id":1,"inner":{"id":2},"inline":1`, ` id=1 inner.id=2 inline=1`},
		{slog.Group("g", slog.Any("a", acc)), `,"g":{"a":{"id":1,"inner":{"id":2},"inline":1}}`, ` g.a.id=1 g.a.inner.id=2 g.a.inline=1`},
		{slog.Any("a", noAttrs{}), ``, ``},
		{slog.Any("a", shrinker{}), ``, ``},
		{slog.Any("a", list), `,"a":[{"id":1},{"id":2}]`, ` a="[{\"id\":1},{\"id\":2}]"`},
		{slog.Any("a", &list), `,"a":[{"id":1},{"id":2}]`, ` a="[{\"id\":1},{\"id\":2}]"`},
		{slog.Any("a", []*account{acc}), `,"a":[{"id":1,"inner":{"id":2},"inline":1}]`, ` a="[{\"id\":1,\"inner\":{\"id\":2},\"inline\":1}]"`},
		{slog.Any("a", []values.AttrAppender{noAttrs{}}), `,"a":[{}]`, ` a=[{}]`},
		{slog.Any("a", []account{}), `,"a":[]`, ` a=[]`},
		{slog.Any("a", []account(nil)), `,"a":null`, ` a=<nil>`},
	} {
		if got, want := encodeOne(t, JSON(nil), c.attr), `{"level":"INFO","msg":"m"`+c.json+"}\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
		if got, want := encodeOne(t, Logfmt(nil), c.attr), `level=INFO msg=m`+c.logfmt+"\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
	}
	// ReplaceAttr is called for the attributes of an AttrAppender as for the members of a group.
	redact := func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == "email" {
			return slog.String("email", strings.Join(groups, "/"))
		}
		return a
	}
	got := encodeOne(t, JSON(&Options{ReplaceAttr: redact}), slog.Any("u", appender{benchOne}))
	if !strings.Contains(got, `"email":"u"`) {
		t.Error(got)
	}
	got = encodeOne(t, Logfmt(&Options{ReplaceAttr: redact}), slog.Group("g", slog.Any("u", []appender{{benchOne}})))
	if !strings.Contains(got, `\"email\":\"g\"`) {
		t.Error(got)
	}
}

// Kinds that are encoded without encoding/json have the JSON that encoding/json writes.
func TestFastKindsEqualEncodingJSON(t *testing.T) {
	s, i, u, f, b, d := "x\n", -3, uint(7), 1e21, true, 3*time.Second
	i64, i32, u64, u32 := int64(-5), int32(6), uint64(8), uint32(9)
	tm := benchTime
	strs, ints, f32s := []string{"a", "\xff\u2028<"}, []int{1, -2}, []float32{0.1, 1e21, -1e-7, 16777216}
	i64s, i32s, us, u64s, u32s := []int64{1 << 62}, []int32{-1 << 31}, []uint{1}, []uint64{1 << 63}, []uint32{1 << 31}
	f64s, bs, ds, ts, by := []float64{0.1, 1e-9}, []bool{true, false}, []time.Duration{1}, []time.Time{tm}, []byte{0, 1, 255}
	raw := json.RawMessage(`{"a":[1,2.50,"x"]}`)
	for _, v := range []any{
		&s, &i, &u, &f, &b, &d, &i64, &i32, &u64, &u32, &tm,
		strs, ints, f32s, i64s, i32s, us, u64s, u32s, f64s, bs, ds, ts, by, raw,
		&strs, &ints, &f32s, &i64s, &i32s, &us, &u64s, &u32s, &f64s, &bs, &ds, &ts, &by, &raw,
		(*string)(nil), (*int)(nil), (*uint)(nil), (*float64)(nil), (*bool)(nil), (*time.Duration)(nil), (*time.Time)(nil), (*int64)(nil), (*int32)(nil), (*uint64)(nil), (*uint32)(nil),
		[]string(nil), []int(nil), []float32(nil), []byte(nil), []time.Time(nil), json.RawMessage(nil), (*[]int)(nil), (*[]byte)(nil), (*json.RawMessage)(nil),
		[]string{}, []int{}, []byte{}, &[]string{},
	} {
		var buf strings.Builder
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		if got, want := value(t, JSON(nil), v), literal(strings.TrimSuffix(buf.String(), "\n")); got != want {
			t.Errorf("%T: got %s want %s", v, got, want)
		}
	}
}

func TestTextMarshalersAreText(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{netip.MustParseAddr("10.0.0.1"), "10.0.0.1"}, {time.March, "March"}, {point{X: 1, Tags: []string{"a"}}, `"{\"X\":1,\"Y\":0,\"tags\":[\"a\"]}"`},
		{map[string]int{"a": 1}, `"{\"a\":1}"`}, {[]byte("a b"), `"a b"`}, {textual{"x=y"}, `"x=y"`}, {errors.New("e"), "e"}, {jsonError{"own words"}, `"own words"`},
		{make(chan int), `"!ERROR:json: unsupported type: chan int"`}, {slog.LevelWarn, "WARN"}, {numbered(3), "3"}, {"", `""`}, {"\u00a0", "\"\u00a0\""},
		{"0123456=89", `"0123456=89"`}, {"0123456\x7f89", `"0123456\u007f89"`}, {"0123456\"89", `"0123456\"89"`}, {"0123456 89", `"0123456 89"`},
		{"a\\b", `a\b`}, {`"`, `"\""`}, {"日本", "日本"}, {"🌍", "🌍"}, {"\U000e0041", `"\udb40\udc41"`}, {"e\u200dx", "e\u200dx"}, {"\ufeff", `"\ufeff"`}, {"\x7f", `"\u007f"`},
	} {
		if got, want := encodeOne(t, Logfmt(nil), slog.Any("k", c.v)), "level=INFO msg=m k="+c.want+"\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
	}
}

func TestUsualRecordsDoNotAllocate(t *testing.T) {
	race.Skip(t)
	user := &account{ID: 1, Owner: benchOne}
	users := []*account{user, user}
	raw := json.RawMessage(`{"a":1}`)
	fast := []slog.Attr{
		slog.Any("ints", &benchInts), slog.Any("strings", &benchStrings), slog.Any("times", &benchTimes), slog.Any("error", errBench),
		slog.Any("wrapped", fmt.Errorf("w: %w", io.EOF)), slog.Any("user", user), slog.Any("users", &users),
		slog.Time("t", benchTime), slog.Any("nil", nil), slog.Any("level", slog.LevelInfo), slog.Group("g", slog.Int("a", 1), slog.Group("h", slog.Int("b", 2))),
		slog.String("bad", "\xff\n"), slog.Float64("f", 0.1234567890123), slog.Any("raw", &raw), slog.Any("bytes", &[]byte{1, 2, 3}),
	}
	var pcs = callers()
	r := new(Record)
	dst := make([]byte, 0, 64<<10)
	for _, c := range []struct {
		name  string
		scope Scope
		attrs []slog.Attr
		max   float64
	}{
		{"message", JSON(nil).Scope(), nil, 0},
		{"ten scalars", JSON(nil).Scope(), tenScalars(), 0},
		{"ten mixed", JSON(nil).Scope(), tenMixed(), 0},
		{"fast kinds", JSON(nil).Scope(), fast, 0},
		{"chain", JSON(chained).Scope(), []slog.Attr{slog.Any("wrapped", fmt.Errorf("w: %w", io.EOF))}, 0},
		{"context", JSON(nil).Scope().WithGroup("g").WithAttrs(tenScalars()).WithGroup("h"), tenScalars(), 0},
		{"formats", JSON(&Options{AddSource: true, Duration: "text", Level: "lower", Time: "unixmilli", Caller: "short"}).Scope(), tenScalars(), 0},
		{"source", JSON(&Options{AddSource: true}).Scope(), tenScalars(), 0},
		{"own location", JSON(&Options{OwnLocation: true}).Scope(), tenScalars(), 0},
		{"logfmt", Logfmt(nil).Scope().WithGroup("g").WithAttrs(tenScalars()), append(tenScalars(), slog.Group("x", slog.Int("y", 1))), 0},
		{"console", Console(&Options{Color: true}).Scope(), tenScalars(), 0},
	} {
		sec := 0
		n := allocs.PerRun(100, func() {
			sec++
			r.Time, r.Message, r.Attrs, r.PC = benchTime.Add(time.Duration(sec)*time.Second), "message", c.attrs, pcs[0]
			var err error
			if dst, _, err = c.scope.Append(dst[:0], r); err != nil {
				t.Fatal(err)
			}
		})
		if n > c.max {
			t.Errorf("%s: %v allocations, want %v", c.name, n, c.max)
		}
	}
}

// The encoded record does not depend on the capacity and the content of dst.
func TestResultIsIndependentOfCapacity(t *testing.T) {
	attrs := append(tenMixed(), slog.Group("g", slog.Int("n", 1), slog.String("", "")), slog.String("a key of more than sixteen bytes", "x"),
		slog.String("a key of more than thirty-two bytes, which is rare", strings.Repeat("v", 100)), slog.String("esc\"", "\x00\xff日本\u2028"), slog.Any("raw", json.RawMessage(`[1]`)))
	for i := range 40 {
		attrs = append(attrs, slog.String(strings.Repeat("k", i), strings.Repeat("v", 40-i)))
	}
	for _, e := range []Encoder{JSON(nil), JSON(&Options{AddSource: true, OwnLocation: true}), Logfmt(nil), Console(&Options{Color: true})} {
		s := e.Scope().WithGroup("w").WithAttrs(attrs[:3]).WithGroup("x")
		r := &Record{Time: benchTime, Message: "message \n of some length, longer than a word or four of them", PC: callers()[0], Attrs: attrs}
		want, _, _ := s.Append(nil, r)
		for c := 0; c < len(want)+100; c += 1 + c/50 {
			dst := make([]byte, c)
			for i := range dst {
				dst[i] = '{' // memory beyond the length of dst may have any content
			}
			got, _, _ := s.Append(dst[:min(c, 3)], r)
			if string(got[min(c, 3):]) != string(want) {
				t.Fatalf("capacity %d:\n got %s\nwant %s", c, got, want)
			}
		}
	}
}

// go-logfmt can parse the keys. They are UTF-8, and spaces, control characters, '=', '"' and U+FFFD
// are replaced with '_'.
func TestLogfmtKeysAreParsable(t *testing.T) {
	keys := append([]string{"a\ufffdb", "\ufffd", "\xff", "", "a=b", "a b", "\"", "a\nb", "\u2028", "\u202e", "é.ж", "日本"}, escapePieces...)
	for _, key := range keys {
		line := encodeScope(t, Logfmt(&Options{LevelKey: key + "l", MessageKey: "-"}).Scope().WithGroup(key).WithAttrs([]slog.Attr{slog.Int(key, 1)}), slog.Group(key, slog.Int(key, 2)))
		n := 0
		for pair := range strings.FieldsSeq(line) {
			k, _, ok := strings.Cut(pair, "=")
			if bad := strings.IndexFunc(k, func(r rune) bool { return r <= ' ' || r == '"' || r == utf8.RuneError }); !ok || k == "" || bad >= 0 {
				t.Errorf("%q: the key of %q cannot be read", key, pair)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%q: %d pairs in %q", key, n, line)
		}
	}
}
