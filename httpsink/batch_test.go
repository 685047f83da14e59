package httpsink

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/bubble"
)

// While a slow server answers a request, records that are old enough to be sent wait for others:
// the next request is full if enough records have arrived.
func TestRequestsToASlowServerAreFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		record := []byte(`{"msg":"` + strings.Repeat("x", 1000) + `"}` + "\n")
		const perRequest = 60
		p := &peer{answer: func(int, request) reply {
			time.Sleep(2 * time.Second)
			return reply{status: 200}
		}}
		d := destFor(t, p, "ndjson", func(c *Config) { c.BatchBytes = perRequest * len(record) })
		out, err := forebay.Open(forebay.To(d, forebay.Buffer(1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		write := func(n int) {
			for range n {
				_, _ = out.Write(record)
			}
		}
		write(perRequest + 1)               // one record is left over
		time.Sleep(1500 * time.Millisecond) // more than BatchAge
		write(perRequest - 1)
		time.Sleep(10 * time.Second)
		write(3) // the server is idle: they wait for BatchAge only
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		var got []int
		for _, r := range p.got {
			got = append(got, len(r.records()))
		}
		p.mu.Unlock()
		if want := []int{perRequest, perRequest, 3}; !slices.Equal(got, want) {
			t.Errorf("requests of %d records, want %d", got, want)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
}
