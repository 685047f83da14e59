package main

import (
	"io"
	"log/slog"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
)

// Names of contenders that several rows and verdicts use.
const (
	ours    = "forebay"
	slogStd = "log/slog"
	empty   = "empty handler" // lower bound for log/slog: a handler that does nothing
)

// native returns a contender that logs the records of s to a destination that counts them.
func native(name string, kind h.Kind, note string, l rivals.Native, s rivals.Scenario) h.Contender {
	return h.Contender{
		Name: name, Kind: kind, Note: note,
		Faults: func() []string { return rivals.Check(l, s) },
		New: func(*h.Env) (*h.Subject, error) {
			d := new(rivals.Discard)
			return &h.Subject{Run: l(d, s), Tally: d.ByWrite}, nil
		},
	}
}

func natives(s rivals.Scenario) []h.Contender {
	return []h.Contender{
		native(ours, h.Ours, "Logger.Info with slog attributes", own.Native, s),
		native("zap", h.Rival, "typed fields", rivals.Zap, s),
		native("zerolog", h.Rival, "chained fields", rivals.Zerolog, s),
		native("phuslu", h.Rival, "chained fields; RFC3339Nano instead of its own milliseconds", rivals.Phuslu, s),
		native(slogStd, h.Rival, "JSONHandler, LogAttrs", rivals.Slog, s),
	}
}

func handlers(s rivals.Scenario) []h.Contender {
	via := func(name string, kind h.Kind, note string, mk func(io.Writer) slog.Handler) h.Contender {
		return native(name, kind, note, rivals.Handler(mk), s)
	}
	std := func(w io.Writer) slog.Handler {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})
	}
	return []h.Contender{
		via(ours, h.Ours, "Router as slog.Handler", own.Handler),
		via("zap", h.Rival, "zap/exp zapslog", rivals.ZapHandler),
		via("zerolog", h.Rival, "zerolog.NewSlogHandler", rivals.ZerologHandler),
		via("phuslu", h.Rival, "SlogNewJSONHandler", rivals.PhusluHandler),
		via(slogStd, h.Rival, "JSONHandler", std),
		{Name: empty, Kind: h.Reference, Note: "the time of slog: a handler that does nothing", New: func(*h.Env) (*h.Subject, error) {
			return &h.Subject{Run: rivals.ViaSlog(rivals.Empty{}, s)}, nil
		}},
	}
}

const encodeWarm = 1000 // number of operations that fill the pools

func init() {
	for _, r := range []struct {
		name   string
		s      rivals.Scenario
		what   string
		factor float64
	}{
		{"json/message", rivals.Message, "a message and no field", 0.75},
		{"json/two", rivals.Two, "a message and 2 fields: a string, an int", 0.75},
		{"json/mixed", rivals.TenMixed, rivals.Mixed + ", each logger in its fastest idiom", 0.75},
		{"json/context", rivals.ContextTen, "a context of ten scalar fields, then messages", 0.75},
		{"json/1k-ascii", rivals.Plain1K, "one string of 1 KB of ASCII that needs no escapes", 0.3},
		{"json/1k-utf8", rivals.UTF81K, "one string of 1 KB of UTF-8, two to four bytes a rune", 0.3},
		{"json/1k-stack", rivals.Stack1K, "one string of 1 KB of stack trace with newlines and tabs", 0.5},
	} {
		h.Register(h.Row{
			Name: r.name, What: "native API, " + r.what + ", 1 goroutine, discard",
			Warm: encodeWarm, Contenders: natives(r.s),
			Targets: []h.Target{h.VersusFastest(ours, r.factor), h.ZeroAllocs(ours)},
		})
	}
	h.Register(h.Row{
		Name: "off/two", What: "a disabled call with 2 fields", Reference: "zerolog", Warm: encodeWarm, Silent: true, Contenders: natives(rivals.Disabled),
		Targets: []h.Target{h.Versus(ours, "zerolog", 1.5), h.ZeroAllocs(ours)},
	})
	for _, r := range []struct {
		name string
		s    rivals.Scenario
		what string
	}{
		{"slog/two", rivals.Two, "2 attributes"},
		{"slog/scalar10", rivals.TenScalar, "ten scalar attributes"},
		{"slog/mixed", rivals.TenMixed, rivals.Mixed + " (a plain struct: the caller does not know the handler)"},
		{"slog/context", rivals.ContextTen, "a context of ten scalar attributes, then messages"},
		{"slog/group", rivals.Group, "a group of 2 attributes"},
	} {
		h.Register(h.Row{
			Name: r.name, What: "slog.Logger.LogAttrs, " + r.what + ", 1 goroutine, discard",
			Warm: encodeWarm, Contenders: handlers(r.s),
			Targets: []h.Target{h.VersusFastest(ours, 1), h.ShareVersusFastest(ours, empty, 0.6)},
		})
	}
}
