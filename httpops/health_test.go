package httpops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
)

var quiet = forebay.OnError(func(batch.Event) {})

func open(t *testing.T, opts ...forebay.Option) (*forebay.Logger, *Ops) {
	t.Helper()
	log, err := forebay.New(append(opts, quiet)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log, must(t, log.Router())
}

// health calls o.Health in a synctest bubble, and fails the test unless status and body are
// consistent.
func health(t *testing.T, o *Ops) (status int, d document) {
	t.Helper()
	synctest.Wait()
	rec := ask(t, o.Health, http.MethodGet)
	dec := json.NewDecoder(rec.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if (rec.Code == 200) != (d.Status == stateOK) || rec.Code != 200 && rec.Code != 503 {
		t.Errorf("%d with status %q", rec.Code, d.Status)
	}
	if got := rec.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	return rec.Code, d
}

// A target is a destination that accepts records, refuses them with err, or hangs.
type target struct {
	err   atomic.Pointer[error]
	hangs atomic.Bool
	free  chan struct{}
}

func (g *target) destination() deliver.Destination {
	g.free = make(chan struct{})
	return deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, b *batch.Batch) batch.Outcome {
		if g.hangs.Load() {
			select {
			case <-g.free:
			case <-ctx.Done():
				return batch.FailedOutcome(context.Cause(ctx))
			}
		}
		if err := g.err.Load(); err != nil {
			return batch.FailedOutcome(*err)
		}
		return batch.Outcome{}
	})
}

func (g *target) fails(err error) {
	if err == nil {
		g.err.Store(nil)
		return
	}
	g.err.Store(&err)
}

