package forebay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// wantAllocs fails unless each call of f allocates want times.
func wantAllocs(t *testing.T, name string, want float64, f func()) {
	t.Helper()
	if race.Enabled { // the race detector allocates, and sync.Pool drops items
		f()
		return
	}
	bigPool.Plain(t)
	if got := allocs.PerRun(2000, f); got != want {
		t.Errorf("%s: %v allocations per call, want %v", name, got, want)
	}
}

// A logging call with scalar attributes does not allocate, whatever the number of attributes, the
// kind of logger and the output.
func TestZeroAllocs(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	sw, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	trace := Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.String("trace_id", "0123456789abcdef"))
	})
	ctx := t.Context()
	now := time.Now()
	for name, opts := range map[string][]Option{
		"discard":    {Route(encode.JSON(nil), Writer(io.Discard, Direct()))},
		"file":       {Route(encode.JSON(nil), Writer(f, Direct(), CloseWriter()))},
		"slab":       {Route(encode.JSON(nil), Writer(sw, CloseWriter()))},
		"two routes": {Route(encode.JSON(nil), Writer(writerFunc(io.Discard.Write), Direct()), Writer(io.Discard, Direct())), Route(encode.Logfmt(nil), Writer(io.Discard, Direct()))},
		"context":    {trace, Route(encode.JSON(nil), Writer(io.Discard, Direct()))},
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
				wantAllocs(t, name, 0, f)
			}
		})
	}
}

// Recording the source position does not allocate.
func TestSourcePositionDoesNotAllocate(t *testing.T) {
	r := newRouter(t, Route(&countingEncoder{Encoder: encode.JSON(nil), pc: true}, Writer(io.Discard, Direct())))
	l := r.Logger()
	wantAllocs(t, "message", 0, func() { l.Info("m") })
}

// A dropped record does not allocate, whether a direct output is stuck, a buffered output is full,
// or the router is closed.
func TestZeroAllocsDropped(t *testing.T) {
	k := &memOutput{fail: errors.New("full")}
	r := newRouter(t, quiet(), Route(encode.JSON(nil), Writer(k), Writer(writerFunc(io.Discard.Write), Direct(), Name("d"))))
	l := r.Logger()
	d := r.h.core.outputs[1].direct
	d.state.Or(gateHeld | gateStuck)
	wantAllocs(t, "stuck and full", 0, func() { l.Info("m") })
	d.state.And(^uint64(gateHeld | gateStuck))
	if _, err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAllocs(t, "closed", 0, func() { l.Info("m") })
}

// A scratch, the pooled memory for one record, does not keep buffers above the maximum sizes.
func TestLargeScratchIsNotKept(t *testing.T) {
	var p scratchPool
	p.routes = 1
	s := p.get()
	s.buf = append(s.buf, make([]byte, maxScratchBytes+1)...)
	for range maxScratchAttrs + 1 {
		s.attrs = append(s.attrs, slog.String("k", "secret"))
	}
	p.put(s)
	if cap(s.buf) > ownScratchBytes || s.want != 0 || cap(s.attrs) > maxScratchAttrs {
		t.Errorf("scratch keeps %d bytes and %d attributes", cap(s.buf), cap(s.attrs))
	}
	// Smaller buffers are kept, but all references to values are cleared.
	s.attrs = append(s.attrs, slog.String("k", "secret"))
	s.rec.Message, s.rec.Attrs, s.err = "secret", s.attrs, errTest
	p.put(s)
	if len(s.attrs) != 0 || !s.attrs[:1][0].Equal(slog.Attr{}) || s.rec.Message != "" || s.rec.Attrs != nil || s.err != nil {
		t.Errorf("scratch keeps %+v", s)
	}
}

// After a large record, each of the next records borrows pooled memory, until shrinkAfter
// consecutive records were small.
func TestScratchReusesPooledMemory(t *testing.T) {
	before := bigRecords.Stats()
	s := newScratch(1)
	record := func(n, borrows int) {
		t.Helper()
		if s.want > 0 { // as scratchPool.get does
			s.borrow()
		}
		if cap(s.borrowed) != borrows {
			t.Fatalf("borrows %d bytes for a record of %d, want %d", cap(s.borrowed), n, borrows)
		}
		s.buf = append(s.buf, make([]byte, n)...)
		s.reset()
		if s.borrowed != nil || cap(s.buf) != ownScratchBytes || len(s.buf) != 0 {
			t.Fatalf("the scratch has %d borrowed bytes and an own buffer of %d bytes after reset", cap(s.borrowed), cap(s.buf))
		}
	}
	record(ownScratchBytes, 0)
	record(ownScratchBytes+1, 0) // larger than the buffer: append allocates
	record(100, 4<<10)
	record(5000, 4<<10) // larger than the borrowed memory: append allocates
	record(3000, 16<<10)
	for range shrinkAfter - 1 {
		record(100, 16<<10)
	}
	record(10_000, 16<<10)
	record(maxScratchBytes+1, 16<<10) // too large: want does not change
	for range shrinkAfter {
		record(100, 16<<10)
	}
	record(100, 0)
	after := bigRecords.Stats()
	for i, c := range after.Classes {
		if c.InUse != before.Classes[i].InUse {
			t.Errorf("not given back: %+v", c)
		}
	}
	if after.Refused != before.Refused {
		t.Errorf("refused: %+v", after.Refused)
	}
}

// Large records do not allocate, even if most records are small.
func TestLargeRecordsDoNotAllocate(t *testing.T) {
	r, err := NewRouter(Route(encode.JSON(nil), Writer(io.Discard, Direct())))
	if err != nil {
		t.Fatal(err)
	}
	l := r.Logger()
	big := strings.Repeat("a", 20_000)
	wantAllocs(t, "20 kB and 1 B", 0, func() {
		l.Info(big)
		l.Info("m")
	})
}
