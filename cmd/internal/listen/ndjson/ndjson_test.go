package ndjson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/bubble"
)

func TestRecordsBecomeJSONLines(t *testing.T) {
	var out bytes.Buffer
	s := New(&out, nil)
	for _, r := range []listen.Record{
		{Source: "forward", Tag: "a\"b", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), Body: []byte(`{"k":1}`), JSON: true},
		{Source: "loki", Tenant: "t", Labels: []listen.Label{{Name: "app", Value: "x"}, {Name: "b", Value: "\n"}},
			Metadata: []listen.Label{{Name: "trace", Value: "1"}}, Body: []byte("a \"line\"\xff")},
		{Source: "syslog", Level: slog.LevelWarn, HasLevel: true},
		{Source: "syslog", Level: slog.LevelError + 4, HasLevel: true},
	} {
		if err := s.Put(context.Background(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() > 0 {
		t.Error("records were written before Commit")
	}
	if err := s.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := `{"source":"forward","tag":"a\"b","time":"2026-01-02T02:04:05.000000006Z","body":{"k":1}}
{"source":"loki","tenant":"t","labels":{"app":"x","b":"\n"},"metadata":{"trace":"1"},"body":"a \"line\"�"}
{"source":"syslog","level":"warn","body":""}
{"source":"syslog","level":"fatal","body":""}
`
	if got := strings.ReplaceAll(out.String(), `\ufffd`, "�"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is not JSON", line)
		}
	}
}

// If Commit is not called, records are written when the buffer is full. The callback written
// receives the total number of records written.
func TestManyRecordsShareWrites(t *testing.T) {
	var out bytes.Buffer
	writes, reported := 0, uint64(0)
	s := New(writer(func(p []byte) (int, error) {
		writes++
		return out.Write(p)
	}), func(n uint64, err error) { reported = n })
	r := listen.Record{Source: "x", Body: bytes.Repeat([]byte("a"), 1000)}
	for range 1000 {
		s.Put(context.Background(), &r)
	}
	if lines := uint64(bytes.Count(out.Bytes(), []byte("\n"))); writes != 4 && writes != 3 || reported != lines || lines < 700 {
		t.Errorf("%d lines in %d writes, but %d records are reported", lines, writes, reported)
	}
	r.Body = bytes.Repeat([]byte("b"), 3<<20)
	s.Put(context.Background(), &r)
	s.Commit(context.Background())
	if reported != 1001 || cap(s.buf) > 8*bufferBytes {
		t.Errorf("%d records are reported, want 1001; the buffer has %d bytes", reported, cap(s.buf))
	}
	before := writes
	s.Commit(context.Background())
	if writes != before {
		t.Error("a Commit without new records has called Write")
	}
}

// A writer is a function used as an io.Writer.
type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// After a failed write nothing more is written, because the file may end in an incomplete line.
func TestNothingIsWrittenAfterFailure(t *testing.T) {
	for _, short := range []bool{false, true} {
		calls := 0
		var reported error
		s := New(writer(func(p []byte) (int, error) {
			calls++
			if short {
				return 1, nil
			}
			return 1, errors.New("disk full")
		}), func(_ uint64, err error) { reported = err })
		r := listen.Record{Source: "x"}
		s.Put(context.Background(), &r)
		err := s.Commit(context.Background())
		if err == nil || err != reported || short != errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Commit returned %v, but %v is reported", err, reported)
		}
		if s.Put(context.Background(), &r) != err || s.Commit(context.Background()) != err || calls != 1 {
			t.Errorf("after the failure, Put or Commit did not return it, or %d writes were made, want 1", calls)
		}
	}
}

// Records that are added during a write are written together by the next write. A Commit that waits
// for the write of another goroutine returns when its context is done.
func TestCommitsShareAWrite(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var lines atomic.Int64
		writes := 0
		s := New(writer(func(p []byte) (int, error) {
			writes++
			time.Sleep(time.Second) // simulates a slow sync
			lines.Add(int64(bytes.Count(p, []byte{'\n'})))
			return len(p), nil
		}), nil)
		short, cancel := context.WithTimeout(t.Context(), time.Second/2) // ends during the first write, which goroutine 0 makes
		defer cancel()
		start := time.Now()
		for i := range 20 {
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				r := listen.Record{Source: "x", Body: []byte("a")}
				if err := s.Put(t.Context(), &r); err != nil {
					t.Error(err)
				}
				before := lines.Load()
				if i == 10 {
					if err := s.Commit(short); err != context.DeadlineExceeded || time.Since(start) != time.Second/2 {
						t.Errorf("%v after %v", err, time.Since(start))
					}
					return
				}
				if err := s.Commit(t.Context()); err != nil || lines.Load() <= before {
					t.Errorf("Commit of goroutine %d: %v, with %d lines written", i, err, lines.Load())
				}
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if writes != 2 || lines.Load() != 20 {
			t.Errorf("%d lines in %d writes, want 20 in 2", lines.Load(), writes)
		}
	})
}

// If the buffer is full and a write is in progress, Put waits, and the buffer does not grow.
func TestFullBufferWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(writer(func(p []byte) (int, error) {
			time.Sleep(time.Second)
			return len(p), nil
		}), nil)
		go s.Commit(t.Context())
		r := listen.Record{Source: "x", Body: bytes.Repeat([]byte("a"), 1000)}
		s.Put(t.Context(), &r)
		go s.Commit(t.Context())
		synctest.Wait()
		start := time.Now()
		for range 300 {
			if err := s.Put(t.Context(), &r); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d < time.Second {
			t.Errorf("300 KB were accepted in %v, before the write ended", d)
		}
		if n := cap(s.buf) + cap(s.spare); n > 4*bufferBytes {
			t.Errorf("the buffers have %d bytes, want at most %d", n, 4*bufferBytes)
		}
		s.Commit(t.Context())
	})
}
