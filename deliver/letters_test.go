package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// ---- how the outlet writes dead letters -------------------------------------------

// refusing returns a destination that refuses, by index, the records for which bad returns true.
func refusing(bad func(batch.Record) bool) Destination {
	return destOf(testkit.NewSink(testkit.PoisonedByIndex(bad, 422)))
}

// The reason of a dead letter is the destination's error, including its status.
func TestDeadLetterReason(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dead, ev := &handlerLog{}, &testkit.Events{}
		x := mustNew(t, refusing(hasTicket(2)), &Options{DeadLetter: dead, OnError: ev.Add})
		if err := x.Send(t.Context(), lines(3)); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, x)
		mustClose(t, x)
		var status interface{ HTTPStatus() int }
		if err := dead.errs[0]; !errors.As(err, &status) || status.HTTPStatus() != 422 || err.Error() != "records are malformed" {
			t.Errorf("got %+v", err)
		}
		if a := x.Account(); a.Delivered != 2 || a.Dropped[batch.Poison] != 1 || x.Stats().Dropped[batch.Poison] != 1 || ev.Count("poison") != 1 {
			t.Errorf("%s, events %v", a, ev.Ops())
		}
	})
}

// Refused records are reported once as long as they follow each other within ten seconds, although
// other records are accepted between them.
func TestSeriesOfRefusedRecordsIsReportedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		x := mustNew(t, refusing(hasTicket(1)), &Options{OnError: ev.Add})
		deliver := func(n int) {
			for range n {
				send(t, &testkit.Model{}, x, lines(1))
				time.Sleep(2 * time.Second)
				send(t, &testkit.Model{}, x, ofTicket(2))
				time.Sleep(2 * time.Second)
			}
		}
		deliver(50)
		if n := ev.Count("poison"); n != 1 {
			t.Errorf("%d events in one series", n)
		}
		for range 10 {
			send(t, &testkit.Model{}, x, ofTicket(2))
			time.Sleep(2 * time.Second)
		}
		deliver(1)
		if n := ev.Count("poison"); n != 2 {
			t.Errorf("%d events in two series", n)
		}
		mustClose(t, x)
	})
}

// A dead letter that cannot be written is counted. A series of failures is reported once.
func TestDeadLetterFails(t *testing.T) {
	oops := errors.New("disk full")
	for _, tt := range []struct {
		name   string
		answer func(int, *batch.Batch, error) batch.Outcome
		n      uint64 // number of dead letters, of 4, that are not written
	}{
		{"fails", func(int, *batch.Batch, error) batch.Outcome { return batch.FailedOutcome(oops) }, 4},
		{"takes one of each two", func(int, *batch.Batch, error) batch.Outcome { return batch.Outcome{Open: batch.From(1), Why: oops} }, 2},
		{"refuses", func(int, *batch.Batch, error) batch.Outcome {
			return batch.Outcome{Refused: batch.All(), Refusal: oops}
		}, 4},
		{"panics", func(int, *batch.Batch, error) batch.Outcome { panic("no") }, 4},
		{"is well", nil, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			dead, ev := &handlerLog{answer: tt.answer}, &testkit.Events{}
			x := mustNew(t, refusing(hasTicket(2, 5, 8, 11)), &Options{DeadLetter: dead, OnError: ev.Add})
			m := &testkit.Model{}
			for range 2 {
				send(t, m, x, m.Batch(6, 32, batch.Meta{}))
			}
			mustFlush(t, x)
			_, _ = x.Shutdown(t.Context())
			if s := x.Stats(); s.Dropped[batch.Poison] != 4 || s.LostDeadLetters != tt.n {
				t.Errorf("%s: %d lost, %s", tt.name, s.LostDeadLetters, s.Account)
			}
			if n := ev.Count("dead-letter"); n > 1 || (n > 0) != (tt.n > 0) {
				t.Errorf("%s: events %v", tt.name, ev.Ops())
			}
		})
	}
}

