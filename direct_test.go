package forebay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A script is a writer that responds to each Write with its next step, and keeps the accepted
// bytes. After the last step it accepts everything.
type script struct {
	steps []func(p []byte) (int, error)
	calls int
	got   bytes.Buffer
}

func (s *script) Write(p []byte) (int, error) {
	s.calls++
	n, err := len(p), error(nil)
	if len(s.steps) > 0 {
		step := s.steps[0]
		s.steps = s.steps[1:]
		n, err = step(p)
	}
	if n > 0 && n <= len(p) {
		s.got.Write(p[:n])
	}
	return n, err
}

func answer2(n int, err error) func([]byte) (int, error) {
	return func([]byte) (int, error) { return n, err }
}

func half(err error) func([]byte) (int, error) {
	return func(p []byte) (int, error) { return len(p) / 2, err }
}

var errTest = errors.New("test error")

// A failed write of the second of three records has the expected effect on the output, the error
// and the account.
func TestDirectWriteErrors(t *testing.T) {
	one, two, three := msg("one"), msg("two"), msg("three")
	h := len(two) / 2
	for _, tt := range []struct {
		name      string
		steps     []func([]byte) (int, error)
		want      string // expected output after the first record
		delivered uint64
		errors    uint64
		panics    uint64
		err       string // error of Handle for the second record
		ops       []string
	}{
		{name: "short write", steps: []func([]byte) (int, error){half(nil)},
			want: two + three, delivered: 3},
		{name: "short write after short write", steps: []func([]byte) (int, error){half(nil), half(nil), half(nil)},
			want: two + three, delivered: 3},
		{name: "short write with ErrShortWrite", steps: []func([]byte) (int, error){half(io.ErrShortWrite)},
			want: two + three, delivered: 3},
		{name: "nothing written, once", steps: []func([]byte) (int, error){answer2(0, nil)},
			want: two + three, delivered: 3},
		{name: "nothing written, twice", steps: []func([]byte) (int, error){answer2(0, nil), answer2(0, nil)},
			want: two + three, delivered: 3},
		{name: "nothing written, ever", steps: []func([]byte) (int, error){answer2(0, nil), answer2(0, nil), answer2(0, nil)},
			want: three, delivered: 2, errors: 1, err: errNoProgress.Error(), ops: []string{"w write", "w recovered"}},
		{name: "error", steps: []func([]byte) (int, error){answer2(0, errTest)},
			want: three, delivered: 2, errors: 1, err: "test error", ops: []string{"w write", "w recovered"}},
		{name: "partial write, then the rest", steps: []func([]byte) (int, error){half(errTest)},
			want: two + three, delivered: 3, errors: 1},
		{name: "partial write, and no more", steps: []func([]byte) (int, error){half(errTest), answer2(0, errTest)},
			want: two[:h] + "\n" + three, delivered: 2, errors: 2, err: "test error", ops: []string{"w write", "w recovered"}},
		{name: "torn, and torn again", steps: []func([]byte) (int, error){half(errTest), answer2(0, errTest), answer2(1, errTest), answer2(0, errTest)},
			want: two[:h] + "\n" + "!", delivered: 1, errors: 4, err: "test error", ops: []string{"w write"}},
		{name: "all written, and an error", steps: []func([]byte) (int, error){func(p []byte) (int, error) { return len(p), errTest }},
			want: two + three, delivered: 3, errors: 1, ops: []string{"w write", "w recovered"}},
		{name: "impossible count", steps: []func([]byte) (int, error){func(p []byte) (int, error) { return len(p) + 1, nil }},
			want: "\n" + three, delivered: 2, errors: 1, err: errBadCount.Error(), ops: []string{"w write", "w recovered"}},
		{name: "negative count", steps: []func([]byte) (int, error){answer2(-1, nil)},
			want: "\n" + three, delivered: 2, errors: 1, err: errBadCount.Error(), ops: []string{"w write", "w recovered"}},
		{name: "would block", steps: []func([]byte) (int, error){answer2(0, syscall.EAGAIN), half(fmt.Errorf("write: %w", syscall.EAGAIN)), answer2(0, syscall.EINTR)},
			want: two + three, delivered: 3},
		{name: "panic", steps: []func([]byte) (int, error){func([]byte) (int, error) { panic("oops") }},
			want: "\n" + three, delivered: 2, errors: 1, panics: 1, err: "panic: oops", ops: []string{"w panic", "w recovered"}},
		{name: "panic with a nil error", steps: []func([]byte) (int, error){func([]byte) (int, error) { panic((*os.PathError)(nil)) }},
			want: "\n" + three, delivered: 2, errors: 1, panics: 1, err: "panic: <nil>", ops: []string{"w panic", "w recovered"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w, ev := &script{}, &eventLog{}
				r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("w"))), OnError(ev.add))
				log := slog.New(r)
				log.Info("one")
				w.got.Reset()
				w.steps = tt.steps
				rec := slog.NewRecord(time.Now(), slog.LevelInfo, "two", 0)
				err := r.Handle(t.Context(), rec)
				if got := fmt.Sprint(err); tt.err != "" && !strings.Contains(got, tt.err) || tt.err == "" && err != nil {
					t.Errorf("Handle: %v, want %q", err, tt.err)
				}
				log.Info("three")
				got := w.got.String()
				if strings.HasSuffix(tt.want, "!") { // the third record is partly written as well
					log.Info("four")
					got = w.got.String()
					tt.want, tt.delivered = strings.TrimSuffix(tt.want, "!")+msg("four"), tt.delivered+1
					tt.ops = append(tt.ops, "w recovered")
				}
				if got != tt.want {
					t.Errorf("written %q\nwant    %q", got, tt.want)
				}
				ev.wantOps(t, r, tt.ops...)
				st := outputStats(t, r, "w")
				if st.Delivered != tt.delivered || st.Errors != tt.errors || st.Panics != tt.panics {
					t.Errorf("%v panics=%d, want delivered=%d errors=%d panics=%d", st, st.Panics, tt.delivered, tt.errors, tt.panics)
				}
				if st.Dropped.Total() != st.Dropped[batch.Failed] {
					t.Errorf("dropped for another reason: %v", st)
				}
				if tt.err != "" && !strings.Contains(st.LastError, tt.err) {
					t.Errorf("LastError %q, want %q", st.LastError, tt.err)
				}
				_ = one
			})
		})
	}
}

