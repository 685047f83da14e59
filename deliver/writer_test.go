package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A page is an io.Writer that stores its data in memory and fails as the function act decides.
type page struct {
	mu    sync.Mutex
	text  bytes.Buffer
	calls int
	// act returns the number of bytes to accept in a write (-1: all), and the error.
	act func(call int, p []byte) (n int, err error)
}

func (m *page) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := -1, error(nil)
	m.calls++
	if m.act != nil {
		n, err = m.act(m.calls-1, p)
	}
	if n < 0 || n > len(p) {
		n = len(p)
	}
	m.text.Write(p[:n])
	return n, err
}

func (m *page) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// A vecPage is a page that accepts several slabs in one call.
type vecPage struct{ page }

func (m *vecPage) Writev(bufs [][]byte) (total int64, err error) {
	for _, p := range bufs {
		n, err := m.Write(p)
		total += int64(n)
		if err != nil || n < len(p) {
			return total, err
		}
	}
	return total, nil
}

// lineOf returns the line of record i, which is about n bytes long.
func lineOf(i, n int) []byte {
	s := strconv.Itoa(i)
	return append([]byte(s+strings.Repeat(".", max(0, n-len(s)-1))), '\n')
}

// wantLines fails the test unless text consists of the complete lines of the records numbered from
// first up to, but not including, limit, in order, each once.
func wantLines(t testing.TB, text string, first, limit int) {
	t.Helper()
	for l := range strings.Lines(text) {
		n, err := strconv.Atoi(strings.TrimRight(l, ".\n"))
		if err != nil || n != first || !strings.HasSuffix(l, "\n") {
			t.Fatalf("line %.60q, want record %d", l, first)
		}
		first++
	}
	if first != limit {
		t.Fatalf("the records end before %d, want %d", first, limit)
	}
}

// shortDelays returns options with short delays.
func shortDelays(so slab.Options) *OutputOptions {
	return &OutputOptions{OnError: quietEvents, Slab: so, Deliver: Options{
		Retry:   &RetryOptions{Min: time.Millisecond, Max: 10 * time.Millisecond},
		Breaker: &BreakerOptions{OpenMin: 10 * time.Millisecond, OpenMax: 20 * time.Millisecond},
	}}
}

func quietEvents(batch.Event) {}

