package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/loki"
)

// The error of a Close that ends too early has one line for each output: the name, the number of lost
// records, the reason and the remedy, each once. It wraps the cause of the context.
func TestCloseMessages(t *testing.T) {
	const (
		unanswered = ": deliver: close: 1 record lost (shutdown=1), 1 of them sent and not acknowledged: "
		failed     = ": deliver: close: 1 record lost (shutdown=1): "
		remedy     = "; give Close more time (its context, or CloseTimeout), or use a spool (forebay.Spool)"
		late       = "not finished in time"
	)
	for _, tt := range []struct {
		name, want string // want has %s for the reason
		open       func(w *fakeDest) []forebay.Option
	}{
		{"writer", "forebay: output writer" + unanswered + "%s" + remedy, func(w *fakeDest) []forebay.Option {
			return []forebay.Option{forebay.Writer(funcWriter(w.attempt))}
		}},
		{"direct", "forebay: output direct: %s; 1 record in a write that has not returned", func(w *fakeDest) []forebay.Option {
			return []forebay.Option{forebay.Writer(funcWriter(w.attempt), forebay.Direct(), forebay.Name("direct"))}
		}},
		{"custom", "forebay: output forebay.To" + unanswered + "%s" + remedy, func(w *fakeDest) []forebay.Option {
			return []forebay.Option{forebay.To(customDest(w))}
		}},
		{"Forward", "forebay: output fluent" + unanswered + "%s" + remedy, func(*fakeDest) []forebay.Option {
			return []forebay.Option{silentForward()}
		}},
		{"Loki", "forebay: output loki" + unanswered + "%s" + remedy, func(w *fakeDest) []forebay.Option {
			return []forebay.Option{hungLoki(w)}
		}},
		{"two outputs", "forebay: output loki" + unanswered + "%s" + remedy + "\nforebay: output fluent" + unanswered + "%[1]s" + remedy, func(w *fakeDest) []forebay.Option {
			return []forebay.Option{hungLoki(w), silentForward()}
		}},
		{"timeouts", "forebay: output t" + failed + "%s: push to http://t failed: context deadline exceeded" + remedy, func(*fakeDest) []forebay.Option {
			return []forebay.Option{forebay.To(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
				return batch.FailedOutcome(fmt.Errorf("push to http://t failed: %w", context.DeadlineExceeded))
			}), forebay.Name("t"))}
		}},
	} {
		for _, cancelled := range []bool{false, true} {
			bubble.Test(t, func(t *testing.T) {
				w := &fakeDest{state: "hangs", release: make(chan struct{})}
				log, err := forebay.New(append(tt.open(w), forebay.OnError(quiet))...)
				if err != nil {
					t.Fatal(err)
				}
				go log.Info("hello")
				time.Sleep(5 * time.Second) // longer than the flush interval of Loki
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				cause, reason := context.DeadlineExceeded, late
				if cancelled {
					cancel()
					cause, reason = context.Canceled, "context canceled"
				}
				_, err = log.Router().Close(ctx)
				cancel()
				if want := fmt.Sprintf(tt.want, reason); err == nil || err.Error() != want || !errors.Is(err, cause) {
					t.Errorf("%s:\ngot  %v\nwant %s", tt.name, err, want)
				}
				close(w.release)
				time.Sleep(time.Minute)
			})
		}
	}
}

// silentForward returns an output to a Forward server that reads everything and answers nothing.
func silentForward() forebay.OutputSpec {
	return fluent.To("tcp://example:1", "tag", forebay.Configure(func(c *fluent.Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}
	}))
}

// hungLoki returns an output to a Loki server that does not answer before w is released.
func hungLoki(w *fakeDest) forebay.OutputSpec {
	return loki.To("http://loki", forebay.Configure(func(c *loki.Config) {
		c.HTTP = httpclient.Options{Client: &http.Client{Transport: responder(func() (*http.Response, error) { return nil, w.attempt() })}}
	}))
}
