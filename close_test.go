package forebay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
)

// A device is a writer with all methods that Flush and Close may use. Each method records its name
// and returns a configured error.
type device struct {
	lines
	calls []string
	do    func(op string) error
}

func (d *device) op(name string) error {
	d.mu.Lock()
	d.calls = append(d.calls, name)
	d.mu.Unlock()
	if d.do != nil {
		return d.do(name)
	}
	return nil
}

func (d *device) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, " ")
}

type (
	devFlushCtx struct{ *device }
	devFlush    struct{ *device }
	devSync     struct{ *device }
	devClose    struct{ *device }
	devFile     struct{ *device } // Sync and Close
	devBuffer   struct{ *device } // Flush, Sync and Close
	devShutdown struct{ *device }
	devBuffered struct{ *device } // a buffered output with Flush(ctx), Sync and Close
)

func (d devFlushCtx) Flush(context.Context) error { return d.op("flushctx") }
func (d devFlush) Flush() error                   { return d.op("flush") }
func (d devSync) Sync() error                     { return d.op("sync") }
func (d devClose) Close() error                   { return d.op("close") }
func (d devFile) Sync() error                     { return d.op("sync") }
func (d devFile) Close() error                    { return d.op("close") }
func (d devBuffer) Flush() error                  { return d.op("flush") }
func (d devBuffer) Sync() error                   { return d.op("sync") }
func (d devBuffer) Close() error                  { return d.op("close") }
func (d devShutdown) Close() error                { return d.op("close") }
func (d devShutdown) Shutdown(context.Context) (batch.Report, error) {
	return batch.Report{Unknown: 7}, d.op("shutdown")
}
func (d devBuffered) WriteRecord(p []byte, m batch.Meta) error { _, err := d.Write(p); return err }
func (d devBuffered) Flush(context.Context) error              { return d.op("flushctx") }
func (d devBuffered) Sync() error                              { return d.op("sync") }
func (d devBuffered) Close() error                             { return d.op("close") }

type shutdownRecorder struct{ devShutdown }

func (d shutdownRecorder) WriteRecord(p []byte, m batch.Meta) error { _, err := d.Write(p); return err }

// Flush and Close call the optional methods of a writer in the expected order. They call the method
// Close of the writer only with CloseWriter.
func TestFlushAndCloseCallWriterMethods(t *testing.T) {
	for _, tt := range []struct {
		name string
		w    func(*device) io.Writer

		flush, output, closer string // methods that Flush, Close, and Close with CloseWriter call
	}{
		{"writer", func(d *device) io.Writer { return d }, "", "", ""},
		{"Flush(ctx)", func(d *device) io.Writer { return devFlushCtx{d} }, "flushctx", "flushctx", ""},
		{"Flush", func(d *device) io.Writer { return devFlush{d} }, "flush", "flush", ""},
		{"Sync", func(d *device) io.Writer { return devSync{d} }, "sync", "sync", ""},
		{"Close", func(d *device) io.Writer { return devClose{d} }, "", "", "close"},
		{"file", func(d *device) io.Writer { return devFile{d} }, "sync", "sync", "sync close"},
		{"buffer", func(d *device) io.Writer { return devBuffer{d} }, "flush", "flush", "flush sync close"},
		{"Shutdown", func(d *device) io.Writer { return devShutdown{d} }, "", "", "shutdown"},
		{"buffered", func(d *device) io.Writer { return devBuffered{d} }, "flushctx", "flushctx", "flushctx sync close"},
		{"buffered with Shutdown", func(d *device) io.Writer { return shutdownRecorder{devShutdown{d}} }, "", "", "shutdown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d device
			r := newRouter(t, Route(plain(), Writer(tt.w(&d), Direct())))
			if err := r.Flush(t.Context()); err != nil || d.called() != tt.flush {
				t.Errorf("Flush: %q, want %q; %v", d.called(), tt.flush, err)
			}
			d.calls = nil
			if _, err := r.Close(t.Context()); err != nil || d.called() != tt.output {
				t.Errorf("Close: %q, want %q; %v", d.called(), tt.output, err)
			}
			if err := r.Flush(t.Context()); err != nil || d.called() != tt.output {
				t.Errorf("Flush after Close: %q; %v", d.called(), err)
			}
			wc, ok := tt.w(&d).(io.WriteCloser)
			if !ok {
				return
			}
			d.calls = nil
			// If two outputs have the same writer, it is closed once.
			r = newRouter(t, Route(plain(), Writer(wc, Direct()), Writer(wc, Direct(), CloseWriter())))
			rep, err := r.Close(t.Context())
			if err != nil || d.called() != tt.closer {
				t.Errorf("Close with CloseWriter: %q, want %q; %v", d.called(), tt.closer, err)
			}
			if wantUnknown := uint64(0); tt.name == "buffered with Shutdown" {
				wantUnknown = 7
				if rep.Outputs[0].Unknown != wantUnknown {
					t.Errorf("unknown %d, want %d", rep.Outputs[0].Unknown, wantUnknown)
				}
			}
		})
	}
}

