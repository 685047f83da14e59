package encode

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

func TestReplaceAttrOfConsole(t *testing.T) {
	for _, c := range []struct {
		replace func([]string, slog.Attr) slog.Attr
		want    string
	}{
		{func(_ []string, a slog.Attr) slog.Attr { return a }, "13:44:10.123 WARN  m  n=1\n"},
		{func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "time" {
				return slog.Attr{}
			}
			return a
		}, "WARN  m  n=1\n"},
		{func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case "time":
				return slog.String("t", "no\x1b[0mon")
			case "level":
				return slog.String("level", "\x1bw")
			case "msg":
				return slog.String("message", "other\n")
			}
			return a
		}, `"no\u001b[0mon"` + ` \u001bw ` + `other\n  n=1` + "\n"},
		{func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case "time":
				return slog.Group("at", slog.Int("h", 13))
			case "level":
				return slog.Int("level", 3)
			case "msg":
				return slog.Any("msg", []int{1, 2})
			}
			return a
		}, "at.h=13 3  msg=[1,2]  n=1\n"},
		{func([]string, slog.Attr) slog.Attr { return slog.Attr{} }, "\n"},
	} {
		out, _, _ := Console(&Options{Location: time.UTC, ReplaceAttr: c.replace}).Scope().
			Append([]byte("x "), &Record{Time: benchTime, Level: slog.LevelWarn, Message: "m", Attrs: []slog.Attr{slog.Int("n", 1)}})
		if string(out) != "x "+c.want {
			t.Errorf("got  %qwant %q", out, "x "+c.want)
		}
	}
}

func TestConsoleOmitsBuiltins(t *testing.T) {
	out, _, _ := Console(&Options{TimeKey: "-", LevelKey: "-"}).Scope().Append(nil, &Record{Time: benchTime, Message: "m"})
	if string(out) != "m\n" {
		t.Errorf("%q", out)
	}
}

// A color sequence in a message or a value does not change the color of the line.
func TestConsoleEscapesColorsOfValues(t *testing.T) {
	e := Console(&Options{Color: true})
	plain := encodeOne(t, e, slog.String("k", "v"))
	evil := encodeOne(t, e, slog.String("k", values.ColorRed+"v"), slog.String(values.ColorRed, "x"))
	if strings.Count(evil, "\x1b") != strings.Count(plain, "\x1b")+2 || !strings.Contains(evil, `"\u001b[31mv"`) || !strings.Contains(evil, "_[31m=") {
		t.Errorf("%q", evil)
	}
	if strings.Contains(encodeOne(t, Console(nil), slog.String("k", values.ColorRed), slog.Any("err", textError{values.ColorRed})), "\x1b") {
		t.Error("colour without Color")
	}
}

func TestColorTerminalRespectsEnvironment(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if ColorTerminal(file) || ColorTerminal(nil) {
		t.Error("a file is no terminal")
	}
	dev, err := os.Open(os.DevNull) // a character device that every machine has
	if err != nil {
		t.Skip(err)
	}
	defer dev.Close()
	if info, err := dev.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Skip("no character device")
	}
	if !ColorTerminal(dev) {
		t.Error("a character device may have colours")
	}
	t.Setenv("NO_COLOR", "1")
	if ColorTerminal(dev) {
		t.Error("NO_COLOR not heeded")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if ColorTerminal(dev) {
		t.Error("TERM=dumb not heeded")
	}
}