// If dead letters are written slowly, delivery is not delayed while fewer than maxLetters of them wait.
func TestSlowDeadLetters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		dead := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { <-release; return batch.Outcome{} }}
		sink := testkit.NewSink(testkit.PoisonedByIndex(func(r batch.Record) bool { return r.Ticket%2 == 0 }, 400))
		x := mustNew(t, destOf(sink), &Options{DeadLetter: dead, HandlerTimeout: time.Hour})
		m := &testkit.Model{}
		sent := make(chan int, 1)
		go func() {
			n := 0
			for range 2 * maxLetters {
				if err := x.Send(t.Context(), m.Batch(2, 32, batch.Meta{})); err != nil {
					t.Error(err)
				}
				n++
			}
			sent <- n
		}()
		time.Sleep(time.Minute)
		if n := sink.Calls(); n < maxLetters || n > maxLetters+4 {
			t.Errorf("%d batches sent while %d letters may wait", n, maxLetters)
		}
		close(release)
		if n := <-sent; n != 2*maxLetters {
			t.Error(n)
		}
		mustFlush(t, x)
		mustClose(t, x)
		if len(dead.all()) != 2*maxLetters || x.Stats().LostDeadLetters != 0 {
			t.Errorf("%d letters, %d lost", len(dead.all()), x.Stats().LostDeadLetters)
		}
	})
}

// Shutdown waits until dead letters are written, but not beyond its deadline.
func TestShutdownWritesLetters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dead := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { time.Sleep(time.Second); return batch.Outcome{} }}
		x := mustNew(t, refusing(hasTicket(1, 2, 3)), &Options{DeadLetter: dead})
		for i := range 3 {
			var b batch.Batch
			b.Append([]byte("x\n"), uint64(i+1), batch.Meta{})
			if err := x.Send(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, x)
		if !slices.Equal(dead.all(), expect(3)) || x.Stats().LostDeadLetters != 0 {
			t.Errorf("letters %v", dead.all())
		}

		release := make(chan struct{})
		dead = &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { <-release; return batch.Outcome{} }}
		x = mustNew(t, refusing(hasTicket(1)), &Options{DeadLetter: dead})
		if err := x.Send(t.Context(), lines(1)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if r, err := shutdown(x, 2*time.Second); err == nil || r.Dropped[batch.Poison] != 1 || time.Since(began) > 2*time.Second+3*closeGrace {
			t.Errorf("%v after %s: %s", err, time.Since(began), r.Account)
		}
		close(release)
		time.Sleep(time.Minute)
	})
}

// ---- the handlers that write lines ----------------------------------------------

// oddCodec accepts records that are already JSON. The text of any other record determines how the
// codec fails.
type oddCodec struct{}

func (oddCodec) ContentType() string { return "application/x-odd" }

func (oddCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	switch s := string(rec); {
	case s == "panic":
		panic("cannot read this")
	case s == "nothing":
		return dst
	case s == "broken":
		return append(dst, `{"a":`...)
	case s == "number":
		return append(dst, `1`...)
	case s == "nan":
		return append(dst, `{"a":NaN}`...)
	case s == "pretty":
		return append(dst, "{\n  \"a\": 1\r\n}"...)
	case s == "shorter":
		return dst[:0]
	default:
		return append(dst, rec...)
	}
}

