package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

// Memory in front of a sink, unless Config.Slab says otherwise: enough for one
// batch of DefaultBatchBytes to fill while another is sent, and some to spare.
const (
	defaultSlabBytes = 256 << 10
	defaultSlabCount = 16

	never = slog.Level(math.MaxInt8 + 1)
)

// An Output is a Sink with everything in front of it: memory (a slab.Writer) and
// delivery (a deliver.Engine). It is an output of a forebay.Router whose route
// encodes with [Output.Encoder]:
//
//	out, err := loki.NewOutput(cfg)
//	…
//	r, err := forebay.NewRouter(forebay.Route(out.Encoder(), forebay.OutputCloser(slog.LevelInfo, out)))
//
// The embedded Writer accepts, flushes, reports and closes; closing it closes all.
type Output struct {
	*slab.Writer
	sink   *Sink
	engine *deliver.Engine
}

// NewOutput returns an Output. Its goroutines end with Close or Shutdown.
func NewOutput(c Config) (*Output, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	var d deliver.Options
	if c.Deliver != nil {
		d = *c.Deliver
	}
	defaultTo(&d.Name, s.c.Name)
	if d.OnError == nil {
		d.OnError = c.OnError
	}
	engine, err := deliver.New(s, &d)
	if err != nil {
		return nil, err
	}
	o := slab.Options{SlabBytes: defaultSlabBytes, SlabCount: defaultSlabCount}
	if c.Slab != nil {
		o = *c.Slab
	}
	defaultTo(&o.Name, s.c.Name)
	if o.FlushLevel == nil {
		o.FlushLevel = never // a burst of errors would be a burst of requests
	}
	if o.OnError == nil {
		o.OnError = c.OnError
	}
	o.Codec, o.CloseDst = s.Codec(), true
	w, err := slab.NewSink(engine, &o)
	if err != nil {
		return nil, errors.Join(err, engine.Close(context.Background()))
	}
	return &Output{w, s, engine}, nil
}

// Encoder returns the encoder of the records the Output takes.
func (o *Output) Encoder() encode.Encoder { return o.sink.Encoder() }

// Sink returns the Sink behind the Output, for its Stats.
func (o *Output) Sink() *Sink { return o.sink }

// Engine returns the delivery in front of the Sink.
func (o *Output) Engine() *deliver.Engine { return o.engine }

// A Handler is a [slog.Handler] that logs to Loki. Close it, or the last records
// are lost.
type Handler struct {
	*forebay.Router
	out *Output
}

// NewHandler returns a Handler: everything there is between slog and Loki in one
// line.
//
//	h, err := loki.NewHandler(loki.Config{URL: "http://localhost:3100", Labels: map[string]string{"app": "x"}})
//	…
//	defer h.Close(ctx)
//	slog.SetDefault(slog.New(h))
func NewHandler(c Config) (*Handler, error) {
	out, err := NewOutput(c)
	if err != nil {
		return nil, err
	}
	level := c.Level
	if level == nil {
		level = slog.LevelInfo
	}
	r, err := forebay.NewRouter(forebay.Route(out.Encoder(), forebay.OutputCloser(level, out)))
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &Handler{r, out}, nil
}

// Output returns what stands behind the handler.
func (h *Handler) Output() *Output { return h.out }

// Close refuses new records, delivers what was logged until ctx ends, and reports
// what became of it. The error says if anything was not delivered.
func (h *Handler) Close(ctx context.Context) (batch.Report, error) {
	rep, err := h.Router.Close(ctx)
	var out batch.Report
	if len(rep.Outputs) > 0 {
		out = rep.Outputs[0].Report
	}
	if n := out.Undelivered(); n > 0 {
		err = errors.Join(err, fmt.Errorf("loki: %d records were not delivered: %s", n, out.Account))
	}
	return out, err
}
