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

// An output made with forebay.To and a Driver equals one made with To: memory, name and lines are
// the same.
func TestDriverEqualsTo(t *testing.T) {
	for _, test := range []struct {
		c    Config
		opts []forebay.OutputOption
	}{
		{Config{Labels: map[string]string{"app": "x"}}, nil},
		{Config{BatchRecords: 10, Line: Line{MessageKey: "Message", Errors: "object"}}, []forebay.OutputOption{forebay.Name("grafana")}},
		{Config{Line: Line{Body: "logfmt"}}, []forebay.OutputOption{forebay.Buffer(1 << 20)}},
	} {
		bubble.Test(t, func(t *testing.T) {
			type made struct {
				name      string
				slabs, of int
				lines     []string
			}
			var got []made
			for _, way := range []func(c Config) (forebay.OutputSpec, error){
				func(c Config) (forebay.OutputSpec, error) {
					d, err := New(c)
					return forebay.To(d, test.opts...), err
				},
				func(c Config) (forebay.OutputSpec, error) {
					return To(c.URL, append(test.opts, forebay.Configure(func(d *Config) { *d = c }))...), nil
				},
			} {
				p := new(peer)
				c := test.c
				c.URL, c.HTTP.Client = "http://loki.test", &http.Client{Transport: p}
				spec, err := way(c)
				if err != nil {
					t.Fatal(err)
				}
				r, err := forebay.NewRouter(spec, forebay.OnError(quiet))
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
				t.Errorf("forebay.To %+v, To %+v", a, b)
			}
		})
	}
}
