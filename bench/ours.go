package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

// router returns a router with one JSON route to w. What it panics with, the
// harness reports.
func router(w io.Writer) *forebay.Router {
	r, err := forebay.NewRouter(forebay.Route(encode.JSON(nil), forebay.Output(slog.LevelInfo, w)))
	if err != nil {
		panic(err)
	}
	return r
}

// oursNative logs s through a forebay.Logger over a direct output.
func oursNative(w io.Writer, s rivals.Scenario) rivals.Run { return logger(router(w).Logger(), s) }

// oursHandler is forebay's slog handler over a direct output.
func oursHandler(w io.Writer) slog.Handler { return router(w) }

// oursBuffered logs s through a forebay.Logger over the slab writer in front of
// dst.
func oursBuffered(dst io.Writer, s rivals.Scenario) (rivals.Run, func() error) {
	w := newSlab(dst, nil)
	return oursNative(w.Output, s), w.Drain
}

// oursBufferedSlog is oursBuffered behind slog.Logger.
func oursBufferedSlog(dst io.Writer, s rivals.Scenario) (rivals.Run, func() error) {
	w := newSlab(dst, nil)
	return rivals.ViaSlog(oursHandler(w.Output), s), w.Drain
}

// slabWriter is an Output in front of an io.Writer, as a buffering writer.
type slabWriter struct{ *deliver.Output }

func newSlab(dst io.Writer, o *slab.Options) slabWriter {
	var do deliver.OutputOptions
	if o != nil {
		do.Slab = *o
	}
	w, err := deliver.NewOutput(deliver.ToWriter(dst), &do)
	if err != nil {
		panic(err)
	}
	return slabWriter{w}
}

// Drain closes the writer and requires that nothing was left behind.
func (w slabWriter) Drain() error {
	rep, err := w.Shutdown(context.Background())
	if err == nil && rep.Undelivered() > 0 {
		err = fmt.Errorf("%s", rep.Account)
	}
	return err
}

// recordWriter is slabWriter through WriteRecord, as the Router uses it.
type recordWriter struct{ slabWriter }

func (w recordWriter) Write(p []byte) (int, error) {
	return len(p), w.WriteRecord(p, batch.Meta{Time: 1, Level: slog.LevelInfo})
}

// logger logs s in our own idiom: slog's attributes; slices and objects by
// pointer.
func logger(l *forebay.Logger, s rivals.Scenario) rivals.Run {
	switch s {
	case rivals.Two:
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text, slog.String("method", rivals.Method), slog.Int("status", rivals.Status))
			}
		}
	case rivals.Disabled:
		return func(_, n int) {
			for range n {
				l.Debug(rivals.Text, slog.String("method", rivals.Method), slog.Int("status", rivals.Status))
			}
		}
	case rivals.Six:
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text, slog.String("method", rivals.Method), slog.String("path", rivals.Path),
					slog.Int("status", rivals.Status), slog.Int64("size", rivals.Size),
					slog.Duration("elapsed", rivals.Elapsed), slog.Bool("cached", rivals.Cached))
			}
		}
	case rivals.TenMixed:
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text,
					slog.Int("status", rivals.Status), slog.Int64("size", rivals.Size), slog.Float64("load", rivals.Load),
					slog.Bool("cached", rivals.Cached), slog.String("path", rivals.Path), slog.Duration("elapsed", rivals.Elapsed),
					slog.Time("at", rivals.At), slog.Any("err", rivals.Err), slog.Any("ints", &rivals.Ints), slog.Any("user", rivals.Someone))
			}
		}
	case rivals.ContextTen:
		l = l.With(
			slog.String("host", rivals.Host), slog.String("region", rivals.Region),
			slog.String("trace", rivals.Trace), slog.String("path", rivals.Path),
			slog.Int("port", rivals.Port), slog.Int("attempt", rivals.Attempt), slog.Int64("size", rivals.Size),
			slog.Float64("load", rivals.Load), slog.Bool("cached", rivals.Cached), slog.Duration("elapsed", rivals.Elapsed))
	case rivals.Plain1K, rivals.UTF81K, rivals.Stack1K, rivals.Controls:
		body := s.Body()
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text, slog.String("body", body))
			}
		}
	case rivals.BadUTF8:
		return func(_, n int) {
			for range n {
				l.Info(rivals.BadText, slog.String("body", rivals.BadText))
			}
		}
	case rivals.BadKey:
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text, slog.String(rivals.OddKey, rivals.Method))
			}
		}
	case rivals.NaN:
		return func(_, n int) {
			for range n {
				l.Info(rivals.Text, slog.Float64("load", rivals.Nan))
			}
		}
	}
	return func(_, n int) {
		for range n {
			l.Info(rivals.Text)
		}
	}
}
