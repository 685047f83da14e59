package loki

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A bucket is a token bucket: it contains at most burst bytes and is refilled with rate bytes per
// second.
type bucket struct {
	rate, burst, have float64
	at                time.Time
}

func (b *bucket) allow(n int) bool {
	now := time.Now()
	b.have = min(b.burst, b.have+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	if float64(n) > b.have {
		return false
	}
	b.have -= float64(n)
	return true
}

// A batch that exceeds the burst of a rate limit is sent in parts, in about the time that the rate
// requires, for any rate and burst. A record is refused only if it exceeds the burst alone.
func TestBatchAboveBurstIsSentInParts(t *testing.T) {
	const line = 40 << 10
	for name, tt := range map[string]struct {
		rate, burst float64
		stream      bool // the limit applies to the stream, not to the tenant
		big         int  // length in bytes of an additional long line
		within      time.Duration
	}{
		"burst above rate":    {rate: 200e3, burst: 300e3, within: 15 * time.Second},
		"burst below rate":    {rate: 4e6, burst: 200e3, within: 10 * time.Second},
		"far below":           {rate: 40e6, burst: 50e3, within: 10 * time.Second},
		"of a stream":         {rate: 3 << 20, burst: 200e3, stream: true, within: 10 * time.Second},
		"one above the burst": {rate: 400e3, burst: 100e3, big: 120 << 10, within: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				lim := &bucket{rate: tt.rate, burst: tt.burst, have: tt.burst, at: time.Now()}
				p := &peer{}
				stored := map[string]bool{}
				p.answer = func(_ int, r *request) (int, string, http.Header) {
					total, ignored := 0, 0
					for _, e := range r.streams[0].Entries {
						if tt.stream {
							if !lim.allow(len(e.Line)) {
								ignored++
								continue
							}
							stored[e.Line[:20]] = true
						}
						total += len(e.Line)
					}
					switch {
					case tt.stream && ignored > 0:
						return 429, fmt.Sprintf("entry with timestamp 2026-01-01 00:00:00 +0000 UTC ignored, reason: 'Per stream rate limit exceeded (limit: %.0fMB/sec) while attempting to ingest for stream '{}' totaling 40kB, consider',\nuser 'x', total ignored: %d out of %d for stream: {}", tt.rate/(1<<20), ignored, len(r.streams[0].Entries)), nil
					case !tt.stream && !lim.allow(total):
						return 429, fmt.Sprintf("ingestion rate limit exceeded for user x (limit: %.0f bytes/sec) while attempting to ingest '%d' lines totaling '%d' bytes, reduce", tt.rate, len(r.streams[0].Entries), total), nil
					}
					for _, e := range r.streams[0].Entries {
						stored[e.Line[:20]] = true
					}
					return 204, "", nil
				}
				e := &encoded{t: t, s: sinkFor(t, p, Config{})}
				for i := range 25 {
					n := line
					if i == 7 && tt.big > 0 {
						n = tt.big
					}
					e.add(nil, event(time.Now().Add(time.Duration(i)), 0, fmt.Sprintf("%04d", i)+strings.Repeat("x", n)))
				}
				began := time.Now()
				refused := len(e.deliver())
				took := time.Since(began)
				want := 0
				if tt.big > 0 {
					want = 1
				}
				if refused != want || len(stored) != 25-want || took > tt.within || int(e.s.observed.counts()[lineTooLong]) != want {
					t.Errorf("%d refused, %d stored, took %v; %+v", refused, len(stored), took, e.s.Stats())
				}
				t.Logf("took %v, %d requests", took, e.s.Stats().Requests)
			})
		})
	}
}
