package forebay_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/loki"
)

// Every seventh of 2100 records is bad. The server refuses each request that has a bad record, with
// status 400 and an unknown text. The good records are delivered promptly.
func TestScatteredBadRecords(t *testing.T) {
	const records = 2100
	for name, to := range map[string]func(*http.Client, ...forebay.OutputOption) forebay.OutputSpec{
		"httpsink": func(c *http.Client, o ...forebay.OutputOption) forebay.OutputSpec {
			return httpsink.To("http://test", append(o, forebay.Configure(func(h *httpsink.Config) { h.HTTP.Client = c }))...)
		},
		"loki": func(c *http.Client, o ...forebay.OutputOption) forebay.OutputSpec {
			return loki.To("http://test", append(o, loki.Label("app", "shop"), forebay.Configure(func(l *loki.Config) { l.HTTP.Client, l.Wire = c, "json" }))...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				requests := 0
				seen := map[string]bool{}
				c := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(r.Body)
					r.Body.Close()
					if err != nil {
						return nil, err
					}
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					requests++
					res := &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}
					if bytes.Contains(body, []byte("bad-")) {
						res.StatusCode = 400
						res.Body = io.NopCloser(strings.NewReader("computer says no"))
						return res, nil
					}
					for _, p := range strings.Split(string(body), "good-")[1:] {
						seen[p[:6]] = true
					}
					return res, nil
				})}
				l, err := forebay.New(to(c, forebay.OnError(func(e batch.Event) {})))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				for i := range records {
					if i%7 == 6 {
						l.Info(fmt.Sprintf("bad-%06d", i))
					} else {
						l.Info(fmt.Sprintf("good-%06d", i))
					}
				}
				arrived := func() int {
					mu.Lock()
					defer mu.Unlock()
					return len(seen)
				}
				for arrived() < records-records/7 && time.Since(begun) < time.Hour {
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(begun)
				time.Sleep(time.Minute)
				rep, err := l.Router().Close(t.Context())
				if a := rep.Outputs[0].Account; err != nil || took > 20*time.Second || a.Delivered != uint64(len(seen)) || a.Dropped[batch.Poison] != records/7 {
					t.Errorf("%d good records in %v, %d requests: %v, %s", len(seen), took, requests, err, a)
				}
			})
		})
	}
}