func mustOutput(t testing.TB, d Destination, o *OutputOptions) *Output {
	t.Helper()
	out, err := NewOutput(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustLines(t testing.TB, w io.Writer, from, to, size int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := w.Write(lineOf(i, size)); err != nil {
			t.Fatal(err)
		}
	}
}

// mustEnd closes the Output and checks the accepted, delivered and dropped records of its account.
func mustEnd(t testing.TB, out *Output, accepted, delivered uint64, drops batch.Drops) {
	t.Helper()
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	a := out.Account()
	if a.Check() != nil || a.Accepted != accepted || a.Delivered != delivered || a.Dropped != drops || a.Pending.Total() != 0 {
		t.Errorf("account %s: %v; want accepted=%d delivered=%d dropped={%v}", a, a.Check(), accepted, delivered, drops)
	}
}

func dropsOf(r batch.Reason, n uint64) (d batch.Drops) {
	d[r] = n
	return d
}

// If a writer misbehaves but does not fail permanently, each line arrives complete, once and in
// order, and the account is correct. This also holds with a spool, where the session has a separate
// goroutine.
func TestWriterMisbehaves(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	several := false
	for name, act := range map[string]func(call int, p []byte) (int, error){
		"short writes": func(_ int, p []byte) (int, error) { return rng.IntN(len(p) + 1), nil },
		"partial, with an error": func(call int, p []byte) (int, error) {
			if call%3 == 0 {
				return rng.IntN(len(p) + 1), testkit.ErrDisk
			}
			return -1, nil
		},
		"three failures": func(call int, p []byte) (int, error) {
			if call < 3 {
				return 0, testkit.ErrDisk
			}
			return -1, nil
		},
		"no progress": func(call int, p []byte) (int, error) {
			if call < 20 {
				return 0, nil
			}
			return -1, nil
		},
		"panics": func(call int, p []byte) (int, error) {
			if call < 2 {
				panic("on purpose")
			}
			return -1, nil
		},
		"panics for long": func(call int, p []byte) (int, error) { // long enough for a search, which must not write reference records
			if 5 < call && call < 40 && !several { // after a panic in Writev the number of written bytes is unknown
				panic("on purpose")
			}
			return -1, nil
		},
		"Goexit": func(call int, p []byte) (int, error) {
			if call < 2 {
				runtime.Goexit()
			}
			return -1, nil
		},
		"all of it": func(call int, p []byte) (int, error) {
			switch rng.IntN(8) {
			case 0:
				if !several { // after a panic in Writev the number of written bytes is unknown
					panic("on purpose")
				}
			case 1:
				if !several {
					runtime.Goexit()
				}
			case 2:
				return rng.IntN(len(p) + 1), testkit.ErrDisk
			case 3:
				return rng.IntN(len(p) + 1), nil
			case 4:
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			}
			return -1, nil
		},
	} {
		for _, vec := range []bool{false, true} {
			for _, spools := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/vec=%t,spool=%t", name, vec, spools), func(t *testing.T) {
					dir := t.TempDir()
					bubble.Test(t, func(t *testing.T) {
						m := &vecPage{page{act: act}}
						d := ToWriter(&m.page)
						if several = vec; vec {
							d = ToWriter(m)
						}
						o := shortDelays(slab.Options{SlabBytes: 512, SlabCount: 2 + rng.IntN(8), WhenFull: slab.Block(), FlushInterval: time.Millisecond})
						o.Deliver.Breaker.ProbeRecords = 1 + rng.IntN(10)
						events := &testkit.Events{}
						o.OnError = events.Add
						if spools {
							o.SpoolDir = dir
							o.Spool = spool.Options{Sync: "never"}
						}
						out := mustOutput(t, d, o)
						const n = 1000
						mustLines(t, out, 0, n, 1+rng.IntN(100))
						for out.Flush(t.Context()) != nil || out.Account().Pending.Total() > 0 { // Flush fails while the circuit is open
							time.Sleep(50 * time.Millisecond)
						}
						if s := out.Stats(); s.Deliver.Retries == 0 && name != "short writes" && !(several && name == "panics for long") || s.Delivered != n {
							t.Errorf("%+v", s)
						}
						mustEnd(t, out, n, n, batch.Drops{})
						wantLines(t, m.String(), 0, n)
						synctest.Wait()
						ops := slices.DeleteFunc(events.Ops(), func(op string) bool { return op != "send" && op != "recovered" })
						if name != "short writes" && !(several && name == "panics for long") && (len(ops) == 0 || ops[0] != "send" || ops[len(ops)-1] != "recovered") {
							t.Errorf("events %v", ops)
						}
					})
				})
			}
		}
	}
}

// If a writer is permanently closed, the records that it has not accepted are dropped immediately.
func TestWriterIsGone(t *testing.T) {
	for _, gone := range []error{io.ErrClosedPipe, os.ErrClosed, fmt.Errorf("write: %w", errors.Join(os.ErrClosed))} {
		m := &page{act: func(call int, p []byte) (int, error) {
			if call == 0 {
				return 25, gone // two complete records and a part of the third
			}
			return 0, gone
		}}
		out := mustOutput(t, ToWriter(m), shortDelays(slab.Options{}))
		mustLines(t, out, 0, 10, 10)
		if err := out.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustLines(t, out, 10, 11, 10) // appending a newline to the partial line fails, too
		if err := out.Close(); err == nil || !strings.Contains(err.Error(), "failed=1") && !strings.Contains(err.Error(), "closed") {
			if a := out.Account(); a.Dropped[batch.Failed] != 9 {
				t.Error(err, a)
			}
		}
		if a := out.Account(); a.Check() != nil || a.Delivered != 2 || a.Dropped != dropsOf(batch.Failed, 9) {
			t.Error(a)
		}
	}
}

// If a write stops within a line, the next write continues the line. If a different record follows,
// a newline is written first.
func TestWriterTornLines(t *testing.T) {
	const text = "one\ntwo\nthree\n"
	make := func(ticket uint64, recs ...string) *batch.Batch {
		var b batch.Batch
		for i, r := range recs {
			b.Append([]byte(r), ticket+uint64(i), batch.Meta{})
		}
		return &b
	}
	for n := range len(text) {
		for _, other := range []bool{false, true} {
			m := &page{act: func(call int, p []byte) (int, error) {
				if call == 0 {
					return n, testkit.ErrDisk
				}
				return -1, nil
			}}
			d := ToWriter(m).(*writer)
			recs := []string{"one\n", "two\n", "three\n"}
			o := d.send(t.Context(), make(1, recs...))
			done := 3 - o.Open.Len(3)
			if o.Err() == nil || o.Advice != batch.Again || done != strings.Count(text[:n], "\n") {
				t.Fatalf("%d bytes: %+v", n, o)
			}
			next, want := make(uint64(1+done), recs[done:]...), text
			if other {
				want = text[:n]
				if n > 0 && want[n-1] != '\n' {
					want += "\n"
				}
				next, want = make(9, "zero\n"), want+"zero\n"
			}
			if o := d.send(t.Context(), next); o.Err() != nil || m.String() != want {
				t.Errorf("%d bytes: %q, want %q, %+v", n, m.String(), want, o)
			}
		}
	}
}

