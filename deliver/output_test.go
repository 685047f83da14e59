package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

func silent(batch.Event) {}

func sendTo(send func(b *batch.Batch) batch.Outcome) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome { return send(b) })
}

func takesAll(*batch.Batch) batch.Outcome { return batch.Outcome{} }

func mustOutput(t *testing.T, dest deliver.Destination, o *deliver.OutputOptions) *deliver.Output {
	t.Helper()
	if o.OnError == nil {
		o.OnError = silent
	}
	out, err := deliver.NewOutput(dest, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The error of NewOutput lists every invalid option. If NewOutput fails, it closes the destination,
// the files and the spool.
func TestNewOutputNamesAllFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := 0
	dest := closing{sendTo(takesAll), func() error { closed++; return nil }}
	_, err := deliver.NewOutput(dest, &deliver.OutputOptions{
		Slab:           slab.Options{SlabCount: 1, SlabBytes: 1, WhenFull: slab.Spill()},
		Deliver:        deliver.Options{PendingLimit: -1, Retry: &deliver.RetryOptions{Min: -1}, Handler: deliver.JSONLines(os.Stdout)},
		FallbackFile:   filepath.Join(file, "no"),
		DeadLetterFile: dir,
		CloseTimeout:   -1,
		BufferBytes:    -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"SlabCount is 1", "SlabBytes is 1", "WhenFull is spill", "PendingLimit is -1", "Min is -1ns", "cannot open FallbackFile", "cannot open DeadLetterFile",
		"CloseTimeout is -1ns", "BufferBytes is -1", "FallbackFile and Deliver.Handler are both set",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q is not named once: %v", want, err)
		}
	}
	if closed != 1 {
		t.Errorf("the destination was closed %d times", closed)
	}
	o := &deliver.OutputOptions{SpoolDir: filepath.Join(dir, "spool"), DeadLetterFile: dir, OnError: silent}
	for range 2 {
		if _, err := deliver.NewOutput(dest, o); err == nil || errors.Is(err, spool.ErrLocked) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := deliver.NewOutput(nil, nil); err == nil {
		t.Error("no error for a nil destination")
	}
}

type closing struct {
	deliver.Destination
	end func() error
}

func (c closing) Close(context.Context) error { return c.end() }

// With a spool, refused and oversize records are written to dead-letters.jsonl in the spool's
// directory, unless DeadLetterFile names another file. The file is created with the first dead
// letter.
func TestDeadLettersBesideASpool(t *testing.T) {
	refuses := func(b *batch.Batch) batch.Outcome {
		var bad []int
		for i, r := range b.All() {
			if strings.Contains(string(r.Data), "bad") {
				bad = append(bad, i)
			}
		}
		return batch.Outcome{Refused: batch.Of(bad...), Refusal: errors.New("refused")}
	}
	write := func(out *deliver.Output, texts ...string) batch.Report {
		t.Helper()
		for _, text := range texts {
			out.Write([]byte(`{"msg":"` + text + `"}` + "\n"))
		}
		rep, err := out.Shutdown(context.Background())
		if err != nil || rep.Check() != nil {
			t.Errorf("%v: %s", err, rep.Account)
		}
		return rep
	}
	long := strings.Repeat("x", 2000)
	dir := t.TempDir()
	letters := filepath.Join(dir, "dead-letters.jsonl")
	o := func(file string) *deliver.OutputOptions {
		return &deliver.OutputOptions{SpoolDir: dir, DeadLetterFile: file, Codec: encode.JSON(nil).Codec(), Slab: slab.Options{MaxRecord: 1000}}
	}

	write(mustOutput(t, sendTo(refuses), o("")), "good")
	write(mustOutput(t, sendTo(refuses), o(os.DevNull)), "bad", long)
	if _, err := os.Stat(letters); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
	rep := write(mustOutput(t, sendTo(refuses), o("")), "good", "bad", long)
	text, err := os.ReadFile(letters)
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), `"reason":"refused"`) || !strings.Contains(string(text), long) {
		t.Errorf("%v: %s", err, text)
	}
	if rep.Delivered != 1 || rep.Dropped[batch.Poison] != 1 || rep.Dropped[batch.Oversize] != 1 {
		t.Errorf("%s", rep.Account)
	}
	if st, err := os.Stat(letters); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	other := filepath.Join(dir, "other.jsonl")
	write(mustOutput(t, sendTo(refuses), o(other)), "bad")
	if text, err := os.ReadFile(other); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%v: %s", err, text)
	}
}

