package defects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

// cutAnswer pushes 30 lines. Loki stores 24 of them, and refuses three as too old and three as too
// new. The connection is lost a few bytes after the first reason.
func cutAnswer(tb testing.TB) { incompleteAnswers(tb, reply{cut: true}) }

// unsizedAnswer is like cutAnswer, but the answer has no length, so the lost connection looks like
// its end.
func unsizedAnswer(tb testing.TB) { incompleteAnswers(tb, reply{closed: true}) }

func incompleteAnswers(tb testing.TB, how reply) {
	for _, more := range []int{0, 1, 2, 5} {
		b := new(received)
		var pushes atomic.Int64
		now := time.Now()
		second := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
		s, log := lokiSink(tb, &lokiServer{func(_ context.Context, body string) (reply, error) {
			var reasons []string
			old, fresh := 0, 0
			for _, n := range lines(body) {
				switch {
				case n <= 3:
					old++
				case n <= 6:
					fresh++
				default:
					b.add(n)
				}
			}
			if old > 0 {
				reasons = append(reasons, fmt.Sprintf(`%d errors like: entry for stream '{app="defects", level="info"}' has timestamp too old: %s, oldest acceptable timestamp is: %s`,
					old, second(-8*24*time.Hour), second(-7*24*time.Hour)))
			}
			if fresh > 0 {
				reasons = append(reasons, fmt.Sprintf(`%d errors like: entry for stream '{app="defects", level="info"}' has timestamp too new: %s`,
					fresh, second(time.Hour)))
			}
			switch text := strings.Join(reasons, "; "); {
			case len(reasons) == 0:
				return stored, nil
			case pushes.Add(1) == 1:
				how.status, how.text = http.StatusBadRequest, text[:len(reasons[0])+more]
				return how, nil
			default:
				return reply{status: http.StatusBadRequest, text: text}, nil
			}
		}}, func(c *lokiOutput) { c.Limits.MaxAge, c.Limits.MaxFuture = -1, -1 })
		for n := 1; n <= 30; n++ {
			at := now
			if n <= 3 {
				at = now.Add(-8 * 24 * time.Hour)
			} else if n <= 6 {
				at = now.Add(time.Hour)
			}
			if err := log.Handler().Handle(context.Background(), slog.NewRecord(at, slog.LevelInfo, line(n), 0)); err != nil {
				tb.Fatalf("cannot run the test: %v", err)
			}
		}
		a := settled(s, time.Minute)
		if got := len(b.firstCopies()); got != 24 || pushes.Load() == 0 {
			tb.Fatalf("cannot run the test: Loki stored %d lines: %s", got, a)
		}
		if a.Delivered != 24 || a.Dropped[batch.Poison] != 6 {
			tb.Errorf("an answer was cut %d bytes after a reason: Loki stored 24 lines of 30, the account is %s", more, a)
		}
	}
}

// longRefusal pushes 4000 good lines and 1000 lines that are too old. Each old line has a different
// second, so the text of the 400 answer is long. No stored line may be sent again.
func longRefusal(tb testing.TB) {
	b := new(received)
	now := time.Now()
	longest := 0
	s, log := lokiSink(tb, &lokiServer{func(_ context.Context, body string) (reply, error) {
		var reasons []string
		for _, n := range lines(body) {
			if n <= 1000 {
				reasons = append(reasons, fmt.Sprintf(`1 errors like: entry for stream '{app="defects", level="info"}' has timestamp too old: %s, oldest acceptable timestamp is: %s`,
					now.Add(-8*24*time.Hour-time.Duration(n)*time.Second).UTC().Format(time.RFC3339), now.Add(-7*24*time.Hour).UTC().Format(time.RFC3339)))
				continue
			}
			b.add(n)
		}
		if len(reasons) == 0 {
			return stored, nil
		}
		text := strings.Join(reasons, "; ")
		longest = max(longest, len(text))
		return reply{status: http.StatusBadRequest, text: text}, nil
	}}, func(c *lokiOutput) { c.Limits.MaxAge = -1 })
	for n := 1; n <= 5000; n++ {
		at := now.Add(time.Duration(n))
		if n <= 1000 {
			at = now.Add(-8*24*time.Hour - time.Duration(n)*time.Second)
		}
		if err := log.Handler().Handle(context.Background(), slog.NewRecord(at, slog.LevelInfo, line(n), 0)); err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
	}
	a := settled(s, time.Minute)
	if longest < 100<<10 {
		tb.Fatalf("cannot run the test: the longest answer has %d bytes", longest)
	}
	if n := b.copies(); n != 4000 || a.Delivered != 4000 || a.Dropped[batch.Poison] != 1000 {
		tb.Errorf("4000 lines of 5000 are good, Loki got %d of them, copies included: %s", n, a)
	}
}