// A failure during Close is in the report and in the error, with the name of the output. All other
// outputs are closed.
func TestCloseErrorsNameOutput(t *testing.T) {
	bad, panics, exits, good := &device{}, &device{}, &device{}, &device{}
	bad.do = func(op string) error { return fmt.Errorf("%s failed", op) }
	panics.do = func(string) error { panic("oops") }
	exits.do = func(string) error { runtime.Goexit(); return nil }
	r := newRouter(t, quiet(), Route(plain(),
		Writer(devBuffer{bad}, Direct(), CloseWriter(), Name("bad")), Writer(devBuffered{panics}, CloseWriter(), Name("panics")),
		Writer(devFile{exits}, Direct(), CloseWriter(), Name("exits")), Writer(devFile{good}, Direct(), CloseWriter(), Name("good"))))
	err := r.Flush(t.Context())
	for _, want := range []string{"output bad: flush failed", "output panics: panic: oops", "output exits: runtime.Goexit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Flush: %v\nlacks %q", err, want)
		}
	}
	r.Logger().Info("m") // the failing outputs hold no lock
	rep, err := r.Close(t.Context())
	for _, want := range []string{"output bad: flush failed", "sync failed", "close failed", "output panics: panic: oops", "output exits: runtime.Goexit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Close: %v\nlacks %q", err, want)
		}
	}
	if got := good.called(); got != "sync sync close" {
		t.Errorf("the output that does not fail: %q", got)
	}
	// All methods of each writer are called, even after a method has failed.
	for d, want := range map[*device]string{
		bad: "flush flush sync close", panics: "flushctx flushctx sync close", exits: "sync sync close",
	} {
		if got := d.called(); got != want {
			t.Errorf("called %q, want %q", got, want)
		}
	}
	for i, wantErr := range []bool{true, true, true, false} {
		if o := rep.Outputs[i]; (o.Err != nil) != wantErr || o.Unfinished || o.Accepted != 1 {
			t.Errorf("%+v", o)
		}
	}
	if s := rep.String(); !strings.Contains(s, "bad: accepted=1 delivered=1: forebay: output bad: flush failed") {
		t.Errorf("report %q", s)
	}
}

// Sync of a terminal or a pipe is not an error.
func TestUnsupportedSyncIsNoError(t *testing.T) {
	for _, e := range []error{syscall.EINVAL, syscall.ENOTSUP, syscall.ENOTTY} {
		d := &device{do: func(op string) error {
			if op == "sync" {
				return &os.PathError{Op: "sync", Path: "x", Err: e}
			}
			return nil
		}}
		r := newRouter(t, Route(plain(), Writer(devFile{d}, Direct(), CloseWriter())))
		if _, err := r.Close(t.Context()); err != nil {
			t.Errorf("%v: %v", e, err)
		}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	r := newRouter(t, Route(plain(), Writer(pw, Direct(), CloseWriter())))
	if _, err := r.Close(t.Context()); err != nil {
		t.Errorf("pipe: %v", err)
	}
}

// Close returns at the end of its context, even if an output hangs. The report names the unfinished
// output, which is closed when its write returns.
func TestCloseReturnsAlthoughOutputHangs(t *testing.T) {
	for _, where := range []string{"write", "flush", "sync", "close"} {
		t.Run(where, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var stuck atomic.Bool
				d := &device{}
				d.do = func(op string) error {
					if op == where {
						stuck.Store(true)
						<-release
					}
					return nil
				}
				w := hungWriter{devBuffer{d}, func() { _ = d.do("write") }}
				good, k := &device{}, &device{}
				r := newRouter(t, quiet(), Route(plain(), Writer(w, Direct(), CloseWriter(), Name("hung")), Writer(devFile{good}, Direct(), CloseWriter(), Name("good")),
					Writer(devBuffered{k}, CloseWriter(), Name("memOutput"))))
				log := slog.New(r)
				var wg sync.WaitGroup
				wg.Go(func() { log.Info("m") })
				synctest.Wait()
				if k.len() != 1 {
					t.Errorf("the buffered output has %d records", k.len())
				}

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				rep, err := r.Close(ctx)
				if d := time.Since(begun); d != time.Second {
					t.Errorf("Close took %v", d)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "output hung: not finished in time") {
					t.Errorf("Close: %v", err)
				}
				for _, o := range rep.Outputs {
					if o.Unfinished != (o.Name == "hung") {
						t.Errorf("%s unfinished=%t", o.Name, o.Unfinished)
					}
				}
				if good.called() != "sync close" || k.called() != "flushctx sync close" {
					t.Errorf("the other outputs: %q, %q", good.called(), k.called())
				}
				wantPending := uint64(0)
				if where == "write" {
					wantPending = 1
				}
				if o := rep.Outputs[0]; o.Pending.Inflight != wantPending || o.Check() != nil || o.Undelivered() != wantPending {
					t.Errorf("%s", o.Account)
				}
				if !strings.Contains(rep.String(), " unfinished: ") {
					t.Errorf("report %q", rep)
				}
				if err := r.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "late", 0)); !errors.Is(err, errClosed) {
					t.Errorf("Handle after Close: %v", err)
				}
				again, err2 := r.Close(t.Context())
				if again.String() != rep.String() || err2 == nil || err2.Error() != err.Error() {
					t.Error("the second Close returned another result")
				}
				close(release)
				wg.Wait()
				synctest.Wait()
				if got := d.called(); got != "flush sync close" {
					t.Errorf("after the hang: %q", got)
				}
			})
		})
	}
}

