package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/slab"
)

// An entryPoint is an API that logs to a destination and can be closed.
type entryPoint struct {
	write    func(i int) error
	shutdown func(ctx context.Context) (batch.Report, error)
	account  func() batch.Account
}

// entryPoints are the APIs whose Close is tested. disk reports whether the API can keep records on
// disk on this system.
var entryPoints = []struct {
	name string
	disk bool
	open func(t *testing.T, w *fakeDest, dir string) entryPoint
}{
	{"fluent", true, openFluent},
	{"loki", true, openLoki},
	{"lines", true, openLines},
	{"custom", true, openCustom},
	{"writer", crashSafe, openWriter},
	{"router", true, openRouter},
}

// A fakeDest is the destination of a test. Its state is "down", "hangs", "slow" or "well".
type fakeDest struct {
	state   string
	release chan struct{} // closed at the end of the test
}

var errDestDown = errors.New("the destination is down")

// attempt returns the result of an attempt to deliver. It ignores the deadline of the caller.
func (w *fakeDest) attempt() error {
	switch w.state {
	case "down":
		return errDestDown
	case "hangs":
		<-w.release
		return errDestDown
	case "slow":
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// frequentRetries returns options with short delays between attempts.
func frequentRetries() (*deliver.RetryOptions, *deliver.BreakerOptions) {
	return &deliver.RetryOptions{Min: time.Millisecond, Max: 50 * time.Millisecond},
		&deliver.BreakerOptions{Failures: 1, OpenMin: 100 * time.Millisecond, OpenMax: time.Second}
}

// outputAt opens an Output for dest. dir is the directory of the spool; "" means no spool.
func outputAt(t *testing.T, dest deliver.Destination, dir string) *deliver.Output {
	t.Helper()
	o := &deliver.OutputOptions{SpoolDir: dir, OnError: quiet, Slab: slab.Options{WhenFull: slab.DropNewest()}}
	o.Deliver.Retry, o.Deliver.Breaker = frequentRetries()
	out, err := deliver.NewOutput(dest, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func entryPointOf(out *deliver.Output) entryPoint {
	return entryPoint{
		write:    func(i int) error { return out.WriteRecord(fmt.Appendf(nil, "record %d\n", i), batch.Meta{}) },
		shutdown: out.Shutdown, account: out.Account,
	}
}

// openCustom logs to a custom destination.
func openCustom(t *testing.T, w *fakeDest, dir string) entryPoint {
	return entryPointOf(outputAt(t, customDest(w), dir))
}

func customDest(w *fakeDest) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		if err := w.attempt(); err != nil {
			return batch.FailedOutcome(err)
		}
		return batch.Outcome{}
	})
}

// openLines logs lines over TCP.
func openLines(t *testing.T, w *fakeDest, dir string) entryPoint {
	s, err := netsink.New(netsink.Config{Address: "tcp://example:1",
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if err := w.attempt(); err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return entryPointOf(outputAt(t, s, dir))
}

// crashSafe reports whether this system supports crash-safe slabs.
const crashSafe = runtime.GOOS == "linux" || runtime.GOOS == "darwin"

// openWriter logs to an Output for an io.Writer, such as a file, with crash-safe slabs in dir.
func openWriter(t *testing.T, w *fakeDest, dir string) entryPoint {
	s, err := deliver.NewOutput(deliver.ToWriter(funcWriter(w.attempt)), &deliver.OutputOptions{OnError: quiet, CrashDir: dir,
		Slab:    slab.Options{WhenFull: slab.DropNewest()},
		Deliver: deliver.Options{Retry: &deliver.RetryOptions{Min: time.Millisecond, Max: 10 * time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	return entryPoint{
		write:    func(i int) error { return s.WriteRecord(fmt.Appendf(nil, "record %d\n", i), batch.Meta{}) },
		shutdown: s.Shutdown, account: s.Account,
	}
}

type funcWriter func() error

func (f funcWriter) Write(p []byte) (int, error) {
	if err := f(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// openRouter logs to a Router with an Output.
func openRouter(t *testing.T, w *fakeDest, dir string) entryPoint {
	out := outputAt(t, customDest(w), dir)
	r, err := forebay.NewRouter(forebay.OnError(quiet), forebay.Route(encode.JSON(nil), forebay.Writer(out, forebay.Level(slog.LevelDebug), forebay.CloseWriter())))
	if err != nil {
		t.Fatal(err)
	}
	return entryPoint{
		write: func(i int) error {
			return r.Handle(context.Background(), slog.NewRecord(time.Now(), slog.LevelInfo, fmt.Sprint("record ", i), 0))
		},
		shutdown: func(ctx context.Context) (batch.Report, error) {
			rep, err := r.Close(ctx)
			if len(rep.Outputs) == 0 {
				return batch.Report{}, err
			}
			if rep.Kept() != rep.Outputs[0].Kept() {
				t.Errorf("the report has %d kept records, its output has %d", rep.Kept(), rep.Outputs[0].Kept())
			}
			return rep.Outputs[0].Report, err
		},
		account: out.Account,
	}
}

func openFluent(t *testing.T, w *fakeDest, dir string) entryPoint {
	c := fluent.Config{NoAck: true, ReconnectMin: time.Millisecond, ReconnectMax: 10 * time.Millisecond,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if err := w.attempt(); err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}}
	l, err := fluent.NewLogger(c, forebay.OnError(quiet), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.SpoolDir, o.Slab.FlushInterval = dir, time.Millisecond
		o.Deliver.Retry, o.Deliver.Breaker = frequentRetries()
	}))
	if err != nil {
		t.Fatal(err)
	}
	return entryPoint{
		write:    func(i int) error { return l.Post("contract", map[string]any{"i": i}) },
		shutdown: l.Close, account: l.Account,
	}
}

func openLoki(t *testing.T, w *fakeDest, dir string) entryPoint {
	c := loki.Config{
		URL:      "http://loki",
		Labels:   map[string]string{"app": "contract"},
		BatchAge: 10 * time.Millisecond,
		HTTP: httpclient.Options{Client: &http.Client{Transport: responder(func() (*http.Response, error) {
			if err := w.attempt(); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		})}},
	}
	d, err := loki.New(c)
	if err != nil {
		t.Fatal(err)
	}
	out, err := forebay.Open(forebay.To(d, forebay.OnError(quiet), forebay.WhenFull("drop-newest"), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.SpoolDir = dir
		o.Deliver.Retry, o.Deliver.Breaker = frequentRetries()
	})))
	if err != nil {
		t.Fatal(err)
	}
	scope := d.Encoder().Scope()
	return entryPoint{
		write: func(i int) error {
			rec, m, err := scope.Append(nil, &encode.Record{Time: time.Now(), Message: fmt.Sprint("record ", i)})
			return errors.Join(err, out.WriteRecord(rec, m))
		},
		shutdown: out.Shutdown, account: out.Account,
	}
}

type responder func() (*http.Response, error)

func (f responder) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// contract runs the given test for each entry point, with a destination in the given state. If disk
// is set, the entry point has a directory for the records that it cannot deliver.
func contract(t *testing.T, state string, disk bool, test func(t *testing.T, e entryPoint)) {
	for _, ep := range entryPoints {
		if disk && !ep.disk {
			continue
		}
		t.Run(ep.name, func(t *testing.T) {
			dir := ""
			if disk {
				dir = t.TempDir()
			}
			bubble.Test(t, func(t *testing.T) {
				w := &fakeDest{state: state, release: make(chan struct{})}
				e := ep.open(t, w, dir)
				test(t, e)
				close(w.release)
				synctest.Wait()
			})
		})
	}
}

// write1000 writes 1000 records and waits until attempts to deliver them have failed.
func (e entryPoint) write1000(t *testing.T) {
	t.Helper()
	for i := range 1000 {
		if err := e.write(i); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
}

// closeWithin calls shutdown. It fails if that takes longer than limit, or if the account does not
// balance.
func (e entryPoint) closeWithin(t *testing.T, ctx context.Context, limit time.Duration) (batch.Report, error) {
	t.Helper()
	start := time.Now()
	rep, err := e.shutdown(ctx)
	if took := time.Since(start); took > limit+100*time.Millisecond {
		t.Errorf("Close took %s, the limit is %s", took, limit)
	}
	if bad := rep.Check(); bad != nil {
		t.Error(bad)
	}
	if rep.Pending.Inflight != 0 || rep.Unknown > rep.Dropped[batch.Shutdown] {
		t.Errorf("%d unknown: %s", rep.Unknown, rep.Account)
	}
	return rep, err
}

// wantKept fails unless all 1000 records are kept on disk and Close has returned nil.
func wantKept(t *testing.T, rep batch.Report, err error) {
	t.Helper()
	if err != nil || rep.Kept() != 1000 || rep.Dropped.Total() != 0 {
		t.Errorf("want 1000 records kept and no error: %v: %s", err, rep.Account)
	}
}

// wantLost fails unless all 1000 records are lost, and err is a single line that contains this
// number and wraps the parameter why.
func wantLost(t *testing.T, rep batch.Report, err error, why error) {
	t.Helper()
	if err == nil || !errors.Is(err, why) || strings.Count(err.Error(), "1000 records") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("want an error that names 1000 lost records: %v", err)
	}
	if rep.Dropped[batch.Shutdown] != 1000 || rep.Kept() != 0 {
		t.Errorf("want 1000 records dropped by Close: %s", rep.Account)
	}
}

// If all records are stored on disk, Close returns nil within its time limit.
func TestCloseKeeps(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, true, func(t *testing.T, e entryPoint) {
				e.write1000(t)
				rep, err := e.closeWithin(t, context.Background(), closetime.Default)
				wantKept(t, rep, err)
			})
		})
	}
}

