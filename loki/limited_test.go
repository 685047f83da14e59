package loki

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// The type arrivals stores the times at which lines first arrived, and their order.
type arrivals struct {
	mu    sync.Mutex
	when  map[string]time.Time
	order map[string][]string // by tenant or region
}

func (l *arrivals) add(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.when == nil {
		l.when, l.order = map[string]time.Time{}, map[string][]string{}
	}
	for _, s := range r.streams {
		for _, e := range s.Entries {
			text := e.Line[strings.Index(e.Line, "-")-4:][:9]
			if l.when[text].IsZero() {
				l.when[text] = time.Now()
				l.order[text[:4]] = append(l.order[text[:4]], text)
			}
		}
	}
}

// A rate limit of a tenant or stream does not delay other tenants or streams. The limited records
// arrive in order and as fast as the limit permits.
func TestRateLimitDelaysNoOtherStreams(t *testing.T) {
	const n, every = 600, 200 * time.Millisecond
	for name, tt := range map[string]struct {
		attr   string
		within time.Duration // time after the first record within which all limited records arrive
	}{
		"Retry-After of a tenant": {"tenant", 5 * time.Minute},
		"limit of a tenant":       {"tenant", 5 * time.Minute},
		"limit of a stream":       {"region", 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var got arrivals
				opened := time.Now()
				const rate = 2500.0 // half of the rate at which limited records are logged
				lim := &bucket{rate: rate, burst: 10 * rate, have: 0, at: time.Now()}
				p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
					isSlow := r.header.Get("X-Scope-Orgid") == "slow" || strings.Contains(r.streams[0].Labels, `region="slow"`)
					size, many := 0, len(r.streams[0].Entries)
					for _, e := range r.streams[0].Entries {
						size += len(e.Line)
					}
					switch {
					case !isSlow:
					case strings.HasPrefix(name, "Retry"):
						if at := time.Since(opened) % (90 * time.Second); at > 30*time.Second {
							return 429, "", http.Header{"Retry-After": {strconv.Itoa(90 - int(at/time.Second))}}
						}
					case lim.allow(size):
					case tt.attr == "tenant":
						return 429, fmt.Sprintf("ingestion rate limit exceeded for user slow (limit: %.0f bytes/sec) while attempting to ingest '%d' lines totaling '%d' bytes, reduce", rate, many, size), nil
					default:
						return 429, fmt.Sprintf("entry with timestamp 2026-01-01 00:00:00 +0000 UTC ignored, reason: 'Per stream rate limit exceeded (limit: %.0fB/sec) while attempting to ingest for stream '{}' totaling 40kB, consider',\nuser 'x', total ignored: %d out of %d for stream: {}", rate, many, many), nil
					}
					got.add(r)
					return 204, "", nil
				}}
				conf := Config{TenantAttr: "tenant"}
				if tt.attr == "region" {
					conf = Config{LabelAttrs: []string{"region"}}
				}
				h := handlerFor(t, p, conf)
				log := slog.New(h)
				began, posted := time.Now(), map[string]time.Time{}
				for i := range n {
					for _, who := range []string{"slow", "fast"} {
						text := fmt.Sprintf("%s-%04d", who, i)
						posted[text] = time.Now()
						log.Info(text+"."+strings.Repeat("x", 1000), tt.attr, who)
					}
					time.Sleep(every)
				}
				time.Sleep(tt.within - time.Since(began))
				got.mu.Lock()
				var most time.Duration
				for text, at := range posted {
					if strings.HasPrefix(text, "fast") {
						most = max(most, got.when[text].Sub(at))
					}
				}
				if len(got.order["fast"]) != n || most > defaultBatchAge+500*time.Millisecond {
					t.Errorf("%d records that are not limited arrived, after %s at most", len(got.order["fast"]), most)
				}
				for _, who := range []string{"slow", "fast"} {
					if !slices.IsSorted(got.order[who]) {
						t.Errorf("records of %s are not in order", who)
					}
				}
				if len(got.order["slow"]) != n {
					t.Errorf("%d of %d limited records arrived within %s", len(got.order["slow"]), n, tt.within)
				}
				t.Logf("other records after %s, %d limited records within %s, %d requests", most, len(got.order["slow"]), tt.within, len(p.requests()))
				got.mu.Unlock()
				if rep, err := h.Close(t.Context()); err != nil || rep.Delivered != 2*n || rep.Check() != nil {
					t.Errorf("%v %v", rep, err)
				}
			})
		})
	}
}
