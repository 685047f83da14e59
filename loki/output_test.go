package loki

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// A sink is an output of a Driver that is used without a Router.
type sink struct {
	*deliver.Output
	Driver *Driver
}

func newSink(c Config, opts ...forebay.OutputOption) (*sink, error) {
	d, err := New(c)
	if err != nil {
		return nil, err
	}
	out, err := forebay.Open(forebay.To(d, opts...))
	if err != nil {
		return nil, err
	}
	return &sink{out, d}, nil
}

func (s *sink) Encoder() encode.Encoder { return s.Driver.Encoder() }

// spec returns s as an output of a Route. The output accepts records with at least the given level.
func (s *sink) spec(level slog.Leveler, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Writer(s, append(opts, forebay.Level(level), forebay.CloseWriter())...)
}

// A handler is a Router with one Loki output.
type handler struct {
	*forebay.Router
	Sink *sink
}

// newHandler returns a handler for c. opts are options of the output, options of the Router, and a
// level.
func newHandler(c Config, opts ...any) (*handler, error) {
	var forOutput []forebay.OutputOption
	var forRouter []forebay.Option
	level := slog.Leveler(slog.LevelInfo)
	for _, o := range opts {
		switch o := o.(type) {
		case slog.Leveler:
			level = o
		case forebay.CommonOption:
			forRouter, forOutput = append(forRouter, o), append(forOutput, o)
		case forebay.OutputOption:
			forOutput = append(forOutput, o)
		case forebay.Option:
			forRouter = append(forRouter, o)
		}
	}
	s, err := newSink(c, forOutput...)
	if err != nil {
		return nil, err
	}
	r, err := forebay.NewRouter(append(forRouter, forebay.Route(s.Encoder(), s.spec(level)))...)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &handler{r, s}, nil
}

func (h *handler) Close(ctx context.Context) (batch.Report, error) {
	rep, err := h.Router.Close(ctx)
	if len(rep.Outputs) == 0 {
		return batch.Report{}, err
	}
	return rep.Outputs[0].Report, err
}

// delivery sets options of memory and delivery.
func delivery(set func(o *deliver.OutputOptions)) forebay.OutputOption { return forebay.Delivery(set) }
