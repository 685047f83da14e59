package fluent_test

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// started matches the end of the stack of a goroutine that a package of this module has started.
var started = regexp.MustCompile(`(?m)^created by github\.com/forebay-log/forebay(/(?:slab|deliver|fluent|spool|internal/callback))?\.\S+`)

// A Forward output has the goroutine of its outlet and those of its session: one for the calls of the
// driver and one that reads acknowledgements.
func TestGoroutinesOfAnOutput(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		buf := make([]byte, 1<<20)
		count := func() []string { return started.FindAllString(string(buf[:runtime.Stack(buf, true)]), -1) }
		before := len(count())
		want := func(when string, n int) {
			t.Helper()
			synctest.Wait()
			if got := count(); len(got)-before != n {
				t.Errorf("%s: %d goroutines, want %d:\n%s", when, len(got)-before, n, strings.Join(got, "\n"))
			}
		}
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
