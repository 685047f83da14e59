package loki

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/bubble"
)

// NewHandler and To make the same output of one Config: memory, name and lines.
func TestHandlerIsTo(t *testing.T) {
	for _, c := range []Config{
		{Labels: map[string]string{"app": "x"}},
		{BatchRecords: 10, MessageKey: "Message", Errors: "object", Name: "grafana"},
		{BufferBytes: 1 << 20, SlabBytes: 64 << 10, Body: "logfmt"},
	} {
		bubble.Test(t, func(t *testing.T) {
			type made struct {
				name      string
				slabs, of int
				lines     []string
			}
			var got []made
			for _, way := range []func(c Config) (*forebay.Router, error){
				func(c Config) (*forebay.Router, error) {
					h, err := NewHandler(c)
					if err != nil {
						return nil, err
					}
					return h.Router, nil
				},
				func(c Config) (*forebay.Router, error) {
					return forebay.NewRouter(To(c.URL, Configure(func(d *Config) { *d = c })))
				},
			} {
				p := new(peer)
				c := c
				c.URL, c.Client, c.OnError = "http://loki.test", &http.Client{Transport: p}, quiet
				r, err := way(c)
				if err != nil {
					t.Fatal(err)
				}
				slog.New(r).Info("m", "n", 1, "err", context.Canceled)
				if _, err := r.Close(context.Background()); err != nil {
					t.Error(err)
				}
				o := r.Stats().Outputs[0]
				got = append(got, made{name: o.Name, slabs: o.Delivery.Slab.SlabCount, of: o.Delivery.Slab.SlabBytes, lines: p.lines()})
			}
			a, b := got[0], got[1]
			if a.name != b.name || a.slabs != b.slabs || a.of != b.of || !slices.Equal(a.lines, b.lines) || len(a.lines) != 1 {
				t.Errorf("NewHandler %+v, To %+v", a, b)
			}
		})
	}
}