// After a failure, a destination is first failing and then down. In both states, "since" is the
// time of the first failure. The destination is ok as soon as it accepts a record.
func TestFailingDestinationIsDown(t *testing.T) {
	for _, spool := range []bool{false, true} {
		dir := t.TempDir()
		bubble.Test(t, func(t *testing.T) {
			var g target
			opts := []forebay.OutputOption{forebay.Name("remote")}
			if spool {
				opts = append(opts, forebay.Spool(dir))
			}
			log, o := open(t, forebay.To(g.destination(), opts...), forebay.Writer(io.Discard, forebay.Name("other")))
			log.Info("well")
			time.Sleep(time.Second)
			status, d := health(t, o)
			if out := d.Outputs[0]; status != 200 || out.State != stateOK || !out.Since.IsZero() || out.Reason != "" || out.LastError != "" || out.Circuit != "closed" ||
				out.Delivered != 1 || out.Memory.RoomBytes == 0 || out.Memory.Room == 0 || (out.Spool != nil) != spool {
				t.Fatalf("%d, %+v", status, d)
			}

			g.fails(errors.New("connection refused"))
			log.Info("first")
			time.Sleep(100 * time.Millisecond) // FlushInterval
			began := time.Now().UTC()
			status, d = health(t, o)
			if out := d.Outputs[0]; status != 200 || out.State != stateFailing || !out.Since.Equal(began) || out.LastError != "connection refused" ||
				!strings.Contains(out.Reason, "retried") {
				t.Fatalf("%d, %+v", status, d)
			}

			for range 100 {
				log.Info("down")
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond) // the last record is being sent
			status, d = health(t, o)
			out := d.Outputs[0]
			if status != 503 || d.Status != stateDown || out.State != stateDown || !out.Since.Equal(began) || out.LastError != "connection refused" ||
				!strings.Contains(out.Reason, "circuit is "+out.Circuit) || d.Outputs[1].State != stateOK {
				t.Fatalf("%d, %+v", status, d)
			}
			if n := out.Pending.Slab + out.Pending.Inflight; n+out.Pending.Spill != 101 || spool && (out.Pending.Spill < 90 || out.Spool.Bytes == 0 || out.Spool.MaxBytes != 1<<30 || out.Spool.Room == 0) || !spool && n != 101 {
				t.Errorf("%+v, %+v", out, out.Spool)
			}

			g.hangs.Store(true) // makes the probe observable
			for out.Circuit != deliver.HalfOpen.String() {
				time.Sleep(100 * time.Millisecond)
				status, d = health(t, o)
				if out = d.Outputs[0]; status != 503 || out.State != stateDown || !out.Since.Equal(began) {
					t.Fatalf("%d, %+v", status, d)
				}
			}

			g.fails(nil)
			g.hangs.Store(false)
			close(g.free)
			time.Sleep(2 * time.Minute)
			status, d = health(t, o)
			if out := d.Outputs[0]; status != 200 || out.State != stateOK || !out.Since.IsZero() || out.LastError != "" || out.Circuit != "closed" || out.Pending.Slab+out.Pending.Spill+out.Pending.Inflight != 0 {
				t.Errorf("%d, %+v", status, d)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
			if status, d = health(t, o); status != 503 || d.Status != stateClosed || d.Outputs[0].State != stateOK {
				t.Errorf("%d, %+v", status, d)
			}
		})
	}
}

// A hanging destination is down once a record has waited for 30 s since it was logged. Health does
// not wait for the destination.
func TestHangingDestinationIsDown(t *testing.T) {
	pipe := func(g *target) io.Writer {
		g.free = make(chan struct{})
		return writerFunc(func(p []byte) (int, error) {
			if g.hangs.Load() {
				<-g.free
			}
			return len(p), nil
		})
	}
	for name, output := range map[string]func(g *target, dir string) forebay.OutputSpec{
		"session": func(g *target, _ string) forebay.OutputSpec { return forebay.To(g.destination()) },
		"session with a spool": func(g *target, dir string) forebay.OutputSpec {
			return forebay.To(g.destination(), forebay.Spool(dir), forebay.WhenFull("spill"), forebay.Buffer(2*layout.MinSlabBytes))
		},
		"file":              func(g *target, _ string) forebay.OutputSpec { return forebay.Writer(pipe(g)) },
		"file with a spool": func(g *target, dir string) forebay.OutputSpec { return forebay.Writer(pipe(g), forebay.Spool(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bubble.Test(t, func(t *testing.T) {
				var g target
				log, o := open(t, output(&g, dir))
				log.Info("well")
				time.Sleep(time.Minute)
				g.hangs.Store(true)
				began := time.Now()
				for time.Since(began) < 29*time.Second {
					// The time in the record does not matter.
					_ = log.Router().Handle(t.Context(), slog.NewRecord(began.Add(-time.Hour), slog.LevelInfo, "in a hang", 0))
					time.Sleep(500 * time.Millisecond)
				}
				if status, d := health(t, o); status != 200 || d.Outputs[0].State != stateOK {
					t.Errorf("too early: %d, %+v", status, d)
				}
				time.Sleep(2 * time.Second)
				asked := time.Now()
				status, d := health(t, o)
				if out := d.Outputs[0]; status != 503 || out.State != stateDown || out.Since.Sub(began) > time.Second || out.Since.Before(began) ||
					!strings.Contains(out.Reason, "has waited for 31s") && !strings.Contains(out.Reason, "has waited for 30s") {
					t.Errorf("%d, %+v, %v after %v", status, d, out.Since, began)
				}
				if rec := ask(t, o.Metrics, http.MethodGet); !strings.Contains(rec.Body.String(), "\nforebay_output_up{output=\""+d.Outputs[0].Name+"\"} 0\n") {
					t.Error("it is up")
				}
				if !time.Now().Equal(asked) {
					t.Errorf("the answers took %v", time.Since(asked))
				}
				g.hangs.Store(false)
				close(g.free)
				time.Sleep(time.Minute)
				if status, d := health(t, o); status != 200 || d.Outputs[0].State != stateOK {
					t.Errorf("%d, %+v", status, d)
				}
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The room of an output with a hanging destination is its free memory. room_ms is the time until
// that memory is full.
func TestRoomOfHangingDestination(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		var g target
		var line bytes.Buffer
		enc := forebay.Encoder(encode.JSON(&encode.Options{TimeKey: "-"}))
		const size = 1 << 20
		log, o := open(t, forebay.To(g.destination(), enc, forebay.Buffer(size), forebay.Spool(dir)), forebay.Writer(&line, forebay.Direct(), enc))
		g.hangs.Store(true)
		const records = 5000
		for range records {
			log.Info("a record each millisecond")
			time.Sleep(time.Millisecond)
		}
		each := line.Len()/records + 32
		_, d := health(t, o)
		out := d.Outputs[0]
		near := func(what string, got, want int64) {
			if got < want*9/10 || got > want*11/10 {
				t.Errorf("%s is %d, want about %d", what, got, want)
			}
		}
		near("room in bytes", int64(out.Memory.RoomBytes), int64(size-records*each))
		near("room in ms", out.Memory.Room, int64(out.Memory.RoomBytes/each))
		near("room of the spool in ms", out.Spool.Room, (1<<30)/int64(each))
		if other := d.Outputs[1]; other.Memory != nil || other.Spool != nil || other.Circuit != "" {
			t.Errorf("a direct output has %+v", other)
		}
		g.hangs.Store(false)
		close(g.free)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A pipe without a reader is down permanently.
func TestPipeWithoutReaderIsDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, o := open(t, forebay.Writer(writerFunc(func([]byte) (int, error) { return 0, os.ErrClosed })))
		log.Info("lost")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		time.Sleep(time.Second)
		status, d := health(t, o)
		if out := d.Outputs[0]; status != 503 || out.State != stateDown || !out.Since.Equal(began.UTC()) || !strings.Contains(out.Reason, "has ended") ||
			out.LastError != os.ErrClosed.Error() || out.Dropped["failed"] != 1 {
			t.Errorf("%d, %+v", status, d)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A direct output is down if its last write failed or a write hangs.
func TestHealthOfDirectOutputs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		hang := make(chan struct{})
		log, o := open(t,
			forebay.Writer(writerFunc(func(p []byte) (int, error) {
				if broken.Load() {
					return 0, errors.New("no space left")
				}
				return len(p), nil
			}), forebay.Direct(), forebay.Name("full")),
			forebay.Writer(writerFunc(func(p []byte) (int, error) { <-hang; return len(p), nil }), forebay.Direct(), forebay.Level(slog.LevelWarn), forebay.Name("tty")))
		look := func(full, tty string, status int) []outputPart {
			t.Helper()
			got, d := health(t, o)
			if got != status || d.Outputs[0].State != full || d.Outputs[1].State != tty {
				t.Fatalf("%d, %+v, want %d, %s, %s", got, d, status, full, tty)
			}
			return d.Outputs
		}
		log.Info("well")
		look(stateOK, stateOK, 200)
		broken.Store(true)
		began := time.Now()
		for range 3 {
			log.Info("lost")
			time.Sleep(time.Second)
		}
		outs := look(stateDown, stateOK, 503)
		if !outs[0].Since.Equal(began.UTC()) || outs[0].LastError != "no space left" || outs[0].Reason != "writes to it fail" {
			t.Errorf("%+v", outs)
		}
		broken.Store(false)
		log.Info("well again")
		look(stateOK, stateOK, 200)

		began = time.Now()
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() { log.Warn("hangs") })
		}
		time.Sleep(time.Second)
		outs = look(stateOK, stateDown, 503)
		if since := outs[1].Since.Sub(began); since <= 0 || since > 250*time.Millisecond || outs[1].Reason != "a write to it has not returned" {
			t.Errorf("%v, %+v", since, outs[1])
		}
		close(hang)
		callers.Wait()
		look(stateOK, stateOK, 200)
		if err := log.Close(); err != nil && !strings.Contains(err.Error(), "busy") {
			t.Error(err)
		}
	})
}

// Requests concurrent with logging and Close are safe, and the pages are complete.
func TestConcurrentRequestsAndLogging(t *testing.T) {
	dir := t.TempDir()
	var g target
	log, o := open(t, forebay.To(g.destination(), forebay.Spool(dir)), forebay.Writer(io.Discard), forebay.Writer(io.Discard, forebay.Direct()))
	var loggers, askers sync.WaitGroup
	for range 4 {
		loggers.Go(func() {
			for i := range 2000 {
				log.Info("beside", slog.Int("i", i))
				if i == 1000 {
					g.fails(errors.New("down"))
				}
			}
		})
	}
	done := make(chan struct{})
	for range 2 {
		askers.Go(func() {
			for {
				if _, err := parse(ask(t, o.Metrics, http.MethodGet).Body.String()); err != nil {
					t.Error(err)
				}
				var d document
				if err := json.Unmarshal([]byte(o.String()), &d); err != nil || len(d.Outputs) != 3 {
					t.Errorf("%v, %+v", err, d)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	loggers.Wait()
	g.fails(nil)
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	close(done)
	askers.Wait()
	page, err := parse(ask(t, o.Metrics, http.MethodGet).Body.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"forebay.To", "writer"} {
		if got := page[`forebay_records_accepted_total{output="`+name+`"}`]; got != 8000 {
			t.Errorf("%s: %v accepted", name, got)
		}
	}
}

// The document equals a golden file.
func TestHealthDocument(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := must(t, everything(time.Now()))
		var b bytes.Buffer
		if err := json.Indent(&b, ask(t, o.Health, http.MethodGet).Body.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		// Go 1.27 writes U+FFFD itself for invalid bytes, and earlier releases its escape.
		golden(t, "health.golden", bytes.ReplaceAll(b.Bytes(), []byte("\ufffd"), []byte(`\ufffd`)))
		if got := ask(t, o.Health, http.MethodGet).Body.String(); got != o.String()+"\n" {
			t.Errorf("%s is not %s", o, got)
		}
	})
}