// NewOutput refuses a nil writer and a nil pointer as a writer.
func TestWriterIsNil(t *testing.T) {
	var f *os.File
	var b *bytes.Buffer
	for _, d := range []Destination{ToWriter(nil), ToWriter(f), ToWriter(b), ToWriteCloser(nil), ToWriteCloser(f)} {
		if out, err := NewOutput(d, nil); err == nil || out != nil || !strings.Contains(err.Error(), "the destination is nil") {
			t.Error(out, err)
		}
	}
}

// A device is a writer with Flush, Sync and Close methods. They count their calls and may fail or
// panic.
type device struct {
	page
	flushed, synced, closed int
	fail                    error
	panics                  bool
}

func (d *device) call(n *int) error {
	*n++
	if d.panics {
		panic("on purpose")
	}
	return d.fail
}

func (d *device) Flush() error { return d.call(&d.flushed) }
func (d *device) Sync() error  { return d.call(&d.synced) }
func (d *device) Close() error { return d.call(&d.closed) }

func TestWriterFlushSyncClose(t *testing.T) {
	d := &device{}
	out := mustOutput(t, ToWriter(d), shortDelays(slab.Options{}))
	mustLines(t, out, 0, 1, 10)
	if err := out.Sync(); err != nil || d.synced != 1 || d.flushed != 1 || d.String() == "" {
		t.Errorf("Sync: %v, %d syncs, %d flushes, %q written", err, d.synced, d.flushed, d.String())
	}
	if err := out.Flush(t.Context()); err != nil || d.synced != 1 || d.flushed != 2 {
		t.Errorf("Flush: %v, %d syncs, %d flushes", err, d.synced, d.flushed)
	}
	d.fail = testkit.ErrDisk
	if err := out.Sync(); !errors.Is(err, testkit.ErrDisk) {
		t.Errorf("Sync of a writer that fails: %v", err)
	}
	d.fail, d.panics = nil, true
	if err := out.Sync(); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("Sync of a writer that panics: %v", err)
	}
	d.panics = false
	mustEnd(t, out, 1, 1, batch.Drops{})
	if d.closed != 0 {
		t.Error("Close closed a writer that it does not own")
	}

	out = mustOutput(t, ToWriteCloser(d), shortDelays(slab.Options{}))
	mustLines(t, out, 0, 1, 10)
	mustEnd(t, out, 1, 1, batch.Drops{})
	if d.closed != 1 {
		t.Errorf("closed %d times", d.closed)
	}
	d = &device{panics: true}
	if err := mustOutput(t, ToWriteCloser(d), shortDelays(slab.Options{})).Close(); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("Close of a writer that panics: %v", err)
	}
}

