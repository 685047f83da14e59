package loki

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

func quiet(batch.Event) {}

func handlerFor(t testing.TB, p http.RoundTripper, c Config) *Handler {
	t.Helper()
	c.URL, c.Client = "http://loki.test", &http.Client{Transport: p}
	if c.OnError == nil {
		c.OnError = quiet
	}
	h, err := NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		h := handlerFor(t, p, Config{})
		log := slog.New(h)
		log.Debug("not this")
		log.Info("one", "a", 1)
		log.With("b", 2).WithGroup("g").Info("two", "c", 3)
		if err := h.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := p.lines(); len(got) != 2 || got[1] != `{"Message":"two","b":2,"g":{"c":3}}` {
			t.Errorf("got %v", got)
		}
		// Without Flush, a batch waits BatchAge.
		log.Info("three")
		start := time.Now()
		for len(p.lines()) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(start); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("sent after %v, want 1 s", d)
		}
		log.Info("four")
		rep, err := h.Close(context.Background())
		if err != nil || rep.Delivered != 4 || rep.Check() != nil {
			t.Errorf("%v %v", rep, err)
		}
		if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != 4 {
			t.Errorf("again: %v %v", rep, err)
		}
	})
}

// TestOutage: through failures of every kind nothing is lost, and what is refused
// is in the dead letters.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		p := &peer{}
		p.answer = func(_ int, r *request) (int, string, http.Header) {
			for _, e := range r.streams[0].Entries {
				if strings.Contains(e.Line, "poison") {
					return 400, "it hurts", nil
				}
			}
			switch k := n.Add(1); {
			case k < 20 && k%4 == 0:
				return 0, "reset", nil
			case k < 20 && k%4 == 1:
				return 503, "", nil
			case k < 20 && k%4 == 2:
				return 401, "", nil
			}
			return 204, "", nil
		}
		var dead bytes.Buffer
		h := handlerFor(t, p, Config{DeadLetter: deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) error {
			for _, r := range b.All() {
				dead.Write(b.Codec.AppendJSON(nil, r.Data, r.Meta))
			}
			return nil
		})})
		log := slog.New(h)
		for i := range 1000 {
			if i == 500 {
				log.Error("poison")
			}
			log.Log(context.Background(), slog.Level(i%3*4), fmt.Sprint(i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := h.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		rep, _ := h.Close(ctx)
		if rep.Delivered != 1000 || rep.Dropped[batch.Poison] != 1 || rep.Check() != nil {
			t.Errorf("%v", rep)
		}
		if !strings.Contains(dead.String(), `"Message":"poison"`) {
			t.Errorf("dead letters: %s", dead.String())
		}
		seen := map[string]bool{}
		for _, l := range p.lines() {
			seen[l] = true
		}
		if len(seen) != 1001 {
			t.Errorf("%d different lines came", len(seen))
		}
	})
}

// TestCloseIsBounded: a Loki that does not answer costs Close no more than its
// deadline, and what was not delivered is told.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handlerFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), Config{WhenFull: "drop-newest"})
		for range 10 {
			slog.New(h).Info("x")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		start := time.Now()
		rep, err := h.Close(ctx)
		if d := time.Since(start); d > 5*time.Second || err == nil || rep.Undelivered() != 10 {
			t.Errorf("after %v: %v %v", d, rep, err)
		}
	})
}

func TestDryRun(t *testing.T) {
	s := sinkFor(t, new(peer), Config{Tenant: "t"})
	var out bytes.Buffer
	e := &encoded{t: t, s: s}
	e.add(nil, event(time.Now(), 0, "hi"))
	if err := DryRun(&out, s).Send(context.Background(), e.Batch(s.Codec())); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "POST http://loki.test:3100/loki/api/v1/push tenant=t {app=\"test\", level=\"info\"}: 1 entries,") || !strings.Contains(got, `"line":{"Message":"hi"}`) {
		t.Error(got)
	}
}