type hungWriter struct {
	devBuffer
	before func()
}

func (h hungWriter) Write(p []byte) (int, error) { h.before(); return h.devBuffer.Write(p) }

// Flush returns at the end of its context and does not wait for a stuck write.
func TestFlushReturnsAlthoughOutputHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d, good := &device{}, &device{}
		w := hungWriter{devBuffer{d}, func() { <-release }}
		r := newRouter(t, quiet(), Route(plain(), Writer(w, Direct(), Name("hung")), Writer(devBuffer{good}, Direct(), Name("good"))))
		var wg sync.WaitGroup
		wg.Go(func() { r.Logger().Info("m") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := r.Flush(ctx)
		if d := time.Since(begun); d != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush took %v: %v", d, err)
		}
		if good.called() != "flush" || d.called() != "" {
			t.Errorf("calls %q, %q", good.called(), d.called())
		}
		close(release)
		wg.Wait()
		if err := r.Flush(t.Context()); err != nil || d.called() != "flush" {
			t.Errorf("%q, %v", d.called(), err)
		}
	})
}

// A direct output may be flushed while records are written to it. The race detector finds no data
// race in a bufio.Writer.
func TestFlushOfBufioWriter(t *testing.T) {
	var buf bytes.Buffer
	r := newRouter(t, longBusyTimeout, Route(plain(), Writer(bufio.NewWriter(&buf), Direct(), Name("b"))))
	log := r.Logger()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				log.Info("m")
				if i%10 == 0 {
					if err := r.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := len(parseLines(t, &buf)); got != 800 {
		t.Errorf("%d records, want 800", got)
	}
}

// Handle after Close returns an error, which is counted, and does not panic. Records accepted
// before Close are delivered.
func TestHandleDuringAndAfterClose(t *testing.T) {
	var d device
	k := &memOutput{}
	r := newRouter(t, longBusyTimeout, Route(plain(), Writer(devFile{&d}, Direct(), CloseWriter(), Name("d")), Writer(k, CloseWriter(), Name("k"))))
	log := slog.New(r)
	var wg sync.WaitGroup
	const goroutines, per = 16, 200
	var ok, refused atomic.Uint64
	for range goroutines {
		wg.Go(func() {
			for range per {
				switch err := log.Handler().Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "m", 0)); {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, errClosed) && errors.Is(err, batch.ErrClosed):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	var reps [3]Report
	for i := range reps {
		wg.Go(func() {
			for ok.Load() < 100 {
				runtime.Gosched()
			}
			var err error
			if reps[i], err = r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if reps[0].String() != reps[1].String() || reps[0].String() != reps[2].String() {
		t.Errorf("reports differ: %v", reps)
	}
	st := outputStats(t, r, "d")
	if got := d.len(); uint64(got) != st.Delivered || st.Dropped.Total() != 0 {
		t.Errorf("written %d: %v", got, st)
	}
	if n := r.Stats().Refused; n < refused.Load() || ok.Load()+refused.Load() != goroutines*per {
		t.Errorf("refused %d of which counted %d", refused.Load(), n)
	}
}

// A second Close waits for the first, at most until the end of its own context.
func TestSecondCloseWaitsForFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := &device{do: func(string) error { <-release; return nil }}
		r := newRouter(t, Route(plain(), Writer(devClose{d}, Direct(), CloseWriter())))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
		wg.Wait()
	})
}

// Close waits until OnError has received the last events, for a limited time if OnError is slow.
func TestCloseWaitsForEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &eventLog{}
		slow := func(e batch.Event) { time.Sleep(callback.Grace / 2); ev.add(e) }
		bad := writerFunc(func([]byte) (int, error) { return 0, errTest })
		r := newRouter(t, OnError(slow), Route(plain(), Writer(bad, Direct(), Name("bad"))))
		r.Logger().Info("m")
		_, _ = r.Close(t.Context())
		if got := ev.ops(); len(got) != 1 {
			t.Errorf("events %q", got)
		}

		hang := make(chan struct{})
		r = newRouter(t, OnError(func(batch.Event) { <-hang }), Route(plain(), Writer(bad, Direct(), Name("bad"))))
		r.Logger().Info("m")
		begun := time.Now()
		_, _ = r.Close(t.Context())
		if d := time.Since(begun); d != callback.Grace {
			t.Errorf("Close took %v", d)
		}
		close(hang)
	})
}