// If a writer returns a count larger than the length of the data, all bytes are taken as written,
// and the invalid count is reported once. A negative count is a failure.
func TestWriterMiscounts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  func(call, size int) (int, error)
		event   string
		retries uint64
		calls   int
	}{
		{"too many, always", func(_, size int) (int, error) { return size + 7, nil }, "invalid count 12 for a write of 5", 0, 3},
		{"too many, and an error", func(call, size int) (int, error) {
			if call == 0 {
				return size + 7, testkit.ErrDisk
			}
			return size, nil
		}, "invalid count 12 for a write of 5", 0, 3}, // all bytes count as written
		{"negative, once", func(call, size int) (int, error) {
			if call == 0 {
				return -1, nil
			}
			return size, nil
		}, "invalid count -1 for a write of 5", 1, 4},
		{"negative, and an error", func(call, size int) (int, error) {
			if call == 0 {
				return -1, testkit.ErrDisk
			}
			return size, nil
		}, testkit.ErrDisk.Error(), 1, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				calls := 0
				var text []string
				o := shortDelays(slab.Options{})
				o.OnError = func(e batch.Event) {
					if e.Err != nil {
						text = append(text, e.Err.Error())
					}
				}
				out := mustOutput(t, ToWriter(writeFunc(func(p []byte) (int, error) {
					n, err := tt.answer(calls, len(p))
					calls++
					return n, err
				})), o)
				for range 3 {
					if _, err := out.Write([]byte("line\n")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				if n := out.Stats().Deliver.Retries; n != tt.retries || calls != tt.calls {
					t.Errorf("%d retries, %d calls", n, calls)
				}
				mustEnd(t, out, 3, 3, batch.Drops{})
				synctest.Wait()
				if n := strings.Count(strings.Join(text, "\n"), tt.event); n != 1 {
					t.Errorf("reported %d times: %q: %q", n, tt.event, text)
				}
			})
		})
	}
	v := vecFunc(func([][]byte) (int64, error) { return -1, nil })
	d := ToWriter(v).(*writer)
	var b batch.Batch
	for range 3 {
		var build batch.Batch
		build.Append([]byte("line\n"), 0, batch.Meta{})
		b.Add(build.Runs[0])
	}
	if o := d.send(t.Context(), &b); o.Open.Len(3) != 3 || !strings.Contains(o.Why.Error(), "invalid count -1") {
		t.Errorf("%+v", o)
	}
}

type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

type vecFunc func(bufs [][]byte) (int64, error)

func (f vecFunc) Writev(bufs [][]byte) (int64, error) { return f(bufs) }
func (f vecFunc) Write(p []byte) (int, error) {
	n, err := f([][]byte{p})
	return int(n), err
}

// markedLines is a codec for plain text with gap markers.
type markedLines struct{}

func (markedLines) ContentType() string { return "text/plain" }
func (markedLines) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	return fmt.Appendf(dst, "%q", rec)
}
func (markedLines) AppendMarker(dst []byte, d batch.Drops, _ time.Time) []byte {
	return fmt.Appendf(dst, "dropped %v\n", d)
}

// A partially written gap marker is completed, and each marker is written once.
func TestWriterTearsMarker(t *testing.T) {
	for name, leave := range map[string]func(){"error": nil, "panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				opened := make(chan struct{})
				var text strings.Builder
				left := 6 // number of failing writes of the marker
				o := shortDelays(slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest()})
				o.Codec = markedLines{}
				out := mustOutput(t, ToWriter(writeFunc(func(p []byte) (int, error) {
					if text.Len() == 0 {
						<-opened
					}
					if left > 0 && strings.Contains("dropped full=", string(p[:1])) {
						if left--; leave != nil && left%2 == 0 {
							leave()
						}
						text.Write(p[:1])
						if leave != nil {
							return 1, nil
						}
						return 1, testkit.ErrDisk
					}
					text.Write(p)
					return len(p), nil
				})), o)
				mustLines(t, out, 0, 1, 50)
				time.Sleep(time.Second)
				lost := 0
				for i := 1; i < 100; i++ {
					if out.WriteRecord(lineOf(i, 50), batch.Meta{}) != nil {
						lost++
					}
				}
				close(opened)
				for out.Flush(t.Context()) != nil { // Flush fails while the circuit is open
					time.Sleep(time.Second)
				}
				mustLines(t, out, 100, 101, 50)
				time.Sleep(2 * time.Second)
				mustLines(t, out, 101, 102, 50)
				mustEnd(t, out, 102, uint64(102-lost), dropsOf(batch.Full, uint64(lost)))
				want := fmt.Sprintf("dropped full=%d\n", lost)
				if got := strings.Count(text.String(), "dropped"); got != 1 || !strings.Contains(text.String(), "\n"+want) {
					t.Errorf("%d markers, want one %q in %q", got, want, text.String())
				}
			})
		})
	}
}

// A writer that hangs does not block Close. The records passed to it count as unknown, and all
// pending records are dropped. If the writer accepts records later, the account does not change.
func TestWriterHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := &page{act: func(call int, p []byte) (int, error) {
			<-release
			return -1, nil
		}}
		out := mustOutput(t, ToWriter(m), shortDelays(slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: time.Millisecond}))
		mustLines(t, out, 0, 3, 50)
		time.Sleep(time.Second)
		mustLines(t, out, 3, 5, 50)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		rep, err := out.Shutdown(ctx)
		if d := time.Since(began); d > 1200*time.Millisecond {
			t.Errorf("Shutdown took %s", d)
		}
		if !errors.Is(err, context.DeadlineExceeded) || rep.Unknown != 3 || rep.Dropped != dropsOf(batch.Shutdown, 5) || rep.Check() != nil {
			t.Errorf("%v, %+v", err, rep)
		}
		close(release)
		synctest.Wait()
		if a := out.Account(); a != rep.Account {
			t.Errorf("%s, and later %s", rep.Account, a)
		}
	})
}