// bufferBytes logs 45 lines of 100 kB while Loki is down. Each line is larger than a slab, but all
// of them fit into the buffer.
func bufferBytes(tb testing.TB) {
	s, log := lokiSink(tb, lokiDown, func(c *lokiOutput) {
		c.BufferBytes, c.Slab.SlabBytes, c.Slab.WhenFull = 8<<20, 64<<10, slab.DropNewest()
	})
	for n := 1; n <= 45; n++ {
		log.Info(line(n) + strings.Repeat("x", 100_000))
	}
	if a := s.Account(); a.Dropped.Total() > 0 || a.Pending.Total() != 45 {
		tb.Errorf("45 lines of 100 kB are less than the buffer of 8 MiB: %s", a)
	}
}

// unreliableLoki runs logToUnreliable with two seeds.
func unreliableLoki(tb testing.TB) {
	for seed := uint64(1); seed <= 2; seed++ {
		logToUnreliable(tb, seed, 10*time.Minute)
	}
}

// refusedStream logs lines of two streams to a server that has no room for the second stream. It
// answers 429 to each push that contains a line of this stream. The lines of the first stream must
// still arrive in time.
func refusedStream(tb testing.TB) {
	b := new(received)
	var refused atomic.Int64
	s, log := lokiSink(tb, &lokiServer{func(_ context.Context, body string) (reply, error) {
		if !strings.Contains(body, `region="old"`) {
			refused.Add(1)
			return reply{status: http.StatusTooManyRequests, text: "maximum active stream limit exceeded when trying to create stream {}, reduce the number of active streams"}, nil
		}
		b.add(lines(body)...)
		return stored, nil
	}}, func(c *lokiOutput) { c.LabelAttrs = []string{"region"} })
	write(log, 1, 1, "region", "old")
	if a := settled(s, time.Minute); a.Delivered != 1 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	write(log, 2, 2, "region", "new")
	if !await(time.Minute, func() bool { return refused.Load() > 0 }) {
		tb.Fatalf("cannot run the test: the new stream was not pushed")
	}
	write(log, 3, 102, "region", "old")
	if !await(time.Minute, func() bool { return len(b.firstCopies()) == 101 }) {
		tb.Errorf("a refused stream delays the others: %d of 101 lines arrived within a minute: %s", len(b.firstCopies()), s.Account())
	}
}

// deadLetters logs records that are refused before they are sent: a line that is too long for Loki,
// one that is too long for a slab, and one with an invalid tenant.
func deadLetters(tb testing.TB) {
	var mu sync.Mutex
	letters := 0
	h := lokiHandler(tb, storing(new(received)), func(c *lokiOutput) {
		c.Limits.LongLines, c.Limits.MaxLine, c.TenantAttr, c.Tenant = "refuse", 200, "tenant", "us"
		c.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			mu.Lock()
			defer mu.Unlock()
			letters += b.Len()
			return batch.Outcome{}
		})
	})
	log := slog.New(h)
	log.Info(line(1) + strings.Repeat("x", 300))
	log.Info(line(2), "tenant", "no|body")
	log.Info(line(3) + strings.Repeat("x", 2<<20))
	log.Info(line(4))
	if err := h.Flush(context.Background()); err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	rep, _ := h.Close(context.Background())
	mu.Lock()
	defer mu.Unlock()
	if letters != 3 {
		tb.Errorf("3 records were refused, %d reached the dead letters: %s", letters, rep.Account)
	}
}

