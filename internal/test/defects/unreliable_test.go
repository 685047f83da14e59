package defects_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

var errReset = errors.New("connection reset by peer")

// A failure is one way in which Loki mishandles a push. Loki may store the lines or not, and may
// answer or not.
type failure struct {
	name string
	act  func(ctx context.Context, store func()) (reply, error)
}

var failures = []failure{
	{"well", func(_ context.Context, store func()) (reply, error) { store(); return stored, nil }},
	{"busy", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusTooManyRequests, text: "ingestion rate limit exceeded for user fake (limit: 20000 bytes/sec) while attempting to ingest '1' lines totaling '100' bytes, reduce log volume"}, nil
	}},
	{"broken", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusInternalServerError, text: "rpc error: code = Unavailable desc = the ingester is not ready"}, nil
	}},
	{"gateway", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusBadGateway, text: "<html>bad gateway</html>"}, nil
	}},
	{"gone", func(context.Context, func()) (reply, error) { return reply{}, errDown }},
	{"resets", func(context.Context, func()) (reply, error) { return reply{}, errReset }},
	{"resets after storing", func(_ context.Context, store func()) (reply, error) { store(); return reply{}, errReset }},
	{"cut", func(_ context.Context, store func()) (reply, error) {
		store()
		return reply{status: http.StatusBadRequest, text: "entry for stream '{a=", cut: true}, nil
	}},
	{"hangs", func(ctx context.Context, _ func()) (reply, error) { <-ctx.Done(); return reply{}, ctx.Err() }},
	{"slow", func(ctx context.Context, store func()) (reply, error) {
		select {
		case <-time.After(time.Second):
			store()
			return stored, nil
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}},
	{"login page", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusOK, text: "<html>please log in</html>"}, nil
	}},
	{"unknown words", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusBadRequest, text: "the request did not pass"}, nil
	}},
	{"forbidden", func(context.Context, func()) (reply, error) { return reply{status: http.StatusForbidden}, nil }},
	{"too large", func(context.Context, func()) (reply, error) {
		return reply{status: http.StatusRequestEntityTooLarge, text: "request body too large"}, nil
	}},
}

// logToUnreliable logs for the given time to a Loki that fails for a random part of the pushes. The
// kind of failure changes every few seconds. Finally Loki works, and all lines must have arrived,
// with first copies in order.
func logToUnreliable(tb testing.TB, seed uint64, long time.Duration) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	now, odds, until := failures[0], 0, time.Time{}
	start := time.Now()
	b := new(received)
	s, log := lokiSink(tb, &lokiServer{func(ctx context.Context, body string) (reply, error) {
		mu.Lock()
		if time.Since(start) > long {
			now, odds = failures[0], 0
		} else if time.Now().After(until) {
			now, odds = failures[random.IntN(len(failures))], 1+random.IntN(10)
			until = time.Now().Add(time.Duration(random.IntN(20_000)) * time.Millisecond)
		}
		act := failures[0].act
		if random.IntN(10) < odds {
			act = now.act
		}
		mu.Unlock()
		return act(ctx, func() { b.add(lines(body)...) })
	}}, func(c *lokiOutput) {
		c.BatchBytes, c.HTTP.Timeout, c.Deliver.Retry = 16<<10, 3*time.Second, nil
		c.Wire = []string{"protobuf", "json"}[random.IntN(2)]
	})
	n := 0
	pauses := rand.New(rand.NewPCG(seed, 2))
	for time.Since(start) < long {
		for range 1 + pauses.IntN(20) {
			n++
			log.Info(line(n))
		}
		time.Sleep(time.Duration(pauses.IntN(400)) * time.Millisecond)
	}
	a := settled(s, time.Hour)
	firsts := b.firstCopies()
	if a.Delivered != uint64(n) || a.Dropped.Total() > 0 || len(firsts) != n {
		tb.Errorf("seed %d: %d of %d good lines arrived: %s", seed, len(firsts), n, a)
	}
	for i, got := range firsts {
		if got != i+1 {
			tb.Errorf("seed %d: first copy %d is line %d", seed, i+1, got)
			break
		}
	}
	tb.Logf("seed %d: %d lines, %d copies more, %+v", seed, n, b.copies()-n, s.Driver.Stats())
	closeSoon(s.Shutdown)
}

// If Loki fails in changing ways, no line is lost, and first copies arrive in order.
// FOREBAY_TORTURE runs more seeds. Each takes ten minutes of the bubble's clock.
func TestUnreliableLokiLosesNothing(t *testing.T) {
	for seed := range testkit.Walks(t, 2) {
		bubble.Test(t, func(t *testing.T) { logToUnreliable(t, seed, 10*time.Minute) })
	}
}
