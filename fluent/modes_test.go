package fluent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

// The type numbered is a record whose first field is its number, as recordNumber expects.
type numbered struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

// Every mode and compression delivers the same records. Batches of one tag are written with writev.
// Batches of several tags are copied into a buffer.
func TestEveryModeDeliversTheSameRecords(t *testing.T) {
	names := map[string]string{"": "PackedForward", modeForward: "Forward", modeMessage: "Message"}
	for _, noAck := range []bool{false, true} {
		for _, mode := range []string{"", modeForward, modeMessage} {
			for _, compress := range []string{"", "gzip"} {
				if compress != "" && mode != "" {
					continue
				}
				t.Run(fmt.Sprintf("%s,%s,noack=%v", mode, compress, noAck), func(t *testing.T) {
					var r received
					f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
					l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, Mode: mode, Compress: compress, NoAck: noAck, FrameBytes: 1000}})
					for i := range 200 {
						l.Post("one", map[string]any{"n": i})
					}
					l.Flush(t.Context())
					for i := range 200 {
						l.Post([]string{"x", "y"}[i%2], numbered{i, strings.Repeat("z", i)})
					}
					if noAck {
						l.Flush(t.Context())
						r.await(t, 400)
					}
					if rep := closeLogger(t, l); rep.Delivered != 400 {
						t.Errorf("%s", rep.Account)
					}
					f.Close()
					if got := r.get("one"); !slices.Equal(got, seq(0, 200)) {
						t.Errorf("%v", got)
					}
					if x, y := r.get("x"), r.get("y"); len(x) != 100 || len(y) != 100 || !slices.IsSorted(x) || !slices.IsSorted(y) {
						t.Errorf("%v %v", x, y)
					}
					for _, m := range r.messages() {
						if m.Mode != names[mode] || m.Compressed != compress || (m.Chunk == "") != noAck {
							t.Fatalf("%+v", m)
						}
					}
					r.check(t)
				})
			}
		}
	}
	for _, c := range []testConfig{{Config: Config{Mode: "json"}}, {Config: Config{Compress: "lz4"}}, {Config: Config{Mode: modeForward, Compress: "gzip"}}, {Config: Config{Mode: modeMessage, Compress: "gzip"}}, {Config: Config{Compress: "zstd"}}} {
		if _, err := c.driver(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