// A write that returns EAGAIN for longer than BusyTimeout fails.
func TestDirectEAGAINFailsAfterBusyTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := writerFunc(func(p []byte) (int, error) { return 0, syscall.EAGAIN })
		r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("w"))), quiet())
		begun := time.Now()
		slog.New(r).Info("one")
		if d := time.Since(begun); d > defaultBusyTimeout || d < defaultBusyTimeout/2 {
			t.Errorf("gave up after %v", d)
		}
		if st := outputStats(t, r, "w"); st.Dropped[batch.Failed] != 1 {
			t.Errorf("%v", st)
		}
	})
}

// After a partly written record, one newline is written, even if several later writes fail.
func TestTornRecordIsEndedOnce(t *testing.T) {
	w := &script{steps: []func([]byte) (int, error){half(errTest), answer2(0, errTest), // the first record is partly written
		func(p []byte) (int, error) { return len(p), nil }, answer2(0, errTest)}}
	d := newDirect(w, "w", time.Second, nil)
	var tl tally
	for range 4 {
		_ = d.write([]byte("abc\n"), &tl)
	}
	if got, want := w.got.String(), "ab\nabc\nabc\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// No newline is written after a partly written record if records do not end with a newline.
func TestDirectBinaryIsNotRepaired(t *testing.T) {
	w := &script{steps: []func([]byte) (int, error){half(errTest), answer2(0, errTest)}}
	d := newDirect(w, "w", time.Second, nil)
	var tl tally
	if err := d.write([]byte("abcd"), &tl); err == nil {
		t.Error("no error")
	}
	if err := d.write([]byte("efgh"), &tl); err != nil {
		t.Error(err)
	}
	if got := w.got.String(); got != "abefgh" {
		t.Errorf("%q", got)
	}
}

// The memory of a record is returned to the pool exactly once, even if the logging goroutine ends
// during the call.
func TestGoexitReturnsScratchMemory(t *testing.T) {
	was := bigRecords
	defer func() { bigRecords = was }()
	bigRecords = newBigRecords(true)
	ends := func(p []byte) (int, error) { runtime.Goexit(); return 0, nil }
	panics := func(p []byte) (int, error) { panic("oops") }
	good := func(p []byte) (int, error) { return len(p), nil }
	for _, writers := range [][]writerFunc{{ends}, {ends, good}, {panics, ends}, {ends, panics}, {ends, ends, panics, ends}} {
		var outs []OutputSpec
		for i, w := range writers {
			outs = append(outs, Writer(w, Direct(), Name(strconv.Itoa(i))))
		}
		r := newRouter(t, quiet(), Route(plain(), outs...))
		for range 5 {
			var wg sync.WaitGroup
			wg.Go(func() {
				r.Logger().Info(strings.Repeat("x", 3*ownScratchBytes))
				t.Error("the goroutine continued after runtime.Goexit")
			})
			wg.Wait()
		}
	}
	gets := uint64(0)
	for _, c := range bigRecords.Stats().Classes {
		if gets += c.Gets; c.InUse > 0 || c.Lost > 0 {
			t.Errorf("%+v", c)
		}
	}
	if gets == 0 || len(bigRecords.Faults()) > 0 {
		t.Errorf("%d records borrowed: %v", gets, bigRecords.Faults())
	}
}

// runtime.Goexit in a writer ends the logging goroutine. The output continues to work, and other
// outputs receive the record.
func TestGoexitInWriterEndsOnlyGoroutine(t *testing.T) {
	before, after, buffered := &lines{}, &lines{}, &memOutput{}
	first := true
	bad := writerFunc(func(p []byte) (int, error) {
		if first {
			first = false
			runtime.Goexit()
		}
		return len(p), nil
	})
	ev := &eventLog{}
	r := newRouter(t, OnError(ev.add),
		Route(plain(), Writer(before, Direct(), Name("before")), Writer(bad, Direct(), Level(slog.LevelInfo), Name("bad")),
			Writer(after, Direct(), Name("after"))),
		Route(plain(), Writer(buffered, Name("buffered"))))
	log := slog.New(r)
	var wg sync.WaitGroup
	wg.Go(func() {
		log.Info("one")
		t.Error("the goroutine continued after runtime.Goexit")
	})
	wg.Wait()
	log.Info("two")
	for name, got := range map[string][]string{"before": before.all(), "after": after.all(), "buffered": buffered.all()} {
		if len(got) != 2 || got[0] != msg("one") || got[1] != msg("two") {
			t.Errorf("%s: %q", name, got)
		}
	}
	st := outputStats(t, r, "bad")
	if st.Panics != 1 || st.Dropped[batch.Failed] != 1 || st.Delivered != 1 {
		t.Errorf("%v", st)
	}
	ev.wantOps(t, r, "bad panic", "bad recovered")
}

// When Handle returns, the record is in the file, written with one Write and without a goroutine.
func TestDirectRecordIsInFileAfterHandle(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	r := newRouter(t, Route(plain(), Writer(f, Direct(), CloseWriter())))
	log := slog.New(r)
	want := ""
	for i := range 10 {
		m := fmt.Sprintf("record %d", i)
		log.Info(m)
		want += msg(m)
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("after record %d: %q", i, got)
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if st := r.Stats().Outputs[0]; st.Name != name || st.Buffered || st.Delivered != 10 {
		t.Errorf("%+v", st)
	}
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := f.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is not closed: %v", err)
	}
}

// Writes to a writer that is not safe for concurrent use are serialized, even if two routes share
// the writer.
func TestDirectWritesAreSerialized(t *testing.T) {
	var buf bytes.Buffer
	r := newRouter(t, longBusyTimeout,
		Route(plain(), Writer(&buf, Direct(), Name("a"))),
		Route(plain(), Writer(&buf, Direct(), Name("b"))))
	const goroutines, per = 64, 50
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			log := slog.New(r).With("g", g)
			for i := range per {
				log.Info("m", "i", i)
				if i%10 == 0 {
					r.Stats()
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	last := map[float64]float64{}
	for _, m := range parseLines(t, &buf) {
		g, i := m["g"].(float64), m["i"].(float64)
		seen[fmt.Sprint(g, i)]++
		if i < last[g] {
			t.Fatalf("goroutine %v: record %v was written after record %v", g, i, last[g])
		}
		last[g] = i
	}
	if len(seen) != goroutines*per {
		t.Errorf("%d records, want %d", len(seen), goroutines*per)
	}
	for k, n := range seen {
		if n != 2 {
			t.Errorf("record %s is there %d times", k, n)
		}
	}
	for _, name := range []string{"a", "b"} {
		if st := outputStats(t, r, name); st.Delivered != goroutines*per || st.Accepted != goroutines*per {
			t.Errorf("%v", st)
		}
	}
}

// A hanging direct output delays callers once, by at most BusyTimeout. Buffered outputs receive all
// records, and every record is accounted for.
func TestHangBesideBuffered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := false
		stuck := &lines{}
		w := writerFunc(func(p []byte) (int, error) {
			if hang {
				<-release
			}
			return stuck.Write(p)
		})
		buffered, direct := &memOutput{}, &lines{}
		ev := &eventLog{}
		r := newRouter(t, OnError(ev.add),
			Route(plain(), Writer(w, Direct(), Name("stuck")), Writer(buffered, Level(slog.LevelInfo), Name("buffered"))),
			Route(plain(), Writer(direct, Direct(), Name("direct"))))
		log := slog.New(r)
		log.Info("0")
		hang = true
		var wg sync.WaitGroup
		wg.Go(func() { log.Info("1") }) // this write hangs
		synctest.Wait()
		if got := buffered.len(); got != 2 {
			t.Fatalf("buffered has %d records while direct hangs, want 2", got)
		}
		if st := outputStats(t, r, "stuck"); st.Pending.Inflight != 1 || st.Check() != nil {
			t.Errorf("%v", st)
		}
		begun := time.Now()
		for i := range 1000 {
			log.Info(fmt.Sprint(i + 2))
			if got := buffered.len(); got != i+3 {
				t.Fatalf("buffered has %d records, want %d", got, i+3)
			}
		}
		if d := time.Since(begun); d > defaultBusyTimeout {
			t.Errorf("1000 calls took %v", d)
		}
		st := outputStats(t, r, "stuck")
		if !st.Stuck || st.Dropped[batch.Busy] != 1000 || st.Pending.Inflight != 1 || st.Check() != nil {
			t.Errorf("%v", st)
		}
		hang = false
		close(release)
		wg.Wait()
		log.Info("last")
		st = outputStats(t, r, "stuck")
		if st.Stuck || st.Delivered != 3 || st.Dropped[batch.Busy] != 1000 {
			t.Errorf("%v", st)
		}
		if n := direct.len(); n != 1003 {
			t.Errorf("the direct output after it has %d records, want 1003", n)
		}
		ev.wantOps(t, r, "stuck drop", "stuck recovered")
		if n := ev.got[1].Count; n != 1000 {
			t.Errorf("the recovery tells of %d records, want 1000", n)
		}
	})
}

