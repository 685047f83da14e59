package loki

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	ours "github.com/forebay-log/forebay/loki"
)

// A lossyTransport loses answers. Loki receives every request, but the client gets no answer to
// some of them.
type lossyTransport struct {
	mu   sync.Mutex
	rng  *rand.Rand
	odds int // one answer in odds is lost
	lost int
}

var errLost = errors.New("connection reset by peer")

func (l *lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(l.odds) > 0 {
		return res, nil
	}
	l.lost++
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return nil, errLost
}

// count returns the number of entries of the last six hours according to count_over_time.
func (s *server) count(tenant, selector string) int {
	s.t.Helper()
	last := ""
	for range 60 {
		v := url.Values{"query": {"sum(count_over_time(" + selector + "[6h]))"}, "time": {strconv.FormatInt(time.Now().Add(time.Minute).UnixNano(), 10)}}
		req, _ := http.NewRequest("GET", s.url+"/loki/api/v1/query?"+v.Encode(), nil)
		if tenant != "" {
			req.Header.Set("X-Scope-OrgID", tenant)
		}
		res, err := client.Do(req)
		if err == nil {
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			var r struct {
				Data struct {
					Result []struct{ Value [2]any }
				}
			}
			if res.StatusCode == 200 && json.Unmarshal(text, &r) == nil {
				if len(r.Data.Result) == 0 {
					return 0
				}
				n, _ := strconv.Atoi(fmt.Sprint(r.Data.Result[0].Value[1]))
				return n
			}
			last = string(text)
		}
		time.Sleep(250 * time.Millisecond)
	}
	s.t.Fatalf("count %s: %s", selector, last)
	return 0
}

// If answers are lost, batches are pushed again, and no entry is missing. Entries may be stored
// twice, because Loki does not detect all duplicates.
func TestLostAnswers(t *testing.T) {
	const total = 4000
	s := start(t)
	text := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		name string
		set  func(c *ours.Config)
		odds int
	}{
		{"batches", func(*ours.Config) {}, 2},
		{"small", func(c *ours.Config) { c.BatchBytes = 64 << 10 }, 5},
	} {
		l := &lossyTransport{rng: rand.New(rand.NewPCG(1, 2)), odds: tt.odds}
		c := ours.Config{
			URL:         s.url,
			Labels:      labels("test", "lost "+tt.name),
			UniqueTimes: true,
			BatchAge:    100 * time.Millisecond,
			HTTP:        httpclient.Options{Client: &http.Client{Transport: l}},
		}
		tt.set(&c)
		h, err := newHandler(c, forebay.WhenFull("block"), quiet,
			retries(&deliver.RetryOptions{Min: time.Millisecond, Max: 10 * time.Millisecond}, &deliver.BreakerOptions{OpenMin: time.Millisecond, OpenMax: 10 * time.Millisecond}))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		log := slog.New(h)
		for i := range total {
			log.Info("record", "i", i, "text", text)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		rep, err := h.Close(ctx)
		cancel()
		if err != nil || rep.Delivered != total {
			t.Errorf("%s: %v, %v", tt.name, rep, err)
		}
		n := s.count("", fmt.Sprintf(`{test="lost %s"}`, tt.name))
		t.Logf("%s: %d records, %d answers lost, count_over_time returns %d; %d requests in %v", tt.name, total, l.lost, n, h.Driver.Stats().Requests, time.Since(began).Round(time.Millisecond))
		if n < total || l.lost == 0 {
			t.Errorf("%s: count_over_time returns %d, want at least %d; %d answers were lost", tt.name, n, total, l.lost)
		}
	}
}

// Entries that are too old, or too far behind the newest entry of their stream, are refused or get
// the current time, depending on Limits.TooOld.
func TestBacklog(t *testing.T) {
	s := start(t)
	now := time.Now()
	for _, choice := range []string{"dead-letter", "now"} {
		driver := s.driver(ours.Config{Labels: labels("test", "backlog "+choice), Limits: ours.Limits{TooOld: choice}})
		first := &records{t: t, s: driver}
		first.add(now, 0, "newest")
		if o := first.send(); o != nil {
			t.Fatal(o)
		}
		r := &records{t: t, s: driver}
		for i := range 200 {
			r.add(now.Add(-3*time.Hour+time.Duration(i)*time.Second), 0, fmt.Sprint("old ", i))
		}
		r.add(now.Add(-8*24*time.Hour), 0, "very old")
		for i := range 100 {
			r.add(now.Add(time.Duration(i)), 0, fmt.Sprint("new ", i))
		}
		o := r.send()
		want, refused := 101, 201
		if choice == "now" {
			want, refused = 302, 0
		}
		got := 0
		if o != nil {
			got = len(o.refused)
		}
		if got != refused {
			t.Errorf("%s: %d refused, %+v", choice, got, o)
		}
		sel := fmt.Sprintf(`{test="backlog %s"}`, choice)
		found := s.await("", sel, now.Add(-10*24*time.Hour), want)
		stamped := 0
		for _, e := range found {
			if at := e.labels["original_time"]; at != "" {
				stamped++
				if original, err := time.Parse(time.RFC3339Nano, at); err != nil || now.Sub(original) < 2*time.Hour || now.Sub(e.at) > time.Hour {
					t.Errorf("%+v", e)
				}
			}
		}
		if stamped != want-101 || s.count("", sel) != want {
			t.Errorf("%s: %d entries have their original time as metadata, count_over_time returns %d", choice, stamped, s.count("", sel))
		}
	}
}

