//go:build logf

package main

import (
	"context"
	"io"
	"os"

	"github.com/ssgreg/logf/v2"

	"github.com/forebay-log/forebay/bench/rivals"
)

const results = "../results/latest.json"

// slabWriter is logf's SlabWriter as a rivals.Writer.
type slabWriter struct{ *logf.SlabWriter }

// Drain closes it.
func (w slabWriter) Drain() error { return w.Close() }

// openSlab returns a SlabWriter in front of f. It must not see Sync, which would cost it an
// fsync that nobody else pays for.
func openSlab(f *os.File) (rivals.Writer, error) {
	return slabWriter{logf.NewSlabWriter(struct{ io.Writer }{f}).SlabSize(slabBytes).SlabCount(slabCount).Build()}, nil
}

// native logs through logf's Router, without the caller.
func native(w io.Writer, s rivals.Scenario) rivals.Run {
	enc := logf.JSON().TimeKey("time").LevelKey("level").MsgKey("msg").
		EncodeTime(logf.RFC3339NanoTimeEncoder).EncodeDuration(logf.NanoDurationEncoder).Build()
	handler, _, err := logf.NewRouter().Route(enc, logf.Output(logf.LevelInfo, w)).Build()
	if err != nil {
		panic(err)
	}
	l, ctx := logf.New(handler).WithCaller(false), context.Background()
	log := func(fields func() []logf.Field, text string) rivals.Run {
		return func(_, n int) {
			for range n {
				l.Info(ctx, text, fields()...)
			}
		}
	}
	switch s {
	case rivals.Six:
		return func(_, n int) {
			for range n {
				l.Info(ctx, rivals.Text, logf.String("method", rivals.Method), logf.String("path", rivals.Path),
					logf.Int("status", rivals.Status), logf.Int64("size", rivals.Size),
					logf.Duration("elapsed", rivals.Elapsed), logf.Bool("cached", rivals.Cached))
			}
		}
	case rivals.BadUTF8:
		return log(func() []logf.Field { return []logf.Field{logf.String("body", rivals.BadText)} }, rivals.BadText)
	case rivals.BadKey:
		return log(func() []logf.Field { return []logf.Field{logf.String(rivals.OddKey, rivals.Method)} }, rivals.Text)
	case rivals.Controls:
		return log(func() []logf.Field { return []logf.Field{logf.String("body", s.Body())} }, rivals.Text)
	case rivals.NaN:
		return log(func() []logf.Field { return []logf.Field{logf.Float64("load", rivals.Nan)} }, rivals.Text)
	}
	panic("logf: a scenario that no row has")
}