// If the time of Close ends while the outlet waits between two sessions with a full window, the
// goroutine of the outlet ends. Otherwise synctest would fail the test.
func TestCloseBetweenSessionsOfAWriter(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		for delay := range 20 { // the destination is called at some of these times, and the outlet waits at the others
			bubble.Test(t, func(t *testing.T) {
				m := &page{act: func(int, []byte) (int, error) { end(); return 0, nil }}
				out := mustOutput(t, ToWriter(m), shortDelays(slab.Options{SlabBytes: 512, SlabCount: 8, FlushInterval: time.Millisecond}))
				for i := range 30 { // several slabs
					mustLines(t, out, i, i+1, 50)
				}
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(delay)*3*time.Millisecond, cancel)
				if rep, err := out.Shutdown(ctx); err == nil || rep.Check() != nil {
					t.Errorf("%s: %v, %+v", name, err, rep)
				}
			})
		}
	}
}

// Between two attempts no record is unknown, because the writer has returned how many bytes it
// wrote. Shutdown makes a last attempt if the loop runs before it learns that the context has ended.
func TestNoUnknownRecordBetweenAttempts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := &page{act: func(call int, p []byte) (int, error) {
			accepted := 0
			if call == 0 {
				accepted = 25
			}
			return accepted, batch.RetryAfter(testkit.ErrDisk, time.Minute)
		}}
		o := shortDelays(slab.Options{FlushInterval: time.Millisecond})
		out := mustOutput(t, ToWriter(m), o)
		mustLines(t, out, 0, 3, 20)
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rep, err := out.Shutdown(ctx)
		if err == nil || rep.Unknown != 0 || rep.Delivered != 1 || rep.Dropped != dropsOf(batch.Shutdown, 2) || rep.Check() != nil {
			t.Errorf("%v, %+v", err, rep)
		}
	})
}

// Several slabs are written to a regular file in one system call.
func TestWriterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out := mustOutput(t, ToWriteCloser(f), shortDelays(slab.Options{SlabBytes: 512, SlabCount: 16, WhenFull: slab.Block()}))
	const n = 20000
	mustLines(t, out, 0, n, 60)
	mustEnd(t, out, n, n, batch.Drops{})
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, string(got), 0, n)
}

// While callers wait for memory, one call writes half of the slabs. This also holds immediately
// after a waiting caller got a slab. The first record makes the outlet open the session. Before
// that, it would lease two batches, and the second one could have fewer slabs.
func TestQueuedSlabsGoTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var got []int
		out := mustOutput(t, ToWriter(vecFunc(func(bufs [][]byte) (n int64, err error) {
			if len(got) > 0 {
				<-hold
			}
			got = append(got, len(bufs))
			for _, b := range bufs {
				n += int64(len(b))
			}
			return n, nil
		})), shortDelays(slab.Options{SlabBytes: 512, SlabCount: 16, WhenFull: slab.Block()}))
		const n = 200 // with its slot a record has 132 bytes, so three records fit in a slab
		mustLines(t, out, 0, 1, 100)
		if err := out.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := 1; i < n; i++ {
				out.Write(lineOf(i, 100))
			}
		}()
		synctest.Wait() // all slabs are full and the caller waits
		close(hold)
		synctest.Wait()
		mustEnd(t, out, n, n, batch.Drops{})
		if len(got) < 3 || got[2] != 8 {
			t.Errorf("slabs per call: %v, want 8 in the third", got)
		}
	})
}

// Successful delivery on the caller's goroutine does not allocate.
func TestInlineAllocatesNothing(t *testing.T) {
	out := mustOutput(t, ToWriter(io.Discard), shortDelays(slab.Options{SlabBytes: 4096, WhenFull: slab.Block()}))
	p := make([]byte, 1000)
	for range 100 {
		out.Write(p)
	}
	if err := out.Flush(t.Context()); err != nil { // batches that arrived before the session began have left the queue
		t.Fatal(err)
	}
	if n := allocs.PerRun(1000, func() {
		for range 16 { // fills four slabs
			out.Write(p)
		}
	}); n > 0 {
		t.Errorf("%v allocations per four batches", n)
	}
	out.Close()
}

