package loki

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/testkit"
	ours "github.com/forebay-log/forebay/loki"
)

// A flakyTransport lets only some pushes succeed. It resets the connection before Loki receives the
// push, or after Loki has stored it.
type flakyTransport struct {
	mu    sync.Mutex
	rng   *rand.Rand
	state state
	n     int
	reset int
}

type state int

const (
	acceptAll state = iota
	acceptFourth
	resetMost
)

func (s *flakyTransport) setState(to state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to
}

// next decides about the next push. reaches reports whether Loki receives it, and lost whether its
// answer is lost.
func (s *flakyTransport) next() (reaches, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	reaches = true
	switch s.state {
	case acceptFourth:
		reaches = s.n%4 == 0
	case resetMost: // four of five pushes do not reach Loki; one answer in ten of the rest is lost
		reaches, lost = s.rng.IntN(5) == 0, s.rng.IntN(10) == 0
	}
	if !reaches || lost {
		s.reset++
	}
	return reaches, lost
}

func (s *flakyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	reaches, lost := s.next()
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

// Loki accepts only every fourth push for some time, is killed and restarted, and then accepts one
// of five pushes. Only the record that Loki refuses becomes a dead letter. All other records are
// stored.
func TestUnreliableLoki(t *testing.T) {
	phase := time.Duration(testkit.Scale(20, 300)) * time.Second
	s := start(t)
	front := &flakyTransport{rng: testkit.Rand(testkit.Seed(t))}
	var mu sync.Mutex
	var deadLetters []string
	h, err := newHandler(ours.Config{
		URL:          s.url,
		Labels:       labels("test", "unreliable"),
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
				deadLetters = append(deadLetters, string(r.Data))
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
		front.setState(of)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			log.Info("good", "i", total, "k", total%3)
			total++
		}
	}
	during(acceptAll, time.Second)
	during(acceptFourth, phase)
	old := slog.NewRecord(time.Now().Add(-30*24*time.Hour), slog.LevelInfo, "refused", 0)
	if err := h.Handle(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s.kill()
	during(acceptFourth, 3*time.Second)
	s.up()
	during(resetMost, 2*phase)
	front.setState(acceptAll)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	if err != nil || rep.Delivered != uint64(total) || rep.Dropped[batch.Poison] != 1 || rep.Dropped.Total() != 1 {
		t.Errorf("%d good records: %v, %v", total, rep, err)
	}
	if len(deadLetters) != 1 || !strings.Contains(deadLetters[0], "refused") {
		t.Errorf("%d dead letters: %.300q", len(deadLetters), deadLetters)
	}
	seen, n := map[string]bool{}, 0
	for k := range 3 {
		for _, e := range s.query("", fmt.Sprintf(`{test="unreliable", k="%d"}`, k), began.Add(-time.Minute)) {
			seen[e.line] = true
			n++
		}
	}
	t.Logf("%d records, %d of %d pushes were reset, %d found", total, front.reset, front.n, n)
	if len(seen) != total || front.reset < 60 {
		t.Errorf("%d of %d records found", len(seen), total)
	}
}

// If a label has too many values, the driver stores further values as metadata, so Loki, which
// allows 30 streams, refuses none. One event reports this.
func TestLabelValues(t *testing.T) {
	s := startWithStreams(t, 30)
	const total = 400
	var events atomic.Int32
	h, began := logUsers(t, s, 20, total, func(e batch.Event) {
		if e.Op == "label-values" {
			events.Add(1)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rep, err := h.Close(ctx)
	st := h.Driver.Stats()
	t.Logf("%d requests, %d failed, %d streams, %v", st.Requests, st.Failed, st.Streams, st.ByReason)
	if err != nil || rep.Delivered != total || st.ByReason["label-values"] != total-20 || st.ByReason["streams-full"] != 0 || st.Failed != 0 || events.Load() != 1 {
		t.Errorf("%v, %v, %+v, got %d events", rep, err, st, events.Load())
	}
	users := map[string]bool{}
	for _, e := range s.await("", `{test="values", region="eu"}`, began, total) {
		users[e.labels["user"]] = true
	}
	if len(users) != total {
		t.Errorf("%d users among the labels and metadata", len(users))
	}
	// The first values are labels, and later values are metadata.
	s.await("", `{test="values", user="19"}`, began, 1)
	s.await("", `{test="values"} | user="300"`, began, 1)
}

// Without a limit of label values, Loki refuses new streams. Records of existing streams are still
// delivered.
func TestLabelValuesWithoutLimit(t *testing.T) {
	s := startWithStreams(t, 30)
	h, began := logUsers(t, s, -1, 400, func(batch.Event) {})
	found := s.await("", `{test="values"}`, began, 30)
	log := slog.New(h)
	for _, e := range found {
		log.Info("more", "user", e.labels["user"], "region", "eu")
	}
	s.await("", `{test="values"} |= "more"`, began, 30)
	st := h.Driver.Stats()
	t.Logf("%d requests, %d failed, %d streams, %v", st.Requests, st.Failed, st.Streams, st.ByReason)
	if st.ByReason["streams-full"] == 0 {
		t.Error("Loki refused no stream")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	h.Close(ctx)
}

// startWithStreams starts a Loki that allows at most n streams.
func startWithStreams(t *testing.T, n int) *server {
	return start(t, [2]string{`limits_config:`, fmt.Sprint("limits_config:\n  max_global_streams_per_user: ", n)})
}

// logUsers logs one record for each of the given number of users, where the user is a label. limit
// is Limits.MaxLabelValues.
func logUsers(t *testing.T, s *server, limit, users int, onEvent func(batch.Event)) (h *handler, began time.Time) {
	t.Helper()
	began = time.Now().Add(-time.Minute)
	h, err := newHandler(ours.Config{
		URL:        s.url,
		Labels:     labels("test", "values"),
		LabelAttrs: []string{"user", "region"},
		BatchAge:   100 * time.Millisecond,
		Limits:     ours.Limits{MaxLabelValues: limit},
	}, forebay.WhenFull("block"), forebay.OnError(onEvent))
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
