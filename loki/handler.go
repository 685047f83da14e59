package loki

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
)

// A Handler is a [slog.Handler] that logs to Loki. It must be closed, or the last records
// are lost.
type Handler struct {
	*forebay.Router

	// Sink is the output of the Router and has Stats and Account. It is set by NewHandler.
	Sink *Sink
}

// NewHandler returns a Handler: the complete path from slog to Loki in one call.
//
//	h, err := loki.NewHandler(loki.Config{URL: "http://localhost:3100", Labels: map[string]string{"app": "x"}})
//	…
//	defer h.Close(ctx)
//	slog.SetDefault(slog.New(h))
//
// opts are further options of the Router, such as [forebay.RedactKeys].
//
// NewHandler combines [New] and forebay.NewRouter. Use it with an existing Config, for
// example from YAML, or to read the counters of its Pusher. Buffer, delivery and encoder
// come from the same functions as in [To], with the same defaults. Options of an output,
// such as forebay.Spool, are fields of the Config; Config.Level and Config.Context are
// used only here. A program that also logs to another destination should use forebay.New
// and To.
func NewHandler(c Config, opts ...forebay.Option) (*Handler, error) {
	if ask := c.Context; ask != nil {
		opts = append(opts[:len(opts):len(opts)], forebay.Context(ask))
		c.Context = nil
	}
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	level := c.Level
	if level == nil {
		level = slog.LevelInfo
	}
	own := []forebay.Option{forebay.Route(s.Encoder(), s.Output(level))}
	if c.OnError != nil {
		own = append(own, forebay.OnError(c.OnError))
	}
	r, err := forebay.NewRouter(append(own, opts...)...)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Handler{r, s}, nil
}

// Close refuses new records, delivers the logged ones and returns a report, like
// [deliver.Output.Shutdown]: within ctx or, if ctx has no deadline, within
// Config.CloseTimeout. The error is nil if nothing was lost.
func (h *Handler) Close(ctx context.Context) (batch.Report, error) {
	rep, err := h.Router.Close(ctx)
	var out batch.Report
	if len(rep.Outputs) > 0 {
		out = rep.Outputs[0].Report
	}
	return out, err
}