// Even if the writer hangs, Flush returns when its context ends, and Account returns immediately.
func TestInlineHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		out := mustOutput(t, ToWriter(writeFunc(func(p []byte) (int, error) { <-release; return len(p), nil })),
			shortDelays(slab.Options{FlushInterval: time.Millisecond}))
		mustLines(t, out, 0, 1, 10)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := out.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if a := out.Account(); a.Pending.Inflight != 1 || a.Check() != nil {
			t.Error(a)
		}
		close(release)
		mustEnd(t, out, 1, 1, batch.Drops{})
	})
}

// If an inline driver does not answer within Send, its batch is sent again in another session.
func TestInlineWithoutAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &forgetful{}
		out := mustOutput(t, d, shortDelays(slab.Options{FlushInterval: time.Millisecond}))
		mustLines(t, out, 0, 10, 10)
		time.Sleep(time.Minute)
		if s := out.Stats(); s.Deliver.Retries != 3 {
			t.Errorf("%+v", s.Deliver)
		}
		mustEnd(t, out, 10, 10, batch.Drops{})
		if d.closes != 4 {
			t.Errorf("%d sessions were closed", d.closes)
		}
	})
}

// forgetful is a driver that answers from the fourth batch on.
type forgetful struct{ sends, closes int }

func (d *forgetful) Traits() Traits { return Traits{Inline: true} }
func (d *forgetful) Open(l Life) (Session, error) {
	return forgetfulSession{d, l}, nil
}

type forgetfulSession struct {
	d *forgetful
	l Life
}

func (s forgetfulSession) Send(b *batch.Batch) error {
	switch s.d.sends++; s.d.sends {
	case 1:
	case 2:
		s.l.End(testkit.ErrDown)
	case 3:
		return testkit.ErrDown
	default:
		s.l.Answer(b, batch.Outcome{})
	}
	return nil
}

func (s forgetfulSession) Close() { s.d.closes++ }

// Records of a Send that has not returned normally may have arrived. If Close drops them, it reports
// them as unknown.
func TestCloseAfterAbortedSend(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		bubble.Test(t, func(t *testing.T) {
			calls := 0
			out := mustOutput(t, SendFunc(Traits{Inline: true}, func(_ context.Context, b *batch.Batch) batch.Outcome {
				switch calls++; calls {
				case 1:
					return batch.Outcome{}
				case 2:
					leave()
				}
				return batch.FailedOutcome(testkit.ErrDown)
			}), shortDelays(slab.Options{}))
			mustLines(t, out, 0, 3, 10)
			if err := out.Flush(t.Context()); err != nil {
				t.Error(name, err)
			}
			mustLines(t, out, 3, 8, 10)
			if rep, err := out.Shutdown(t.Context()); err == nil || rep.Delivered != 3 || rep.Unknown != 5 || calls < 3 {
				t.Errorf("%s: %d calls, %d unknown: %s: %v", name, calls, rep.Unknown, rep.Account, err)
			}
		})
	}
}

// Recovered records that the destination accepts during Close are not sent again by the next
// process, even if the time of Close is over.
func TestRecordsRecoveredDuringCloseArriveOnce(t *testing.T) {
	o := shortDelays(slab.Options{FlushInterval: -1})
	o.CrashDir = t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		open := func(answer func() batch.Outcome) *Output {
			return mustOutput(t, SendFunc(Traits{Inline: true}, func(context.Context, *batch.Batch) batch.Outcome { return answer() }), o)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		out := open(func() batch.Outcome { return batch.FailedOutcome(testkit.ErrDown) })
		mustLines(t, out, 0, 5, 10)
		if rep, err := out.Shutdown(ended); err != nil || rep.Kept() != 5 {
			t.Fatal(rep, err)
		}
		out = open(func() batch.Outcome { time.Sleep(closeGrace / 2); return batch.Outcome{} })
		synctest.Wait()
		if rep, err := out.Shutdown(ended); err != nil || rep.Recovered != 5 || rep.Delivered != 5 {
			t.Fatal(rep, err)
		}
		out = open(func() batch.Outcome { return batch.Outcome{} })
		if rep, err := out.Shutdown(t.Context()); err != nil || rep.Recovered != 0 {
			t.Fatal(rep, err)
		}
	})
}