// A writer that logs to its own router waits for the end of its own write, at most BusyTimeout.
func TestWriterMayLogToItsRouter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log *slog.Logger
		n := 0
		w := writerFunc(func(p []byte) (int, error) {
			if n++; n < 5 {
				log.Info("from within")
			}
			return len(p), nil
		})
		r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("w"))), quiet())
		log = slog.New(r)
		log.Info("one")
		st := outputStats(t, r, "w")
		if st.Delivered != 1 || st.Dropped[batch.Busy] != 1 {
			t.Errorf("%v", st)
		}
	})
}

// If many goroutines write to the same working writers, no record is dropped.
func TestContentionDropsNothing(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter(t, Route(plain(), Writer(f, Direct(), CloseWriter(), Name("f"))), longBusyTimeout)
	log := r.Logger()
	const goroutines, per = 64, 200
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range per {
				log.Info("m")
			}
		})
	}
	wg.Wait()
	st := outputStats(t, r, "f")
	if st.Delivered != goroutines*per || st.Dropped.Total() != 0 {
		t.Errorf("%v", st)
	}
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(goroutines * per * len(msg("m"))); fi.Size() != want {
		t.Errorf("the file has %d bytes, want %d", fi.Size(), want)
	}
}

// With random faults of a line-based writer, each delivered record is written completely, once, on
// a separate line and in order. Dropped records may be written in part.
func TestDeliveredLinesAreWholeRandom(t *testing.T) {
	for seed := range testkit.Walks(t, 100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var got bytes.Buffer
		w := writerFunc(func(p []byte) (n int, err error) {
			defer func() {
				if n > 0 && n <= len(p) {
					got.Write(p[:n])
				}
			}()
			switch rnd.IntN(12) {
			case 0:
				return 0, errTest
			case 1, 2:
				return rnd.IntN(len(p) + 1), errTest
			case 3:
				return rnd.IntN(len(p) + 1), nil
			case 4:
				got.Write(p[:rnd.IntN(len(p)+1)])
				panic("oops")
			case 5:
				got.Write(p[:rnd.IntN(len(p))])
				return len(p) + 7, nil
			case 6:
				return 0, nil
			case 7:
				return rnd.IntN(len(p) + 1), io.ErrShortWrite
			}
			return len(p), nil
		})
		r := newRouter(t, quiet(), Route(encode.JSON(&encode.Options{TimeKey: "-"}), Writer(w, Direct(), Name("w"))))
		var want []string
		for i := range 200 {
			m := fmt.Sprintf("record %d", i)
			if r.Handle(t.Context(), slog.NewRecord(time.Time{}, slog.LevelInfo, m, 0)) == nil {
				want = append(want, msg(m))
			}
		}
		if st := outputStats(t, r, "w"); st.Delivered != uint64(len(want)) || st.Accepted != 200 {
			t.Fatalf("seed %d: %v, want %d delivered", seed, st, len(want))
		}
		// If the writer has returned a wrong result, a record that counts as dropped may be
		// complete.
		k := 0
		for line := range strings.Lines(got.String()) {
			if k < len(want) && line == want[k] {
				k++
			}
		}
		if k != len(want) {
			t.Fatalf("seed %d: %q is missing or out of order", seed, want[k])
		}
	}
}