func (oddCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

func oddBatch(recs ...string) *batch.Batch {
	b := &batch.Batch{Codec: oddCodec{}}
	for i, r := range recs {
		b.Append([]byte(r), uint64(i+1), batch.Meta{Time: 1_000_000_001, Level: slog.LevelWarn, Stream: uint32(i)})
	}
	return b
}

// A record that the codec cannot convert does not affect other records.
func TestJSONLinesBadRecords(t *testing.T) {
	var out bytes.Buffer
	b := oddBatch(`{"ok":1}`, "panic", "nothing", "broken", "number", "nan", "pretty", "shorter", "\xff\xfe", `{"ok":2}`)
	if o := JSONLines(&out).HandleError(testkit.ErrDown, b); !o.Open.Empty() {
		t.Fatal(o)
	}
	want := `{"ok":1}
{"raw":"panic"}
{"raw":"nothing"}
{"raw":"broken"}
{"raw":"number"}
{"raw":"nan"}
{   "a": 1  }
{"raw":"shorter"}
{"raw_base64":"//4="}
{"ok":2}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Without a codec, records are written as text.
func TestJSONLinesPlain(t *testing.T) {
	var build batch.Batch
	build.Append([]byte("a \"line\"\n"), 1, batch.Meta{})
	build.Append([]byte("no newline"), 2, batch.Meta{})
	build.Append(nil, 3, batch.Meta{})
	var out bytes.Buffer
	if o := JSONLines(&out).HandleError(nil, &build); !o.Open.Empty() {
		t.Fatal(o)
	}
	if want := "{\"raw\":\"a \\\"line\\\"\"}\n{\"raw\":\"no newline\"}\n{\"raw\":\"\"}\n"; out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

// shortWriter writes n bytes and then fails, until err is set to nil.
type shortWriter struct {
	bytes.Buffer
	n   int
	err error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.err == nil {
		return w.Buffer.Write(p)
	}
	n := min(w.n, len(p))
	w.n -= n
	w.Buffer.Write(p[:n])
	if n == len(p) {
		return n, nil
	}
	return n, w.err
}

// If a writer fails within a line, the records of the complete lines are settled. The next call
// ends the partial line and writes its record again.
func TestJSONLinesWriterFails(t *testing.T) {
	line := len(`{"raw":"0000000000000000000xxxxxxxxxxxx"}`)
	for _, tt := range []struct{ n, whole int }{{0, 0}, {10, 0}, {line, 1}, {line + 1, 1}, {line + 2, 1}, {3*line + 3, 3}, {4*line + 3, 4}} {
		w := &shortWriter{n: tt.n, err: errors.New("disk full")}
		h := JSONLines(w)
		b := lines(5)
		o := h.HandleError(testkit.ErrDown, b)
		rest := o.Open.Append(nil, 5)
		if len(rest) != 5-tt.whole || len(rest) > 0 && o.Why != w.err {
			t.Errorf("after %d bytes: %+v: %d records left, want %d", tt.n, o, len(rest), 5-tt.whole)
		}
		w.err = nil
		if o := h.HandleError(testkit.ErrDown, b.Select(nil, rest)); !o.Open.Empty() {
			t.Fatal(o)
		}
		seen := map[string]int{}
		for l := range strings.Lines(w.String()) {
			if json.Valid([]byte(l)) && strings.TrimSpace(l) != "" {
				seen[l]++
			}
		}
		if len(seen) != 5 {
			t.Errorf("after %d bytes: %d different whole lines, want 5:\n%s", tt.n, len(seen), w.String())
		}
		for l, n := range seen {
			if n != 1 {
				t.Errorf("after %d bytes: %d times %s", tt.n, n, l)
			}
		}
	}
}

// If a writer panics or calls runtime.Goexit within a line, the next call ends the partial line.
func TestJSONLinesWriterPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		var out bytes.Buffer
		calls := 0
		h := JSONLines(writerFunc(func(p []byte) (int, error) {
			switch calls++; calls {
			case 1:
				return out.Write(p[:5])
			case 2:
				out.Write(p[:5])
				end()
			}
			return out.Write(p)
		}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			h.HandleError(nil, lines(1))
		}()
		<-ended
		if o := h.HandleError(nil, lines(1)); !o.Open.Empty() {
			t.Fatal(o)
		}
		if got := strings.Split(out.String(), "\n"); len(got) != 3 || len(got[0]) != 10 || !json.Valid([]byte(got[1])) {
			t.Errorf("after %s: %q, want a partial line of 10 bytes and a whole line", name, got)
		}
	}
}

// A writer that writes nothing causes an error. If a writer reports more bytes than it was given,
// all bytes count as written.
func TestJSONLinesOddWriters(t *testing.T) {
	for name, w := range map[string]io.Writer{
		"nothing":  writerFunc(func([]byte) (int, error) { return 0, nil }),
		"negative": writerFunc(func([]byte) (int, error) { return -1, nil }),
	} {
		if o := JSONLines(w).HandleError(nil, lines(1)); o.Open.Len(1) != 1 || o.Why == nil {
			t.Errorf("%s: no error", name)
		}
	}
	calls := 0
	w := writerFunc(func(p []byte) (int, error) { calls++; return len(p) + 1, nil })
	if o := JSONLines(w).HandleError(nil, lines(1)); !o.Open.Empty() || calls != 1 {
		t.Errorf("too much: %+v after %d calls", o, calls)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Large batches are written in chunks of whole lines.
func TestJSONLinesChunks(t *testing.T) {
	var writes, total int
	w := writerFunc(func(p []byte) (int, error) {
		writes++
		total += bytes.Count(p, []byte{'\n'})
		if p[len(p)-1] != '\n' || len(p) > lineChunk+1000 {
			t.Errorf("a write of %d bytes ends in %q", len(p), p[len(p)-1])
		}
		return len(p), nil
	})
	if o := JSONLines(w).HandleError(nil, new(testkit.Model).Batch(2000, 200, batch.Meta{})); !o.Open.Empty() || total != 2000 || writes < 6 {
		t.Errorf("%+v, %d lines in %d writes", o, total, writes)
	}
}

type statusError struct {
	status int
	text   string
}

func (e statusError) Error() string   { return e.text }
func (e statusError) HTTPStatus() int { return e.status }

// DeadLetters writes one JSON object per record, with the destination, the id, the reason, the status
// and the record.
func TestDeadLetters(t *testing.T) {
	var out bytes.Buffer
	cause := fmt.Errorf("refused: %w", statusError{400, `entry "too far" behind`})
	b := oddBatch(`{"a":1}`, "panic")
	b.Origin = [16]byte{1, 15: 255}
	if o := DeadLetters(&out, "loki").HandleError(cause, b); !o.Open.Empty() {
		t.Fatal(o)
	}
	var got []map[string]any
	for l := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if _, err := time.Parse(time.RFC3339Nano, m["time"].(string)); err != nil {
			t.Error(err)
		}
		delete(m, "time")
		got = append(got, m)
	}
	text, _ := json.Marshal(got)
	want := `[{"destination":"loki","id":"010000000000000000000000000000ff:1","level":"WARN","reason":"refused: entry \"too far\" behind","record":{"a":1},"record_time":"1970-01-01T00:00:01.000000001Z","status":400},` +
		`{"destination":"loki","id":"010000000000000000000000000000ff:2","level":"WARN","reason":"refused: entry \"too far\" behind","record":{"raw":"panic"},"record_time":"1970-01-01T00:00:01.000000001Z","status":400,"stream":1}]`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// A dead-letter file has mode 0600, gets a newline after a partial line, and accepts nothing after
// Close.
func TestDeadLetterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	if err := os.WriteFile(path, []byte(`{"torn":`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &appendFile{path: path}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	d := DeadLetters(f, "tcp")
	for range 2 {
		if o := d.HandleError(errors.New("no"), lines(1)); !o.Open.Empty() {
			t.Fatal(o)
		}
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if o := d.HandleError(testkit.ErrDown, lines(1)); o.Open.Len(1) != 1 || o.Why == nil {
		t.Error("no error after Close")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(all) != 3 || all[0] != `{"torn":` || !json.Valid([]byte(all[1])) || !json.Valid([]byte(all[2])) {
		t.Errorf("got %q", all)
	}

	fresh := filepath.Join(t.TempDir(), "dead.jsonl")
	f = &appendFile{path: fresh}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if st, err := os.Stat(fresh); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
	if err := (&appendFile{path: filepath.Join(fresh, "x")}).open(); err == nil {
		t.Error("no error for a path that cannot be")
	}
}

// If a killed process left a partial line in the fallback file, a newline is written first.
func TestFallbackFileEndsAPartialLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fallback.ndjson")
	if err := os.WriteFile(path, []byte(`{"torn":`), 0o600); err != nil {
		t.Fatal(err)
	}
	down := SendFunc(Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		return batch.FailedOutcome(batch.Fatal(errors.New("down")))
	})
	out := mustOutput(t, down, &OutputOptions{FallbackFile: path, OnError: quietEvents})
	if err := out.WriteRecord([]byte("x\n"), batch.Meta{}); err != nil {
		t.Fatal(err)
	}
	_ = out.Flush(t.Context())
	if rep, err := out.Shutdown(t.Context()); err != nil || rep.Handled != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if p, err := os.ReadFile(path); err != nil || string(p) != "{\"torn\":\n{\"raw\":\"x\"}\n" {
		t.Errorf("the file has %q, %v", p, err)
	}
}