// OnError may log to the router that calls it, and may be slow.
func TestOnErrorLogs(t *testing.T) {
	var r *Router
	n := 0
	bad := writerFunc(func(p []byte) (int, error) { return 0, errTest })
	good := &lines{}
	r = newRouter(t, OnError(func(e batch.Event) {
		if n++; n < 10 {
			r.Logger().Error("output failed", slog.Any("error", e.Err))
		}
	}), Route(plain(), Writer(bad, Direct(), Name("bad")), Writer(good, Direct(), Name("good"))))
	r.Logger().Info("m")
	r.h.core.events.wait(t.Context())
	if got := good.len(); got != 2 {
		t.Errorf("%d records, want 2", got)
	}

	release := make(chan struct{})
	flip := 0
	flapping := writerFunc(func(p []byte) (int, error) {
		if flip++; flip%2 == 1 {
			return 0, errTest
		}
		return len(p), nil
	})
	entered := make(chan struct{}, 1)
	r = newRouter(t, OnError(func(batch.Event) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	}), Route(plain(), Writer(flapping, Direct())))
	r.Logger().Info("m")
	<-entered
	for range 200 {
		r.Logger().Info("m")
	}
	if lost := r.Stats().EventsLost; lost < 200-eventQueue-1 {
		t.Errorf("lost %d events", lost)
	}
	close(release)
}

// When Close of a Router returns, all records of a SlabWriter output are written, with and without
// CloseWriter. The output and the SlabWriter have equal accounts.
func TestSlabWriterAsOutput(t *testing.T) {
	for _, closes := range []bool{false, true} {
		var dst lines
		sw, err := deliver.NewOutput(deliver.ToWriter(&dst), &deliver.OutputOptions{Slab: slab.Options{SlabCount: 4, SlabBytes: 4096}})
		if err != nil {
			t.Fatal(err)
		}
		out := Writer(sw, Name("slab"))
		if closes {
			out = Writer(sw, CloseWriter(), Name("slab"))
		}
		r := newRouter(t, Route(encode.JSON(nil), out))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 500 {
					r.Logger().Info("m", slog.Int("i", i))
				}
			})
		}
		wg.Wait()
		if err := r.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := len(parseLines(t, strings.NewReader(strings.Join(dst.all(), "")))); got != 4000 {
			t.Errorf("closes=%t: %d records after Flush, want 4000", closes, got)
		}
		r.Logger().Info("last")
		rep, err := r.Close(t.Context())
		if err != nil {
			t.Error(err)
		}
		if got := len(parseLines(t, strings.NewReader(strings.Join(dst.all(), "")))); got != 4001 {
			t.Errorf("closes=%t: %d records after Close, want 4001", closes, got)
		}
		if _, ok := any(sw).(accounter); ok && rep.Outputs[0].Delivered != 4001 {
			t.Errorf("%s", rep)
		}
		if _, err := sw.Write([]byte("x\n")); (err != nil) != closes {
			t.Errorf("closes=%t: write after Close: %v", closes, err)
		}
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A hanging destination of one SlabWriter delays each caller by one timeout of its WhenFull policy.
// Another SlabWriter is not affected. Both accounts are exact.
func TestHangingSlabWriterDelaysCallersOnce(t *testing.T) {
	for _, oneRoute := range []bool{false, true} {
		t.Run(fmt.Sprintf("one route %v", oneRoute), func(t *testing.T) { stalledBesideHealthy(t, oneRoute) })
	}
}

