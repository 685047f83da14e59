package loki

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
)

// A 401 or 403 is about the credentials, and then everything waits until somebody
// changes them; or it is about the tenant of the request, and then nothing of other
// tenants should. Which it is another tenant tells, with the same credentials and
// after the refusal. Where none was let in of late, some are asked, with a push of
// nothing: without that, one forbidden tenant whose records come first would hold up
// all others for ever, since what is behind them is never sent.

const (
	// deniedFor is how long a tenant that was taken before is held, and with it what
	// is behind its records, before its records are refused: permissions that are
	// being changed may be back by then.
	deniedFor = 5 * time.Minute
	// maxAsked is how many tenants are asked about one refusal.
	maxAsked = 4
)

// onlyTenant reports whether the tenant of st alone is refused, by a 401 or 403
// that answered a request made at the time sent.
func (s *Pusher) onlyTenant(ctx context.Context, st *stream, sent time.Time) bool {
	pc := st.tenantPace
	ask, let := s.streams.others(pc, sent)
	for i, answered := 0, true; i < len(ask) && answered && !let; i++ {
		let, answered = s.letsIn(ctx, ask[i])
	}
	if !let {
		pc.denied.Store(0)
		return false
	}
	now := time.Now()
	return now.Sub(pc.deny(now)) >= deniedFor || pc.passed.Load() == 0
}

// others returns a few tenants other than that of pc, those that were let in last
// first, and whether one was let in since the given time.
func (r *registry) others(pc *pace, since time.Time) (tenants []string, let bool) {
	type known struct {
		tenant string
		passed int64
	}
	var all []known
	r.mu.Lock()
	for tenant, other := range r.paces {
		if other != pc {
			all = append(all, known{tenant, other.passed.Load()})
		}
	}
	r.mu.Unlock()
	// Those that never were stay in the order of the map, which is another one each time.
	slices.SortStableFunc(all, func(a, b known) int { return cmp.Compare(b.passed, a.passed) })
	for _, k := range all[:min(len(all), maxAsked)] {
		let = let || k.passed > since.UnixNano()
		tenants = append(tenants, k.tenant)
	}
	return tenants, let
}

// letsIn reports whether a push of nothing for a tenant comes through to Loki (it is
// answered with 204, or with what Loki says of a request without streams), and whether
// it was answered at all.
func (s *Pusher) letsIn(ctx context.Context, tenant string) (let, answered bool) {
	body := []byte{0} // nothing, in snappy
	if s.c.Wire != Protobuf {
		body = []byte(`{"streams":[]}`)
	}
	if s.c.Wire == JSONGzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(body)
		z.Close()
		body = b.Bytes()
	}
	s.requests.Add(1)
	s.bodyBytes.Add(uint64(len(body)))
	s.wireBytes.Add(uint64(len(body)))
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	res, err := s.client.Do((&http.Request{
		Method: http.MethodPost, URL: s.c.endpoint, Host: s.c.endpoint.Host, Header: s.headers.get(tenant),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(ctx))
	if err != nil {
		return false, false
	}
	defer res.Body.Close()
	io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	return isLetIn(res.StatusCode), true
}

// isLetIn reports whether an answer comes from Loki behind all that asks who it is.
func isLetIn(status int) bool {
	return status == http.StatusNoContent || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
}
