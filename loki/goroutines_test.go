package loki

import (
	"net/http"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A Loki output has two goroutines. One belongs to package deliver, and one to the session, which
// also sends the requests. The goroutines of net/http for connections are not tested.
func TestOutputHasTwoGoroutines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		want := testkit.Goroutines(t)
		log, err := forebay.New(To("http://server:3100", Label("app", "shop"), forebay.Configure(func(c *Config) {
			c.HTTP.Client = &http.Client{Transport: new(peer)}
		})))
		if err != nil {
			t.Fatal(err)
		}
		want("before the first record", 1)
		for range 1000 {
			log.Info("a record")
		}
		if err := log.Router().Flush(t.Context()); err != nil {
			t.Error(err)
		}
		want("after a Flush", 2)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		want("after Close", 0)
	})
}
