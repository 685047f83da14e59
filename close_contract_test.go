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

// An ended is one way to log to a destination and to close.
type ended struct {
	write    func(i int) error
	shutdown func(ctx context.Context) (batch.Report, error)
	account  func() batch.Account
}

// endings are the entry points with the contract of Close. If disk is false, an entry point cannot
// keep records on disk here.
var endings = []struct {
	name string
	disk bool
	open func(t *testing.T, w *world, dir string) ended
}{
	{"fluent", true, endFluent},
	{"loki", true, endLoki},
	{"lines", true, endLines},
	{"own", true, endOwn},
	{"writer", crashSafe, endWriter},
	{"router", true, endRouter},
}

// A world is the destination of a test: it is down, hangs or works.
type world struct {
	state   string
	release chan struct{} // closed at the end of the test
}

var errWorld = errors.New("the destination is down")

// visit is the result of an attempt to deliver. It ignores its context.
func (w *world) visit() error {
	switch w.state {
	case "down":
		return errWorld
	case "hangs":
		<-w.release
		return errWorld
	}
	return nil
}

// tight makes attempts frequent.
func tight() (*deliver.RetryOptions, *deliver.BreakerOptions) {
	return &deliver.RetryOptions{Min: time.Millisecond, Max: 50 * time.Millisecond},
		&deliver.BreakerOptions{Failures: 1, OpenMin: 100 * time.Millisecond, OpenMax: time.Second}
}

// outputAt opens an Output.
func outputAt(t *testing.T, dest deliver.Destination, dir string) *deliver.Output {
	t.Helper()
	o := &deliver.OutputOptions{SpoolDir: dir, OnError: quiet, Slab: slab.Options{WhenFull: slab.DropNewest()}}
	o.Deliver.Retry, o.Deliver.Breaker = tight()
	out, err := deliver.NewOutput(dest, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func endOutput(out *deliver.Output) ended {
	return ended{
		write:    func(i int) error { return out.WriteRecord(fmt.Appendf(nil, "record %d\n", i), batch.Meta{}) },
		shutdown: out.Shutdown, account: out.Account,
	}
}

// endOwn logs to a custom destination.
func endOwn(t *testing.T, w *world, dir string) ended {
	return endOutput(outputAt(t, own(w), dir))
}

func own(w *world) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		if err := w.visit(); err != nil {
			return batch.FailedOutcome(err)
		}
		return batch.Outcome{}
	})
}

