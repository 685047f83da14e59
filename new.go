package forebay

import (
	"context"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/internal/plural"
)

// New returns a Logger with the given outputs:
//
//	log, err := forebay.New(
//		forebay.Console(os.Stderr),
//		forebay.File("app.log", forebay.Rotate(100<<20, 7)),
//		loki.To("http://localhost:3100", loki.Label("app", "shop")))
//	if err != nil {
//		…
//	}
//	defer log.Close()
//	slog.SetDefault(log.Slog())
//
// It is NewRouter with [CloseOnExit] and [Router.Logger] in one call. A destination need
// not be up. The error names every fault of the options, each with a remedy.
func New(opts ...Option) (*Logger, error) {
	r, err := NewRouter(append(opts[:len(opts):len(opts)], CloseOnExit())...)
	if err != nil {
		return nil, err
	}
	return r.Logger(), nil
}

// Router returns the Router behind l. It has Stats, Flush, and a Close with a report.
// It is nil if l discards everything; the methods of a nil Router do nothing.
func (l *Logger) Router() *Router {
	if l == nil || l.h.core == nil {
		return nil
	}
	return l.h.core.router
}

// Close ends the Router behind l, and so every Logger that was derived from it, as
// [Router.Close] without a deadline of its own does: within 5 s, or the longest
// CloseTimeout of an output. The error is nil if no record was lost. Otherwise it also
// goes to standard error, because a deferred call drops it; so does a line for each output
// that keeps records on disk for the next start, with their number and the directory. Close
// may be called twice.
//
// Only records that this Close lost are in the error. Those dropped before, because an
// output was full, say, or its server refused them, are in [Router.Stats].
//
// A program that ends without Close, or [Exit], loses what lies in memory, as a rule the
// records of the last 100 ms: see docs/EXITS.md.
func (l *Logger) Close() error {
	r := l.Router()
	if r == nil {
		return nil
	}
	rep, err := r.Close(context.Background())
	if r.h.core.told.Swap(true) {
		return err
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "forebay: close: %v\n", err)
	}
	for _, o := range rep.Outputs {
		if n := o.Kept(); n > 0 && o.KeptIn != "" {
			fmt.Fprintf(os.Stderr, "forebay: close: output %s: %s kept in %s for the next start\n", o.Name, plural.Records(n), o.KeptIn)
		}
	}
	return err
}