func stalledBesideHealthy(t *testing.T, oneRoute bool) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stalled := writerFunc(func(p []byte) (int, error) {
			<-release
			return len(p), nil
		})
		healthy := &lines{}
		var sw [2]*deliver.Output
		for i, dst := range []io.Writer{stalled, healthy} {
			var err error
			if sw[i], err = deliver.NewOutput(deliver.ToWriter(dst), &deliver.OutputOptions{Slab: slab.Options{SlabCount: 2, SlabBytes: 4096}}); err != nil {
				t.Fatal(err)
			}
		}
		outputs := []OutputSpec{Writer(sw[0], CloseWriter(), Name("stalled")), Writer(sw[1], CloseWriter(), Name("healthy"))}
		routes := []Option{Route(encode.JSON(nil), outputs[0]), Route(encode.JSON(nil), outputs[1])}
		if oneRoute {
			routes = []Option{Route(encode.JSON(nil), outputs...)}
		}
		r := newRouter(t, routes...)
		log := slog.New(r)
		begun := time.Now()
		const n = 1000
		for i := range n {
			log.Info("m", "i", i)
		}
		if d := time.Since(begun); d > 375*time.Millisecond { // 1.5 times the default of BlockFor
			t.Errorf("%d calls took %v", n, d)
		}
		if err := sw[1].Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := len(parseLines(t, strings.NewReader(strings.Join(healthy.all(), "")))); got != n {
			t.Errorf("the healthy one has %d records of %d", got, n)
		}
		close(release)
		if _, err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i, w := range sw {
			a := w.Account()
			if err := a.Check(); err != nil || a.Accepted != n || (a.Dropped[batch.Full] > 0) != (i == 0) || a.Pending.Total() != 0 {
				t.Errorf("output %d: %s, %v", i, a, err)
			}
		}
	})
}

// With slab.Block there is no timeout: the caller waits, and its record does not reach the other
// outputs meanwhile. When the destination continues, no record is lost.
func TestSlabBlockDelaysOtherOutputs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stalled := writerFunc(func(p []byte) (int, error) {
			<-release
			return len(p), nil
		})
		full, err := deliver.NewOutput(deliver.ToWriter(stalled), &deliver.OutputOptions{Slab: slab.Options{SlabCount: 2, SlabBytes: 4096, WhenFull: slab.Block()}})
		if err != nil {
			t.Fatal(err)
		}
		healthy := &memOutput{}
		r := newRouter(t, Route(plain(), Writer(full, CloseWriter(), Name("stalled")), Writer(healthy, Name("healthy"))))
		const n = 1000
		called, returned := 0, make(chan struct{})
		go func() {
			defer close(returned)
			for ; called < n; called++ {
				r.Logger().Info("m")
			}
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := healthy.len(); called == n || got != called {
			t.Errorf("after an hour %d calls of %d have returned, and the healthy output has %d records", called, n, got)
		}
		close(release)
		<-returned
		if _, err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if a := full.Account(); a.Delivered != n || healthy.len() != n {
			t.Errorf("stalled: %s; healthy: %d records", a, healthy.len())
		}
	})
}

// If a write never returns, Close returns shortly after its deadline. The report contains the lost
// records.
func TestCloseReportsLossesOfHangingOutput(t *testing.T) {
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second, 0} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			out, err := deliver.NewOutput(deliver.ToWriter(writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil })),
				&deliver.OutputOptions{OnError: func(batch.Event) {}})
			if err != nil {
				t.Fatal(err)
			}
			r := newRouter(t, Route(plain(), Writer(out, CloseWriter(), Name("w"))), quiet())
			for range 100 {
				slog.New(r).Info("one")
			}
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if d > 0 {
				ctx, cancel = context.WithTimeout(ctx, d)
			}
			defer cancel()
			rep, err := r.Close(ctx)
			w := rep.Outputs[0]
			if err == nil || !strings.Contains(err.Error(), "100 records lost") || w.Dropped[batch.Shutdown] != 100 || w.Unknown == 0 || w.Unfinished {
				t.Errorf("%s: %+v: %v", d, w, err)
			}
			close(release)
			time.Sleep(time.Minute)
		})
	}
}
