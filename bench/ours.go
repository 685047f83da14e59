package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

// oursNative logs s through a forebay.Logger over a direct output.
func oursNative(w io.Writer, s rivals.Scenario) rivals.Run { panic("not built yet") }

// oursHandler is forebay's slog handler over a direct output.
func oursHandler(w io.Writer) slog.Handler { panic("not built yet") }

// oursBuffered logs s through a forebay.Logger over the slab writer in front of
// dst.
func oursBuffered(dst io.Writer, s rivals.Scenario) (rivals.Run, func() error) {
	panic("not built yet")
}

// oursBufferedSlog is oursBuffered behind slog.Logger.
func oursBufferedSlog(dst io.Writer, s rivals.Scenario) (rivals.Run, func() error) {
	panic("not built yet")
}

// slabWriter is slab.Writer as a buffering writer.
type slabWriter struct{ *slab.Writer }

func newSlab(dst io.Writer, o *slab.Options) slabWriter {
	w, err := slab.New(dst, o)
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
