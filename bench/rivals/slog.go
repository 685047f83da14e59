package rivals

import (
	"context"
	"io"
	"log/slog"
)

// Slog logs the records of s through the JSON handler of the standard library with LogAttrs.
func Slog(w io.Writer, s Scenario) Run {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: s.Level()})
	if s == TenMixed {
		// These forms are the fastest for the handler. A struct would need reflection, so a group
		// is used. Pointers avoid allocations.
		l, ctx := slog.New(h), context.Background()
		return func(_, n int) {
			for range n {
				l.LogAttrs(ctx, slog.LevelInfo, Text,
					slog.Int("status", Status), slog.Int64("size", Size), slog.Float64("load", Load),
					slog.Bool("cached", Cached), slog.String("path", Path), slog.Duration("elapsed", Elapsed),
					slog.Time("at", At), slog.Any("err", Err), slog.Any("ints", &Ints),
					slog.GroupAttrs("user", slog.Int("id", Someone.ID), slog.String("name", Someone.Name), slog.Bool("admin", Someone.Admin)))
			}
		}
	}
	return ViaSlog(h, s)
}

// ViaSlog logs the records of s through a slog.Logger over h, with attributes that do not depend on
// the handler.
func ViaSlog(h slog.Handler, s Scenario) Run {
	ctx := context.Background()
	l := slog.New(h)
	if s == ContextTen {
		l = slog.New(h.WithAttrs([]slog.Attr{
			slog.String("host", Host), slog.String("region", Region), slog.String("trace", Trace), slog.String("path", Path),
			slog.Int("port", Port), slog.Int("attempt", Attempt), slog.Int64("size", Size),
			slog.Float64("load", Load), slog.Bool("cached", Cached), slog.Duration("elapsed", Elapsed),
		}))
	}
	msg, key, value := s.Strings()
	return func(_, n int) {
		for range n {
			switch s {
			case Two, Disabled:
				l.LogAttrs(ctx, slog.LevelInfo, Text, slog.String("method", Method), slog.Int("status", Status))
			case Six:
				l.LogAttrs(ctx, slog.LevelInfo, Text, slog.String("method", Method), slog.String("path", Path),
					slog.Int("status", Status), slog.Int64("size", Size), slog.Duration("elapsed", Elapsed), slog.Bool("cached", Cached))
			case TenScalar:
				l.LogAttrs(ctx, slog.LevelInfo, Text,
					slog.String("host", Host), slog.String("region", Region), slog.String("trace", Trace), slog.String("path", Path),
					slog.Int("port", Port), slog.Int("attempt", Attempt), slog.Int64("size", Size),
					slog.Float64("load", Load), slog.Bool("cached", Cached), slog.Duration("elapsed", Elapsed))
			case TenMixed:
				l.LogAttrs(ctx, slog.LevelInfo, Text,
					slog.Int("status", Status), slog.Int64("size", Size), slog.Float64("load", Load),
					slog.Bool("cached", Cached), slog.String("path", Path), slog.Duration("elapsed", Elapsed),
					slog.Time("at", At), slog.Any("err", Err), slog.Any("ints", Ints), slog.Any("user", Anyone))
			case Group:
				l.LogAttrs(ctx, slog.LevelInfo, Text,
					slog.GroupAttrs("request", slog.String("method", Method), slog.Int("status", Status)))
			case Plain1K, UTF81K, Stack1K, BadUTF8, BadKey, Controls:
				l.LogAttrs(ctx, slog.LevelInfo, msg, slog.String(key, value))
			case NaN:
				l.LogAttrs(ctx, slog.LevelInfo, Text, slog.Float64("load", Nan))
			default:
				l.LogAttrs(ctx, slog.LevelInfo, Text)
			}
		}
	}
}

// Empty is a slog.Handler that is enabled for all levels and does nothing.
type Empty struct{}

// Enabled, Handle, WithAttrs and WithGroup implement slog.Handler.
func (Empty) Enabled(context.Context, slog.Level) bool  { return true }
func (Empty) Handle(context.Context, slog.Record) error { return nil }
func (h Empty) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h Empty) WithGroup(string) slog.Handler           { return h }
