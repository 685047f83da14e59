package forebay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

// allocs fails if f allocates.
func allocs(t *testing.T, name string, want float64, f func()) {
	t.Helper()
	if raceEnabled { // which allocates, and makes pools forget
		f()
		return
	}
	if got := testing.AllocsPerRun(2000, f); got != want {
		t.Errorf("%s: %v allocations per call, want %v", name, got, want)
	}
}

// The ways in allocate nothing for scalar attributes, whatever the number and
// the output.
func TestZeroAllocs(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	sw, err := slab.New(io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	slot := NewSlot(0)
	if err := slot.Set(writerFunc(io.Discard.Write)); err != nil {
		t.Fatal(err)
	}
	trace := Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.String("trace_id", "0123456789abcdef"))
	})
	ctx := t.Context()
	now := time.Now()
	for name, opts := range map[string][]Option{
		"discard":    {Route(encode.JSON(nil), Output(nil, io.Discard))},
		"file":       {Route(encode.JSON(nil), OutputCloser(nil, f))},
		"slab":       {Route(encode.JSON(nil), OutputCloser(nil, sw))},
		"slot":       {Route(encode.JSON(nil), Output(nil, slot))},
		"two routes": {Route(encode.JSON(nil), Output(nil, writerFunc(io.Discard.Write)), Output(nil, io.Discard)), Route(encode.Logfmt(nil), Output(nil, io.Discard))},
		"context":    {trace, Route(encode.JSON(nil), Output(nil, io.Discard))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, opts...)
			l := r.Logger()
			with := l.With(slog.String("service", "test"), slog.Int("pid", 1)).WithGroup("g")
			log, logWith := slog.New(r), with.Slog()
			for name, f := range map[string]func(){
				"message":  func() { l.Info("m") },
				"two":      func() { l.Info("m", slog.String("a", "b"), slog.Int("c", 1)) },
				"disabled": func() { l.Debug("m", slog.String("a", "b"), slog.Int("c", 1)) },
				"twelve": func() {
					with.Error("m", slog.String("a", "b"), slog.Int("c", 1), slog.Bool("d", true), slog.Float64("e", 1.5),
						slog.Duration("f", time.Second), slog.Time("g", now), slog.Uint64("h", 1), slog.Int64("i", 1),
						slog.String("j", "b"), slog.Int("k", 1), slog.Bool("l", true), slog.Float64("m", 1.5))
				},
				"slog message":  func() { log.LogAttrs(ctx, slog.LevelInfo, "m") },
				"slog two":      func() { logWith.LogAttrs(ctx, slog.LevelInfo, "m", slog.String("a", "b"), slog.Int("c", 1)) },
				"slog disabled": func() { log.LogAttrs(ctx, slog.LevelDebug, "m", slog.String("a", "b"), slog.Int("c", 1)) },
			} {
				allocs(t, name, 0, f)
			}
		})
	}
}

// The source position costs none either.
func TestZeroAllocsSource(t *testing.T) {
	r := newRouter(t, Route(&countingEncoder{Encoder: encode.JSON(nil), pc: true}, Output(nil, io.Discard)))
	l := r.Logger()
	allocs(t, "message", 0, func() { l.Info("m") })
}

// Records that are dropped cost nothing: neither at a stuck output, nor at a
// buffered one that is full, nor after Close.
func TestZeroAllocsDropped(t *testing.T) {
	k := &tank{fail: errors.New("full")}
	r := newRouter(t, quiet(), Route(encode.JSON(nil), Output(nil, k), Output(nil, writerFunc(io.Discard.Write), Name("d"))))
	l := r.Logger()
	d := r.h.core.outputs[1].dir
	d.state.Or(gateHeld | gateStuck)
	allocs(t, "stuck and full", 0, func() { l.Info("m") })
	d.state.And(^uint64(gateHeld | gateStuck))
	if _, err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	allocs(t, "closed", 0, func() { l.Info("m") })
}

// A large record is not kept.
func TestScratchCeiling(t *testing.T) {
	var p scratchPool
	p.routes = 1
	s := p.get()
	s.buf = append(s.buf, make([]byte, maxScratchBytes+1)...)
	for range maxScratchAttrs + 1 {
		s.attrs = append(s.attrs, slog.String("k", "secret"))
	}
	p.put(s)
	if cap(s.buf) > maxScratchBytes || cap(s.attrs) > maxScratchAttrs {
		t.Errorf("scratch keeps %d bytes and %d attributes", cap(s.buf), cap(s.attrs))
	}
	// What fits is kept, but nothing of its content.
	s.attrs = append(s.attrs, slog.String("k", "secret"))
	s.rec.Message, s.rec.Attrs, s.err = "secret", s.attrs, errTest
	p.put(s)
	if len(s.attrs) != 0 || !s.attrs[:1][0].Equal(slog.Attr{}) || s.rec.Message != "" || s.rec.Attrs != nil || s.err != nil {
		t.Errorf("scratch keeps %+v", s)
	}
}
