package loki

import (
	"context"
	"log/slog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	ours "github.com/forebay-log/forebay/loki"
)

// A handler is a Router with one output to Loki.
type handler struct {
	*forebay.Router
	Driver *ours.Driver
}

func newHandler(c ours.Config, opts ...forebay.OutputOption) (*handler, error) {
	d, err := ours.New(c)
	if err != nil {
		return nil, err
	}
	r, err := forebay.NewRouter(forebay.To(d, append(opts, forebay.Level(slog.LevelInfo))...))
	if err != nil {
		return nil, err
	}
	return &handler{r, d}, nil
}

func (h *handler) Close(ctx context.Context) (batch.Report, error) {
	rep, err := h.Router.Close(ctx)
	return rep.Outputs[0].Report, err
}

// quiet discards events.
var quiet = forebay.OnError(func(batch.Event) {})

// retries sets the options of retries and of the circuit breaker, each of which may be nil.
func retries(retry *deliver.RetryOptions, breaker *deliver.BreakerOptions) forebay.OutputOption {
	return forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Retry, o.Deliver.Breaker = retry, breaker })
}
