package loki

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	ours "github.com/forebay-log/forebay/loki"
)

// A sick stands in front of a Loki that takes only some pushes: the connection is reset
// before the push is there, or after Loki has stored it. While it is every it lets each fourth
// push through.
type sick struct {
	mu    sync.Mutex
	dice  *rand.Rand
	state state
	n     int
	reset int
}

type state int

const (
	well state = iota
	every
	resets
)

func (s *sick) be(to state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to
}

// take says what becomes of the next push: whether Loki gets it, and whether its answer is lost.
func (s *sick) take() (reaches, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	reaches = true
	switch s.state {
	case every:
		reaches = s.n%4 == 0
	case resets: // most do not get there, of the others one in ten has no answer
		reaches, lost = s.dice.IntN(5) == 0, s.dice.IntN(10) == 0
	}
	if !reaches || lost {
		s.reset++
	}
	return reaches, lost
}

func (s *sick) RoundTrip(r *http.Request) (*http.Response, error) {
	reaches, lost := s.take()
	if !reaches {
		r.Body.Close()
		return nil, errLost
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && lost {
		res.Body.Close()
		return nil, errLost
	}
	return res, err
}

// TestSick: Loki is ill for most of a minute, and killed meanwhile: it takes each fourth push
// only, then one in five. Nothing is dead-lettered but the record that Loki refuses, and all
// others are found.
func TestSick(t *testing.T) {
	phase := 20 * time.Second
	if os.Getenv("FOREBAY_TORTURE") != "" {
		phase = 5 * time.Minute
	}
	s := start(t)
	front := &sick{dice: rand.New(rand.NewPCG(1, 2))}
	var mu sync.Mutex
	var letters []string
	h, err := newHandler(ours.Config{
		URL:          s.url,
		Labels:       labels("test", "sick"),
		LabelAttrs:   []string{"k"},
		BatchAge:     100 * time.Millisecond,
		BatchRecords: 20,
		Limits:       ours.Limits{MaxAge: -1},
		HTTP:         httpclient.Options{Client: &http.Client{Transport: front}},
	}, forebay.WhenFull("block"), forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.Deliver.Retry = &deliver.RetryOptions{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
		o.Deliver.Breaker = &deliver.BreakerOptions{OpenMin: 50 * time.Millisecond, OpenMax: 500 * time.Millisecond}
		o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range b.All() {
				letters = append(letters, string(r.Data))
			}
			return batch.Outcome{}
		})
	}))
	if err != nil {
		t.Fatal(err)
	}
	began, total := time.Now(), 0
	log := slog.New(h)
	during := func(of state, d time.Duration) {
		front.be(of)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			log.Info("good", "i", total, "k", total%3)
			total++
		}
	}
	during(well, time.Second)
	during(every, phase)
	old := slog.NewRecord(time.Now().Add(-30*24*time.Hour), slog.LevelInfo, "refused", 0)
	if err := h.Handle(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s.kill()
	during(every, 3*time.Second)
	s.up()
	during(resets, 2*phase)
	front.be(well)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	if err != nil || rep.Delivered != uint64(total) || rep.Dropped[batch.Poison] != 1 || rep.Dropped.Total() != 1 {
		t.Errorf("%d good records: %v, %v", total, rep, err)
	}
	if len(letters) != 1 || !strings.Contains(letters[0], "refused") {
		t.Errorf("%d dead letters: %.300q", len(letters), letters)
	}
	seen, n := map[string]bool{}, 0
	for k := range 3 {
		for _, e := range s.query("", fmt.Sprintf(`{test="sick", k="%d"}`, k), began.Add(-time.Minute)) {
			seen[e.line] = true
			n++
		}
	}
	t.Logf("%d records, %d of %d pushes were reset, %d found", total, front.reset, front.n, n)
	if len(seen) != total || front.reset < 60 {
		t.Errorf("%d of %d records found", len(seen), total)
	}
}

// TestLabelValues: a label whose values explode becomes metadata before Loki, which allows 30
// streams, refuses any, and one event says so.
func TestLabelValues(t *testing.T) {
	s := startWithStreams(t, 30)
	const total = 400
	var told atomic.Int32
	h, began := exploding(t, s, 20, total, func(e batch.Event) {
		if e.Op == "label-values" {
			told.Add(1)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	st := h.Driver.Stats()
	t.Logf("%d requests, %d not taken, %d streams, %v", st.Requests, st.Failed, st.Streams, st.ByReason)
	if err != nil || rep.Delivered != total || st.ByReason["label-values"] != total-20 || st.ByReason["streams-full"] != 0 || st.Failed != 0 || told.Load() != 1 {
		t.Errorf("%v, %v, %+v, told %d times", rep, err, st, told.Load())
	}
	users := map[string]bool{}
	for _, e := range s.await("", `{test="values", region="eu"}`, began, total) {
		users[e.labels["user"]] = true
	}
	if len(users) != total {
		t.Errorf("%d users among the labels and metadata", len(users))
	}
	// By the label as far as it was one, by metadata after.
	s.await("", `{test="values", user="19"}`, began, 1)
	s.await("", `{test="values"} | user="300"`, began, 1)
}

// TestLabelValuesUnguarded: without the guard Loki refuses streams. Those it has go on.
func TestLabelValuesUnguarded(t *testing.T) {
	s := startWithStreams(t, 30)
	h, began := exploding(t, s, -1, 400, func(batch.Event) {})
	found := s.await("", `{test="values"}`, began, 30)
	log := slog.New(h)
	for _, e := range found {
		log.Info("more", "user", e.labels["user"], "region", "eu")
	}
	s.await("", `{test="values"} |= "more"`, began, 30)
	st := h.Driver.Stats()
	t.Logf("%d requests, %d not taken, %d streams, %v", st.Requests, st.Failed, st.Streams, st.ByReason)
	if st.ByReason["streams-full"] == 0 {
		t.Error("the trap is gone: no stream was too many")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	h.Close(ctx)
}

// startWithStreams starts a Loki that allows n streams.
func startWithStreams(t *testing.T, n int) *server {
	return start(t, [2]string{`limits_config:`, fmt.Sprint("limits_config:\n  max_global_streams_per_user: ", n)})
}

// exploding logs one record for each user of a label.
func exploding(t *testing.T, s *server, limit, users int, tell func(batch.Event)) (h *handler, began time.Time) {
	t.Helper()
	began = time.Now().Add(-time.Minute)
	h, err := newHandler(ours.Config{
		URL:        s.url,
		Labels:     labels("test", "values"),
		LabelAttrs: []string{"user", "region"},
		BatchAge:   100 * time.Millisecond,
		Limits:     ours.Limits{MaxLabelValues: limit},
	}, forebay.WhenFull("block"), forebay.OnError(tell))
	if err != nil {
		t.Fatal(err)
	}
	for i := range users {
		slog.New(h).Info("m", "user", i, "region", "eu")
		if i%100 == 0 {
			time.Sleep(200 * time.Millisecond)
		}
	}
	return h, began
}
