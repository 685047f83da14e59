package encode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Each benchmark runs forebay and slog.JSONHandler with the same record. Other loggers are in the
// module bench.

type benchUser struct {
	Name    string
	Email   string
	Created time.Time
}

// AppendAttrs makes a benchUser log as a group, without an allocation.
func (u *benchUser) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.String("name", u.Name), slog.String("email", u.Email), slog.Time("created", u.Created))
}

func (u *benchUser) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", u.Name), slog.String("email", u.Email), slog.Time("created", u.Created))
}

var (
	benchTime    = time.Date(2026, 11, 20, 13, 44, 10, 123456789, time.UTC)
	benchInts    = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}
	benchStrings = []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"}
	benchTimes   = []time.Time{benchTime, benchTime.Add(time.Hour), benchTime.Add(2 * time.Hour)}
	benchOne     = &benchUser{"Jane Doe", "jane@test.com", benchTime}
	errBench     = errors.New("connection reset by peer")
)

func tenScalars() []slog.Attr {
	return []slog.Attr{
		slog.String("method", "GET"), slog.String("path", "/api/v1/users/42"), slog.Int("status", 200),
		slog.Int64("bytes", 123456), slog.Duration("took", 1234567*time.Nanosecond), slog.Float64("ratio", 0.75),
		slog.Bool("cached", true), slog.Uint64("id", 9876543210), slog.String("remote", "10.1.2.3:54321"), slog.Int("attempt", 3),
	}
}

func tenMixed() []slog.Attr {
	users := []*benchUser{benchOne, benchOne, benchOne}
	return []slog.Attr{
		slog.Int("int", 42), slog.Any("ints", &benchInts), slog.String("string", "some text here"), slog.Any("strings", &benchStrings),
		slog.Time("time", benchTime), slog.Any("times", &benchTimes), slog.Any("user1", appender{benchOne}), slog.Any("user2", appender{benchOne}),
		slog.Any("users", &users), slog.Any("error", errBench),
	}
}

// tenPlain returns ten attributes of different types, with a small slice and a small object.
func tenPlain(user any) []slog.Attr {
	ints := []int{1, 22, 333, 4444, 55555}
	return []slog.Attr{
		slog.Int("status", 200), slog.Int64("size", 15342), slog.Float64("load", 0.7312), slog.Bool("cached", true),
		slog.String("path", "/api/v1/orders/4711/items"), slog.Duration("elapsed", 1234567), slog.Time("at", benchTime.AddDate(0, 1, 1)),
		slog.Any("err", errBench), slog.Any("ints", &ints), slog.Any("user", user),
	}
}

type smallUser struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Admin bool   `json:"admin"`
}

type loggedUser smallUser

func (u *loggedUser) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Int("id", u.ID), slog.String("name", u.Name), slog.Bool("admin", u.Admin))
}

// An appender has the method AppendAttrs of a benchUser but not its method LogValue.
type appender struct{ u *benchUser }

func (a appender) AppendAttrs(dst []slog.Attr) []slog.Attr { return a.u.AppendAttrs(dst) }

type benchRow struct {
	name string
	with []slog.Attr
	grp  string
	msg  string
	at   []slog.Attr
}

func benchRows() []benchRow {
	const msg = "The quick brown fox jumps over"
	return []benchRow{
		{name: "message", msg: msg},
		{name: "two", msg: msg, at: []slog.Attr{slog.String("user", "jane"), slog.Int("n", 42)}},
		{name: "scalars10", msg: msg, at: tenScalars()},
		{name: "mixed10", msg: msg, at: tenMixed()},
		{name: "plain10", msg: msg, at: tenPlain(&loggedUser{4711, "jane.doe", true})},
		{name: "struct10", msg: msg, at: tenPlain(&smallUser{4711, "jane.doe", true})},
		{name: "context10", msg: msg, with: tenScalars()},
		{name: "group", msg: msg, grp: "req", at: []slog.Attr{slog.String("user", "jane"), slog.Int("n", 42)}},
		{name: "1KB-ascii", msg: msg, at: []slog.Attr{slog.String("body", strings.Repeat("the quick brown fox jumps over it. ", 30)[:1024])}},
		{name: "1KB-utf8", msg: msg, at: []slog.Attr{slog.String("body", strings.ToValidUTF8(strings.Repeat("Соединение с сервером потеряно, повтор через 5 с. ", 30)[:1024], ""))}},
		{name: "1KB-stack", msg: msg, at: []slog.Attr{slog.String("body", strings.Repeat("main.handler(0xc000123456)\n\t/srv/app/internal/http/handler.go:123 +0x1d\n", 15)[:1024])}},
		{name: "float-hard", msg: msg, at: []slog.Attr{slog.Float64("f", 0.1234567890123)}},
		{name: "map", msg: msg, at: []slog.Attr{slog.Any("m", map[string]any{"a": 1, "b": "two", "c": []any{1.5, true}})}},
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, row := range benchRows() {
		b.Run("ours/"+row.name, func(b *testing.B) {
			s := JSON(nil).Scope()
			if len(row.with) > 0 {
				s = s.WithAttrs(row.with)
			}
			s = s.WithGroup(row.grp)
			r := &Record{Time: benchTime, Message: row.msg, Attrs: row.at}
			dst := make([]byte, 0, 16<<10)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Time = benchTime.Add(time.Duration(i&0xffff) * 1000)
				var err error
				if dst, _, err = s.Append(dst[:0], r); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("slog/"+row.name, func(b *testing.B) {
			var h slog.Handler = slog.NewJSONHandler(io.Discard, nil)
			if len(row.with) > 0 {
				h = h.WithAttrs(row.with)
			}
			if row.grp != "" {
				h = h.WithGroup(row.grp)
			}
			r := slog.NewRecord(benchTime, slog.LevelInfo, row.msg, 0)
			r.AddAttrs(row.at...)
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Handle(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, f := range []struct {
		name string
		e    Encoder
	}{{"logfmt", Logfmt(nil)}, {"console", Console(nil)}, {"replace", JSON(&Options{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { return a }})}} {
		b.Run(f.name+"/scalars10", func(b *testing.B) {
			r := &Record{Time: benchTime, Message: strings.Repeat("word ", 6), Attrs: tenScalars()}
			dst := make([]byte, 0, 16<<10)
			s := f.e.Scope()
			b.ReportAllocs()
			for b.Loop() {
				dst, _, _ = s.Append(dst[:0], r)
			}
		})
	}
}

func BenchmarkWith(b *testing.B) {
	s := JSON(nil).Scope()
	attrs := tenScalars()[:2]
	b.ReportAllocs()
	for b.Loop() {
		_ = s.WithAttrs(attrs)
	}
}