// Failures of real files are reported: a full disk, and a pipe without a reader.
func TestDirectFullDiskAndClosedPipe(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here:", err)
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pr.Close()
	var d lines
	ev := &eventLog{}
	r := newRouter(t, OnError(ev.add), Route(plain(),
		Writer(full, Direct(), CloseWriter(), Name("full")), Writer(pw, Direct(), CloseWriter(), Name("pipe")), Writer(&d, Direct())))
	for range 3 {
		r.Logger().Info("m")
	}
	if d.len() != 3 {
		t.Errorf("the healthy output has %d records", d.len())
	}
	for name, want := range map[string]error{"full": syscall.ENOSPC, "pipe": syscall.EPIPE} {
		st := outputStats(t, r, name)
		if st.Dropped[batch.Failed] != 3 || !strings.Contains(st.LastError, want.Error()) {
			t.Errorf("%v: %s", st, st.LastError)
		}
	}
	ev.wantOps(t, r, "full write", "pipe write")
}

// With Forever no record is dropped, however long a write takes, until Close ends the wait.
func TestBusyForever(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var lines atomic.Int64
		stall := make(chan struct{})
		w := writerFunc(func(p []byte) (int, error) {
			if lines.Add(1) == 1 {
				<-stall
			}
			return len(p), nil
		})
		r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("w"), BusyTimeout(Forever))), quiet())
		log := slog.New(r)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { log.Info("one") })
		}
		time.Sleep(365 * 24 * time.Hour)
		if n := lines.Load(); n != 1 {
			t.Errorf("%d lines are written while the first hangs", n)
		}
		close(stall)
		callers.Wait()
		if st := outputStats(t, r, "w"); st.Delivered != 10 || st.Dropped.Total() != 0 {
			t.Errorf("%v", st)
		}

		again := make(chan struct{})
		hang := writerFunc(func(p []byte) (int, error) { <-again; return len(p), nil })
		r = newRouter(t, Route(plain(), Writer(hang, Direct(), Name("w"), BusyTimeout(Forever))), quiet())
		log = slog.New(r)
		for range 3 {
			callers.Go(func() { log.Info("one") })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if rep, err := r.Close(ctx); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("Close of an output that hangs: %v after %s: %+v", err, time.Since(began), rep)
		}
		close(again)
		callers.Wait()
	})
}