// After Loki has reported its rate limit, the driver stays below it, and Loki refuses hardly any
// push. If Loki allows no further stream, an existing stream is used for entries of a new level.
func TestRateLimitIsFollowed(t *testing.T) {
	s := start(t, [2]string{`auth_enabled: false`, "auth_enabled: true"},
		[2]string{`limits_config:`, "limits_config:\n  per_tenant_override_config: overrides.yaml"}, [2]string{"file:overrides.yaml", `overrides:
  slow: {ingestion_rate_mb: 0.1, ingestion_burst_size_mb: 0.2}
  one: {max_global_streams_per_user: 1}
`})
	began := time.Now()
	open := func(c ours.Config) *handler {
		c.URL = s.url
		h, err := newHandler(c, forebay.WhenFull("block"), quiet, retries(&deliver.RetryOptions{Min: 100 * time.Millisecond, Max: time.Second}, nil))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open(ours.Config{Tenant: "slow", Labels: labels("test", "paced"), BatchBytes: 64 << 10, BatchAge: 200 * time.Millisecond})
	const total = 2000
	for i := range total {
		slog.New(h).Info(strings.Repeat("x", 1000), "i", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	st := h.Driver.Stats()
	took := time.Since(began)
	t.Logf("%d records of 1 kB at 100 kB/s in %v: %d requests, %d failed, %d delayed", total, took.Round(time.Millisecond), st.Requests, st.Failed, st.Paced)
	if err != nil || rep.Delivered != total || st.Failed > 5 || st.Paced == 0 || took > 45*time.Second {
		t.Errorf("%v, %v: %+v in %v", rep, err, st, took)
	}
	if n := s.count("slow", `{test="paced"}`); n != total {
		t.Errorf("count_over_time returns %d", n)
	}

	h = open(ours.Config{Tenant: "one", Labels: labels("test", "one"), BatchAge: 100 * time.Millisecond})
	log := slog.New(h)
	log.Info("first")
	if err := h.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	log.Error("no stream")
	for i := range 100 {
		log.Info("more", "i", i)
	}
	if rep, err := h.Close(ctx); err != nil || rep.Delivered != 102 {
		t.Errorf("%v, %v", rep, err)
	}
	found := s.await("one", `{test="one"}`, began.Add(-time.Minute), 102)
	n := 0
	for _, e := range found {
		if strings.Contains(e.line, "no stream") {
			n++
			t.Logf("the record of another level is %+v", e)
		}
	}
	if n != 1 {
		t.Errorf("got %d records of the level without a stream, want 1", n)
	}
}

// While Loki is down, records that are larger than a slab wait in memory and then in the spool.
// They arrive in the next run, even if it uses another Wire format.
func TestSpoolOfAnotherWire(t *testing.T) {
	const total = 45
	s := start(t)
	c := ours.Config{URL: s.url, Labels: labels("test", "spool"), Wire: "json", BatchAge: 100 * time.Millisecond}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, wire := range []string{"json", "protobuf"} {
		if wire == "json" {
			s.kill()
		} else {
			s.up()
		}
		c.Wire = wire
		h, err := newHandler(c, forebay.Spool(dir), forebay.WhenFull("drop-newest"), quiet, forebay.Delivery(func(o *deliver.OutputOptions) {
			o.BufferBytes, o.Slab.SlabBytes = 8<<20, 64<<10
			o.Deliver.Retry = &deliver.RetryOptions{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
		}))
		if err != nil {
			t.Fatal(err)
		}
		within := ctx
		if wire == "json" {
			for i := range total {
				slog.New(h).Info(strings.Repeat("x", 100_000), "i", i)
			}
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			within = short
		} else if err := h.Flush(ctx); err != nil {
			t.Error(err)
		}
		rep, err := h.Close(within)
		if rep.Dropped.Total() > 0 || wire == "protobuf" && err != nil {
			t.Errorf("%s: %v, %v", wire, rep, err)
		}
		t.Logf("%s: %v, %v", wire, rep, err)
	}
	if n := s.count("", `{test="spool"}`); n != total {
		t.Errorf("count_over_time returns %d, want %d", n, total)
	}
}
