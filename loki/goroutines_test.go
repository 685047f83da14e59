package loki

import (
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/bubble"
)

// started matches the end of the stack of a goroutine that a package of this module has started.
var started = regexp.MustCompile(`(?m)^created by github\.com/forebay-log/forebay(/(?:slab|deliver|loki|spool|internal/callback|internal/httpsend))?\.\S+`)

// A Loki output has the goroutine of its outlet and that of its session, which also makes the
// requests. net/http has others for its connections; the peer of this test needs none.
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