// redaction logs a password in the line, in a label and in metadata.
func redaction(tb testing.TB) {
	var mu sync.Mutex
	var bodies []string
	h := lokiHandler(tb, &lokiServer{func(_ context.Context, body string) (reply, error) {
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, body)
		return stored, nil
	}}, func(c *lokiOutput) {
		c.LabelAttrs, c.MetadataAll = []string{"user.password"}, true
	}, forebay.RedactKeys("password"))
	log := slog.New(h)
	log.Info(line(1), slog.Group("user", "password", "hunter2"))
	log.With("password", "hunter2").WithGroup("user").Info(line(2), "password", "hunter2", "n", 1)
	if err := h.Flush(context.Background()); err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(bodies, "\n")
	if !strings.Contains(all, line(2)) || !strings.Contains(all, "[redacted]") {
		tb.Fatalf("cannot run the test: Loki got %q", all)
	}
	if strings.Contains(all, "hunter2") {
		tb.Errorf("Loki got %q", all)
	}
}

// A brokenEncoder fails for every record.
type brokenEncoder struct{ encode.Encoder }

func (b brokenEncoder) Scope() encode.Scope { return brokenScope{b.Encoder.Scope()} }

type brokenScope struct{ encode.Scope }

var errBroken = errors.New("cannot render this")

func (brokenScope) Append([]byte, *encode.Record) ([]byte, batch.Meta, error) {
	return nil, batch.Meta{}, errBroken
}

// routerEvents logs a record that cannot be encoded.
func routerEvents(tb testing.TB) {
	var reported atomic.Int64
	h := lokiHandler(tb, storing(new(received)), func(c *lokiOutput) {
		c.Line.Formatter = brokenEncoder{encode.JSON(nil)}
		c.OnError = func(batch.Event) { reported.Add(1) }
	})
	slog.New(h).Info(line(1))
	if !await(time.Minute, func() bool { return reported.Load() > 0 }) {
		tb.Errorf("OnError received no event about a record that could not be encoded")
	}
}

// markerLevel makes the output drop records, and checks the stream of the gap marker, the record
// that reports the drops.
func markerLevel(tb testing.TB) {
	var mu sync.Mutex
	var markers []string
	release := make(chan struct{})
	s, log := lokiSink(tb, &lokiServer{func(ctx context.Context, body string) (reply, error) {
		select {
		case <-release:
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
		if strings.Contains(body, "records dropped") {
			mu.Lock()
			defer mu.Unlock()
			markers = append(markers, body)
		}
		return stored, nil
	}}, func(c *lokiOutput) {
		c.Slab.WhenFull, c.BatchBytes, c.Slab.SlabBytes, c.BufferBytes, c.HTTP.Timeout = slab.DropNewest(), 512, 1024, 4096, time.Hour
	})
	for n := 1; s.Account().Dropped.Total() == 0; n++ {
		write(log, n, n)
		time.Sleep(time.Millisecond)
	}
	close(release)
	settled(s, time.Minute)
	for n := 1; n <= 100; n++ { // a marker is sent before a record
		write(log, n, n)
		time.Sleep(100 * time.Millisecond)
	}
	if a := settled(s, time.Minute); a.Pending.Total() > 0 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(markers) == 0 {
		tb.Fatalf("cannot run the test: records were dropped, and no marker was sent")
	}
	for _, m := range markers {
		if !strings.Contains(m, `level="warn"`) {
			tb.Errorf("dropped records are reported in the stream %.60q", m)
		}
	}
}

// unansweredLoki logs 1000 lines. Loki stores them and does not answer. Then the output is closed.
func unansweredLoki(tb testing.TB) (batch.Report, error) {
	tb.Helper()
	b := new(received)
	s, log := lokiSink(tb, &lokiServer{func(ctx context.Context, body string) (reply, error) {
		b.add(lines(body)...)
		<-ctx.Done()
		return reply{}, ctx.Err()
	}}, func(c *lokiOutput) { c.HTTP.Timeout = time.Hour })
	write(log, 1, 1000)
	if !await(time.Minute, func() bool { return b.copies() == 1000 }) {
		tb.Fatalf("cannot run the test: %d of 1000 lines arrived", b.copies())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return s.Shutdown(ctx)
}

func unknownLoki(tb testing.TB) {
	rep, _ := unansweredLoki(tb)
	checkUnknown(tb, rep)
}

func deadlineLoki(tb testing.TB) {
	_, err := unansweredLoki(tb)
	checkDeadline(tb, err)
}
