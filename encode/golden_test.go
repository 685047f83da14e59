package encode

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func TestGoldenLines(t *testing.T) {
	utc := time.UTC
	for name, e := range map[string]Encoder{
		"json":          JSON(nil),
		"logfmt":        Logfmt(nil),
		"console":       Console(&Options{Location: utc}),
		"json-chain":    JSON(chained),
		"logfmt-chain":  Logfmt(chained),
		"console-chain": Console(&Options{Location: utc, Errors: "chain"}),
		"console-color": Console(&Options{Location: utc, Color: true}),
	} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			root := e.Scope()
			users := []*benchUser{benchOne, {Name: "Ж\n"}}
			for _, c := range []struct {
				scope Scope
				level slog.Level
				msg   string
				attrs []slog.Attr
			}{
				{root, slog.LevelInfo, "hello, world", nil},
				{root, slog.LevelDebug, "scalars", tenScalars()},
				{root, slog.LevelWarn, "quotes \" and = and \\", []slog.Attr{slog.String("empty", ""), slog.String("two words", "a b"), slog.String("eq", "a=b")}},
				{root, slog.LevelError, "errors", []slog.Attr{
					slog.Any("err", fmt.Errorf("save: %w", errors.Join(io.ErrShortWrite, fmt.Errorf("sync: %w", io.ErrClosedPipe)))),
					slog.Any("nil", error((*ptrError)(nil))), slog.Any("list", []error{io.EOF, nil}),
				}},
				{root, slog.LevelError + 1, "a stack", []slog.Attr{slog.Any("err", textError{"main.main()\n\t/srv/main.go:7"})}},
				{root, slog.LevelInfo, "control\n\x1b[2J\u202eevil\u0085\x7f", []slog.Attr{slog.String("k\n", "\x1b]0;title\a"), slog.String("bad", "\xff\xfe")}},
				{root, slog.LevelInfo, "groups", []slog.Attr{
					slog.Group("a", slog.Int("b", 1), slog.Group("c", slog.Int("d", 2)), slog.Group("none"), slog.Group("", slog.Int("inline", 3))), slog.Attr{},
				}},
				{root.WithGroup("g").WithAttrs([]slog.Attr{slog.Int("w", 1)}).WithGroup("h"), slog.LevelInfo, "scopes", []slog.Attr{slog.Int("n", 2)}},
				{root.WithGroup("g").WithAttrs([]slog.Attr{slog.Int("w", 1)}).WithGroup("h"), slog.LevelInfo, "empty group h", nil},
				{root, slog.LevelInfo, "values", []slog.Attr{
					slog.Any("ints", &benchInts), slog.Any("strings", benchStrings[:2]), slog.Any("times", benchTimes[:1]), slog.Any("durations", []time.Duration{time.Second}),
					slog.Any("bools", []bool{true, false}), slog.Any("floats", []float64{1, 0.5}), slog.Any("bytes", []byte("bytes")), slog.Any("map", map[string]any{"b": 1, "a": "x y"}),
					slog.Any("nil", nil), slog.Any("level", slog.LevelWarn), slog.Any("user", benchOne), slog.Any("users", users), slog.Any("stringer", time.March),
				}},
			} {
				out, _, err := c.scope.Append(got, &Record{Time: benchTime, Level: c.level, Message: c.msg, Attrs: c.attrs})
				if err != nil {
					t.Fatal(err)
				}
				got = out
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("not as in %s (go test -update rewrites it):\n%s", path, got)
			}
		})
	}
}
