package loki

import (
	"context"
	"encoding/json"
	"log/slog"
	"path"
	"testing"
	"testing/slogtest"
)

// The handler passes testing/slogtest. There is one exception: a record without a time gets the
// current time, because an entry must have a time.
func TestSlogtest(t *testing.T) {
	for _, wire := range []string{wireProtobuf, wireJSON} {
		t.Run(wire, func(t *testing.T) {
			var p *peer
			var h *handler
			slogtest.Run(t, func(t *testing.T) slog.Handler {
				p = new(peer)
				h = handlerFor(t, p, Config{Wire: wire, NoLevelLabel: true, Labels: map[string]string{"app": "x"}})
				return h
			}, func(t *testing.T) map[string]any {
				if _, err := h.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				m := map[string]any{}
				if err := json.Unmarshal([]byte(p.lines()[0]), &m); err != nil {
					t.Fatal(err)
				}
				if at := p.requests()[0].streams[0].Entries[0].Time; path.Base(t.Name()) != "zero-time" && !at.IsZero() {
					m[slog.TimeKey] = at
				}
				return m
			})
		})
	}
}
