package fluent_test

import (
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A Forward output has one goroutine, and its session has two: one calls the Driver, and the other
// reads acknowledgements.
func TestOutputHasOneGoroutineAndItsSessionTwo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		want := testkit.Goroutines(t)
		peer := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil || m.Chunk != "" && c.Ack(m.Chunk) != nil {
					return
				}
			}
		}}
		defer peer.Close()
		log, err := forebay.New(fluent.To("server:24224", "app", forebay.Configure(func(c *fluent.Config) { c.Dial = peer.Dial })))
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
		want("after a Flush", 3)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		want("after Close", 0)
	})
}