// endLines logs lines over TCP.
func endLines(t *testing.T, w *world, dir string) ended {
	s, err := netsink.New(netsink.Config{Address: "tcp://example:1",
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if err := w.visit(); err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return endOutput(outputAt(t, s, dir))
}

// crashSafe reports whether this system supports crash-safe slabs.
const crashSafe = runtime.GOOS == "linux" || runtime.GOOS == "darwin"

// endWriter logs to an Output in front of an io.Writer, such as a file, with crash-safe slabs in
// dir.
func endWriter(t *testing.T, w *world, dir string) ended {
	s, err := deliver.NewOutput(deliver.ToWriter(writing(w.visit)), &deliver.OutputOptions{OnError: quiet, CrashDir: dir,
		Slab:    slab.Options{WhenFull: slab.DropNewest()},
		Deliver: deliver.Options{Retry: &deliver.RetryOptions{Min: time.Millisecond, Max: 10 * time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	return ended{
		write:    func(i int) error { return s.WriteRecord(fmt.Appendf(nil, "record %d\n", i), batch.Meta{}) },
		shutdown: s.Shutdown, account: s.Account,
	}
}

type writing func() error

func (f writing) Write(p []byte) (int, error) {
	if err := f(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// endRouter logs to a Router with an Output.
func endRouter(t *testing.T, w *world, dir string) ended {
	out := outputAt(t, own(w), dir)
	r, err := forebay.NewRouter(forebay.OnError(quiet), forebay.Route(encode.JSON(nil), forebay.Writer(out, forebay.Level(slog.LevelDebug), forebay.CloseWriter())))
	if err != nil {
		t.Fatal(err)
	}
	return ended{
		write: func(i int) error {
			return r.Handle(context.Background(), slog.NewRecord(time.Now(), slog.LevelInfo, fmt.Sprint("record ", i), 0))
		},
		shutdown: func(ctx context.Context) (batch.Report, error) {
			rep, err := r.Close(ctx)
			if len(rep.Outputs) == 0 {
				return batch.Report{}, err
			}
			if rep.Kept() != rep.Outputs[0].Kept() {
				t.Errorf("the report keeps %d, its output %d", rep.Kept(), rep.Outputs[0].Kept())
			}
			return rep.Outputs[0].Report, err
		},
		account: out.Account,
	}
}

func endFluent(t *testing.T, w *world, dir string) ended {
	c := fluent.Config{NoAck: true, ReconnectMin: time.Millisecond, ReconnectMax: 10 * time.Millisecond,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if err := w.visit(); err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}}
	l, err := fluent.NewLogger(c, forebay.OnError(quiet), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.SpoolDir, o.Slab.FlushInterval = dir, time.Millisecond
		o.Deliver.Retry, o.Deliver.Breaker = tight()
	}))
	if err != nil {
		t.Fatal(err)
	}
	return ended{
		write:    func(i int) error { return l.Post("contract", map[string]any{"i": i}) },
		shutdown: l.Close, account: l.Account,
	}
}

func endLoki(t *testing.T, w *world, dir string) ended {
	c := loki.Config{
		URL:      "http://loki",
		Labels:   map[string]string{"app": "contract"},
		BatchAge: 10 * time.Millisecond,
		HTTP: httpclient.Options{Client: &http.Client{Transport: answering(func() (*http.Response, error) {
			if err := w.visit(); err != nil {
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
		o.Deliver.Retry, o.Deliver.Breaker = tight()
	})))
	if err != nil {
		t.Fatal(err)
	}
	scope := d.Encoder().Scope()
	return ended{
		write: func(i int) error {
			rec, m, err := scope.Append(nil, &encode.Record{Time: time.Now(), Message: fmt.Sprint("record ", i)})
			return errors.Join(err, out.WriteRecord(rec, m))
		},
		shutdown: out.Shutdown, account: out.Account,
	}
}

type answering func() (*http.Response, error)

func (f answering) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// contract runs test for each entry point, with a destination in the given state.
func contract(t *testing.T, state string, disk bool, test func(t *testing.T, e ended)) {
	for _, door := range endings {
		if disk && !door.disk {
			continue
		}
		t.Run(door.name, func(t *testing.T) {
			dir := ""
			if disk {
				dir = t.TempDir()
			}
			bubble.Test(t, func(t *testing.T) {
				w := &world{state: state, release: make(chan struct{})}
				e := door.open(t, w, dir)
				test(t, e)
				close(w.release)
				synctest.Wait()
			})
		})
	}
}

// thousand writes a thousand records and lets the destination fail for a while.
func (e ended) thousand(t *testing.T) {
	t.Helper()
	for i := range 1000 {
		if err := e.write(i); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
}

// within calls shutdown and fails if it takes longer than limit.
func (e ended) within(t *testing.T, ctx context.Context, limit time.Duration) (batch.Report, error) {
	t.Helper()
	start := time.Now()
	rep, err := e.shutdown(ctx)
	if took := time.Since(start); took > limit+100*time.Millisecond {
		t.Errorf("it took %s, longer than %s", took, limit)
	}
	if bad := rep.Check(); bad != nil {
		t.Error(bad)
	}
	if rep.Pending.Inflight != 0 || rep.Unknown > rep.Dropped[batch.Shutdown] {
		t.Errorf("%d unknown: %s", rep.Unknown, rep.Account)
	}
	return rep, err
}

// wantKept fails unless all of a thousand records are kept and Close returned nil.
func wantKept(t *testing.T, rep batch.Report, err error) {
	t.Helper()
	if err != nil || rep.Kept() != 1000 || rep.Dropped.Total() != 0 {
		t.Errorf("1000 records are to be kept: %v: %s", err, rep.Account)
	}
}

// wantLost fails unless err names a thousand lost records, once, and the time that was too short.
func wantLost(t *testing.T, rep batch.Report, err error, why error) {
	t.Helper()
	if err == nil || !errors.Is(err, why) || strings.Count(err.Error(), "1000 records") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("1000 records are lost, the error is %v", err)
	}
	if rep.Dropped[batch.Shutdown] != 1000 || rep.Kept() != 0 {
		t.Errorf("1000 records are lost: %s", rep.Account)
	}
}

// If all records are in the spool, Close returns nil within its deadline.
func TestCloseKeeps(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, true, func(t *testing.T, e ended) {
				e.thousand(t)
				rep, err := e.within(t, context.Background(), closetime.Default)
				wantKept(t, rep, err)
			})
		})
	}
}

// Without a disk, the error of Close contains the number of lost records.
func TestCloseLoses(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, false, func(t *testing.T, e ended) {
				e.thousand(t)
				rep, err := e.within(t, context.Background(), closetime.Default)
				wantLost(t, rep, err, context.DeadlineExceeded)
				if again, err2 := e.within(t, context.Background(), 0); again != rep || err2 != err {
					t.Errorf("again: %v: %s", err2, again.Account)
				}
			})
		})
	}
}

// Close keeps the deadline of the caller, and the error wraps its cause.
func TestCloseDeadline(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			contract(t, state, false, func(t *testing.T, e ended) {
				e.thousand(t)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				rep, err := e.within(t, ctx, time.Second)
				wantLost(t, rep, err, context.DeadlineExceeded)
			})
		})
	}
}

// A canceled Close reserves a moment for the disk only.
func TestCloseCancelled(t *testing.T) {
	for _, state := range []string{"down", "hangs"} {
		t.Run(state, func(t *testing.T) {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			contract(t, state, true, func(t *testing.T, e ended) {
				e.thousand(t)
				rep, err := e.within(t, over, closetime.Disk)
				wantKept(t, rep, err)
			})
			contract(t, state, false, func(t *testing.T, e ended) {
				e.thousand(t)
				rep, err := e.within(t, over, closetime.Disk)
				wantLost(t, rep, err, context.Canceled)
			})
		})
	}
}

// Records that a policy dropped before Close are not part of its error. Close is safe concurrently
// with writes and with another Close.
func TestCloseBesideWrites(t *testing.T) {
	contract(t, "well", false, func(t *testing.T, e ended) {
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
				rep, err := e.within(t, context.Background(), closetime.Default)
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