// The report of Close contains the number of records in writes that do not return, with and without
// CloseWriter.
func TestCloseCountsHangingWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, closes := range []bool{false, true} {
			stall := make(chan struct{})
			hang := writerFunc(func(p []byte) (int, error) { <-stall; return len(p), nil })
			spec := Writer(hang, Direct(), Name("w"), BusyTimeout(Forever))
			if closes {
				spec = Writer(struct {
					io.Writer
					io.Closer
				}{hang, io.NopCloser(nil)}, Direct(), CloseWriter(), Name("w"), BusyTimeout(Forever))
			}
			r := newRouter(t, Route(plain(), spec), quiet())
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() { slog.New(r).Info("one") })
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			rep, err := r.Close(ctx)
			if text := fmt.Sprint(err); !strings.Contains(text, "output w: ") || strings.Count(text, "; 3 records in a write that has not returned") != 1 || rep.Outputs[0].Pending.Inflight != 3 {
				t.Errorf("closes %v: %s; %v", closes, text, rep)
			}
			close(stall)
			callers.Wait()
			synctest.Wait()
		}
	})
}

// With the default BusyTimeout and with Forever, one long write causes the delay and the losses
// documented at BusyTimeout.
func TestBusyTimeoutDelayAndLoss(t *testing.T) {
	for _, tt := range []struct {
		limit       time.Duration
		least, most uint64 // bounds of the number of dropped records
		longest     time.Duration
	}{
		{defaultBusyTimeout, 380, 401, 250 * time.Millisecond},
		{Forever, 0, 0, 400 * time.Millisecond},
	} {
		bubble.Test(t, func(t *testing.T) {
			first := true
			w := writerFunc(func(p []byte) (int, error) {
				if first {
					first = false
					time.Sleep(400 * time.Millisecond)
				}
				return len(p), nil
			})
			r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("w"), BusyTimeout(tt.limit))), quiet())
			log := slog.New(r)
			var callers sync.WaitGroup
			var longest atomic.Int64
			callers.Go(func() { log.Info("the long one") })
			synctest.Wait()
			for i := range 1000 {
				callers.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					began := time.Now()
					log.Info("one")
					for d := int64(time.Since(began)); ; {
						if was := longest.Load(); d <= was || longest.CompareAndSwap(was, d) {
							break
						}
					}
				})
			}
			callers.Wait()
			st := outputStats(t, r, "w")
			if d := st.Dropped[batch.Busy]; d < tt.least || d > tt.most || time.Duration(longest.Load()) > tt.longest {
				t.Errorf("%s: %v, the longest call took %s", tt.limit, st.Account, time.Duration(longest.Load()))
			}
		})
	}
}