// Without a directory, the error of Close contains the number of lost records. A second Close
// returns the same result at once.
func TestCloseLoses(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, false, func(t *testing.T, e entryPoint) {
				e.write1000(t)
				rep, err := e.closeWithin(t, context.Background(), closetime.Default)
				wantLost(t, rep, err, context.DeadlineExceeded)
				if again, err2 := e.closeWithin(t, context.Background(), 0); again != rep || err2 != err {
					t.Errorf("the second Close returned another result: %v: %s", err2, again.Account)
				}
			})
		})
	}
}

// Close returns within the deadline of the caller, and the error wraps the error of the context.
func TestCloseDeadline(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, false, func(t *testing.T, e entryPoint) {
				e.write1000(t)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				rep, err := e.closeWithin(t, ctx, time.Second)
				wantLost(t, rep, err, context.DeadlineExceeded)
			})
		})
	}
}

// If its context is canceled, Close takes only the time that is reserved for writing to disk.
func TestCloseCancelled(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			contract(t, state, true, func(t *testing.T, e entryPoint) {
				e.write1000(t)
				rep, err := e.closeWithin(t, canceled, closetime.Disk)
				wantKept(t, rep, err)
			})
			contract(t, state, false, func(t *testing.T, e entryPoint) {
				e.write1000(t)
				rep, err := e.closeWithin(t, canceled, closetime.Disk)
				wantLost(t, rep, err, context.Canceled)
			})
		})
	}
}

// Records that were dropped before Close because memory was full are not part of the error of
// Close. Close may be called concurrently with writes and with another Close.
func TestCloseBesideWrites(t *testing.T) {
	contract(t, "slow", false, func(t *testing.T, e entryPoint) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		accepted := uint64(0)
		for range 4 {
			wg.Go(func() {
				for i := range 1000 {
					if i%100 == 0 {
						time.Sleep(time.Millisecond)
					}
					if err := e.write(i); err == nil {
						mu.Lock()
						accepted++
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(3 * time.Millisecond)
		var reps [3]batch.Report
		for i := range reps {
			wg.Go(func() {
				rep, err := e.closeWithin(t, context.Background(), closetime.Default)
				if err != nil {
					t.Error(err)
				}
				reps[i] = rep
			})
		}
		wg.Wait()
		if reps[0] != reps[1] || reps[1] != reps[2] {
			t.Errorf("%v", reps)
		}
		if got := reps[0].Delivered; got == 0 || got != accepted || reps[0].Kept() != 0 {
			t.Errorf("%d records were accepted: %s", accepted, reps[0].Account)
		}
	})
}