// outputhook.Refuse counts a record as accepted and dropped, and writes its text, if any, to the dead-letter
// file.
func TestRefuse(t *testing.T) {
	letters := filepath.Join(t.TempDir(), "dead.jsonl")
	out := mustOutput(t, sendTo(func(*batch.Batch) batch.Outcome { return batch.Outcome{} }),
		&deliver.OutputOptions{DeadLetterFile: letters, Codec: encode.JSON(nil).Codec()})
	out.Write([]byte("{}\n"))
	for _, err := range []error{
		outputhook.Refuse(out, []byte(`{"a":1}`), batch.Meta{}, batch.Encode, errors.New("no form for it")),
		outputhook.Refuse(out, nil, batch.Meta{}, batch.Oversize, nil),
	} {
		if !errors.Is(err, slab.ErrDropped) {
			t.Error(err)
		}
	}
	rep, err := out.Shutdown(context.Background())
	if err != nil || rep.Check() != nil || rep.Accepted != 3 || rep.Delivered != 1 || rep.Dropped[batch.Encode] != 1 || rep.Dropped[batch.Oversize] != 1 {
		t.Errorf("%v: %s", err, rep.Account)
	}
	text, err := os.ReadFile(letters)
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"raw":"{\"a\":1}"`) || !strings.Contains(string(text), `"reason":"no form for it"`) {
		t.Errorf("%v: %s", err, text)
	}
	if err := outputhook.Refuse(out, []byte("late"), batch.Meta{}, batch.Encode, errors.New("x")); !errors.Is(err, batch.ErrClosed) {
		t.Error(err)
	}
}

// The error of Shutdown reports only losses during Shutdown: records that are refused or fail and
// have no dead-letter handler, and a destination that cannot be closed. Records dropped before
// Shutdown are not included.
func TestShutdownNamesItsOwnLosses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refuse := func(*batch.Batch) batch.Outcome {
			return batch.Outcome{Refused: batch.All(), Refusal: errors.New("never")}
		}
		gone := func(*batch.Batch) batch.Outcome {
			return batch.Outcome{Open: batch.All(), Why: errors.New("the reader is gone"), Advice: batch.Gone}
		}
		taken := 0
		letters := deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome { taken += b.Len(); return batch.Outcome{} })
		for _, tt := range []struct {
			name    string
			dest    deliver.Destination
			letters deliver.ErrorHandler
			early   bool // the records are sent before Shutdown
			want    string
		}{
			{"refused", sendTo(refuse), nil, false, "3 records lost (poison=3)"},
			{"refused before", sendTo(refuse), nil, true, ""},
			{"dead letters", sendTo(refuse), letters, false, ""},
			{"gone", sendTo(gone), nil, false, "3 records lost (failed=3): the reader is gone"},
			{"unclosed", closing{sendTo(takesAll), func() error { return errors.New("disk full") }}, nil, false, "disk full"},
			{"well", sendTo(takesAll), nil, false, ""},
		} {
			out := mustOutput(t, tt.dest, &deliver.OutputOptions{Deliver: deliver.Options{DeadLetter: tt.letters}, Slab: slab.Options{FlushInterval: time.Hour}})
			for range 3 {
				out.Write([]byte("record\n"))
			}
			if tt.early {
				out.Flush(t.Context())
			}
			rep, err := out.Shutdown(t.Context())
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || strings.Count(err.Error(), tt.want) != 1):
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
			case rep.Check() != nil:
				t.Errorf("%s: %v", tt.name, rep.Check())
			}
			if again := out.Close(); again != err {
				t.Errorf("%s: again: %v", tt.name, again)
			}
		}
		if taken != 3 {
			t.Errorf("%d dead letters", taken)
		}
	})
}

// If the Close method of the destination blocks, Shutdown waits until its time limit and reports no
// loss.
func TestShutdownWithADestinationThatDoesNotEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		out := mustOutput(t, closing{sendTo(takesAll), func() error { <-release; return nil }}, &deliver.OutputOptions{CloseTimeout: 2 * time.Second})
		out.Write([]byte("record\n"))
		start := time.Now()
		rep, err := out.Shutdown(context.Background())
		if took := time.Since(start); err != nil || rep.Delivered != 1 || took > 2200*time.Millisecond {
			t.Errorf("after %s: %v: %s", took, err, rep.Account)
		}
		close(release)
	})
}

// A flushing destination buffers the records that it accepts.
type flushing struct {
	deliver.Destination
	flush func(context.Context) error
}

func (f flushing) Flush(ctx context.Context) error { return f.flush(ctx) }

// If a destination has accepted records and its Flush fails, Shutdown reports how many records may
// be lost, even if Flush returns late.
func TestShutdownNamesWhatWasNotFlushed(t *testing.T) {
	full := errors.New("disk full")
	after := func(d time.Duration) func(context.Context) error {
		return func(context.Context) error { time.Sleep(d); return full }
	}
	for _, tt := range []struct {
		name  string
		flush func(context.Context) error
		limit time.Duration
	}{
		{"at once", after(0), time.Second},
		{"at once, with little time", after(0), 200 * time.Millisecond},
		{"at the end", after(950 * time.Millisecond), time.Second},
		{"too late", after(time.Minute), time.Second},
		{"when its context ends", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			well := true
			out := mustOutput(t, flushing{sendTo(takesAll), func(ctx context.Context) error {
				if well {
					return nil
				}
				return tt.flush(ctx)
			}}, &deliver.OutputOptions{CloseTimeout: tt.limit})
			out.Write([]byte("flushed\n"))
			if err := out.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			well = false
			for range 3 {
				out.Write([]byte("buffered\n"))
			}
			rep, err := out.Shutdown(context.Background())
			if err == nil || strings.Count(err.Error(), "3 records may be lost") != 1 || rep.Delivered != 4 {
				t.Errorf("%s: %v: %s", tt.name, err, rep.Account)
			}
			time.Sleep(time.Hour)
		})
	}
}

// If the Flush of a destination fails before Close runs out of time, the error of Close has its text,
// even if that wraps context.DeadlineExceeded.
func TestCloseNamesTheErrorOfFlush(t *testing.T) {
	why := fmt.Errorf("flush http://t: %w", context.DeadlineExceeded)
	out := mustOutput(t, flushing{sendTo(takesAll), func(context.Context) error { return why }}, &deliver.OutputOptions{})
	out.Write([]byte("buffered\n"))
	if _, err := out.Shutdown(t.Context()); !errors.Is(err, why) || !strings.Contains(err.Error(), why.Error()) {
		t.Error(err)
	}
}

// unreachable is a destination whose Open fails. It keeps the contexts of its sessions.
type unreachable struct {
	traits   deliver.Traits
	contexts []context.Context
}

func (d *unreachable) Traits() deliver.Traits { return d.traits }

func (d *unreachable) Open(l deliver.Life) (deliver.Session, error) {
	d.contexts = append(d.contexts, l.Context())
	return nil, errors.New("unreachable")
}

// The context of a session ends if Open fails, so that neither the context nor goroutines that wait
// for it stay in memory.
func TestContextEndsIfOpenFails(t *testing.T) {
	for _, inline := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			d := &unreachable{traits: deliver.Traits{Inline: inline}}
			out := mustOutput(t, d, &deliver.OutputOptions{})
			out.Write([]byte("pending\n"))
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, ctx := range d.contexts {
				if ctx.Err() == nil {
					t.Errorf("inline %v: a context has not ended, %d calls of Open", inline, len(d.contexts))
				}
			}
			if len(d.contexts) < 2 {
				t.Errorf("inline %v: %d calls of Open", inline, len(d.contexts))
			}
			_ = out.Close()
		})
	}
}

// A refused record counts as lost if its dead letter is not written within CloseTimeout.
func TestShutdownNamesUnwrittenLetters(t *testing.T) {
	for _, tt := range []struct {
		name   string
		letter func()
		lost   bool // some of the 10 records
	}{
		{"slow", func() { time.Sleep(350 * time.Millisecond) }, true},
		{"hanging", func() { time.Sleep(time.Minute) }, true},
		{"in time", func() { time.Sleep(50 * time.Millisecond) }, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			var written atomic.Int64
			out := mustOutput(t, sendTo(func(b *batch.Batch) batch.Outcome {
				return batch.Outcome{Refused: batch.All(), Refusal: errors.New("never")}
			}), &deliver.OutputOptions{
				CloseTimeout: time.Second,
				Deliver: deliver.Options{DeadLetter: deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
					tt.letter()
					written.Add(int64(b.Len()))
					return batch.Outcome{}
				})},
			})
			for range 10 {
				out.Write([]byte("record\n"))
				out.Flush(t.Context())
			}
			rep, err := out.Shutdown(context.Background())
			if !tt.lost {
				if err != nil || written.Load() != 10 {
					t.Errorf("%s: %v, %d written", tt.name, err, written.Load())
				}
				return
			}
			want := fmt.Sprintf("%d records lost (poison=%[1]d)", 10-written.Load())
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "dead letter") || rep.Check() != nil {
				t.Errorf("%s: %v, want %q", tt.name, err, want)
			}
			time.Sleep(time.Hour)
		})
	}
}

type strange struct{ batch.Codec }

func (strange) ContentType() string { return "application/x-strange" }

// Records in the spool whose format the destination does not accept remain pending. Flush, Close
// and later records do not wait for them.
func TestOutputDoesNotWaitForOtherForms(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sp, err := diskqueue.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []batch.Codec{strange{encode.RawCodec()}, encode.RawCodec()} {
			b := batch.Batch{Codec: c}
			for range 10 + i {
				b.Append([]byte("line\n"), 0, batch.Meta{Time: time.Now().UnixNano()})
			}
			if _, err := sp.Append(&b); err != nil {
				t.Fatal(err)
			}
		}
		if err := sp.Close(); err != nil {
			t.Fatal(err)
		}
		var parked []batch.Event
		dest := deliver.SendFunc(deliver.Traits{Accepts: func(form string) bool { return form == encode.RawCodec().ContentType() }},
			func(context.Context, *batch.Batch) batch.Outcome { return batch.Outcome{} })
		out := mustOutput(t, dest, &deliver.OutputOptions{SpoolDir: dir, Codec: encode.RawCodec(), Spool: spool.Options{OnEvent: func(e batch.Event) {
			if e.Op == "parked" {
				parked = append(parked, e)
			}
		}}})
		out.Write([]byte("new\n"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := out.Flush(ctx); err != nil {
			t.Error(err)
		}
		rep, err := out.Shutdown(ctx)
		if err != nil || rep.Recovered != 21 || rep.Delivered != 12 || rep.Pending.Spill != 10 || rep.Check() != nil {
			t.Errorf("%s, %v", rep.Account, err)
		}
		if len(parked) != 1 || parked[0].Count != 10 {
			t.Errorf("reported %v", parked)
		}
	})
}

// A dead letter contains the id that its record got when it was accepted, even after a restart. An
// oversize record has no id.
func TestDeadLettersNameTheirRecords(t *testing.T) {
	dir := t.TempDir()
	o := &deliver.OutputOptions{SpoolDir: dir, Slab: slab.Options{MaxRecord: 100}, Deliver: deliver.Options{Breaker: &deliver.BreakerOptions{Failures: 1}}}
	out := mustOutput(t, down, o)
	for i := range 3 {
		fmt.Fprintf(out, "record %d\n", i)
	}
	_, _ = out.Write(make([]byte, 101))
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	out = mustOutput(t, sendTo(func(*batch.Batch) batch.Outcome {
		return batch.Outcome{Refused: batch.Of(1), Refusal: errors.New("no")}
	}), o)
	if err := out.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	letters, err := os.ReadFile(filepath.Join(dir, "dead-letters.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(letters)), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], `"id"`) || !regexp.MustCompile(`"id":"[0-9a-f]{32}:2"`).MatchString(lines[1]) {
		t.Errorf("got %s", letters)
	}
}

// With any combination of the other memory options, an output never has more than BufferRecords
// records in memory. It accepts at least two thirds of that number.
func TestBufferRecords(t *testing.T) {
	for _, limit := range []int{5, 6, 8, 12, 100, 3000} {
		for name, o := range map[string]deliver.OutputOptions{
			"default": {},
			"buffer":  {BufferBytes: 1 << 20},
			"slabs":   {Slab: slab.Options{SlabCount: 50, SlabBytes: 32 << 10}},
			"count":   {Slab: slab.Options{SlabCount: 3}},
		} {
			bubble.Test(t, func(t *testing.T) {
				o.BufferRecords, o.Slab.WhenFull, o.OnError = limit, slab.DropNewest(), func(batch.Event) {}
				x, err := deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, _ *batch.Batch) batch.Outcome {
					<-ctx.Done()
					return batch.FailedOutcome(ctx.Err())
				}), &o)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 * limit {
					x.Write([]byte("record\n"))
					if n := int(x.Account().Pending.Total()); n > limit {
						t.Fatalf("%s: %d of at most %d records are pending", name, n, limit)
					}
				}
				if n := int(x.Account().Pending.Total()); n < limit*2/3 {
					t.Errorf("%s: %d of at most %d records are pending", name, n, limit)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				x.Shutdown(ctx)
			})
		}
	}
	for _, n := range []int{-1, 4} {
		if _, err := deliver.NewOutput(deliver.ToWriter(io.Discard), &deliver.OutputOptions{BufferRecords: n}); err == nil || !strings.Contains(err.Error(), "BufferRecords is") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// An inline destination may also refuse records without naming them (Outcome.Unnamed).
func TestInlineRefusedWithoutNames(t *testing.T) {
	dest := deliver.SendFunc(deliver.Traits{Inline: true}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		return batch.Outcome{Unnamed: 1, Refusal: errors.New("no good")}
	})
	out := mustOutput(t, dest, &deliver.OutputOptions{})
	for range 3 {
		if _, err := out.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		if err := out.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if a := out.Stats().Account; a.Accepted != 3 || a.Dropped[batch.Poison] != 3 {
		t.Errorf("%s", a)
	}
	if _, err := out.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
