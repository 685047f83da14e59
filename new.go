package forebay

import (
	"context"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/batch"
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
// New is NewRouter with [CloseOnExit], followed by [Router.Logger]. Destinations need not be
// reachable. The error joins all faults of the options, each with a remedy.
func New(opts ...Option) (*Logger, error) {
	r, err := NewRouter(append(opts[:len(opts):len(opts)], CloseOnExit())...)
	if err != nil {
		return nil, err
	}
	return r.Logger(), nil
}

// Router returns the Router of l, which provides Stats, Flush, and Close with a report. It returns nil
// if l discards all records; the methods of a nil Router do nothing.
func (l *Logger) Router() *Router {
	if l == nil || l.h.core == nil {
		return nil
	}
	return l.h.core.router
}

// Close closes the Router of l, which all Loggers derived from l share. It calls [Router.Close]
// without a deadline: the limit is 5 s, or the longest CloseTimeout of an output.
//
// The error is nil if this call lost no record. Records dropped earlier, for example because memory
// was full or the server rejected them, cause no error. [Router.Stats] counts these records, too.
//
// The first call also writes to standard error. It writes the error, because a deferred call
// discards it. For each output it writes the number of records dropped earlier, by reason, and the
// number of records kept on disk for the next start, with their directory. Close may be called more
// than once.
//
// A program that exits without Close or [Exit] loses the records in memory, usually those of the
// last 100 ms; see docs/EXITS.md.
func (l *Logger) Close() error {
	r := l.Router()
	if r == nil {
		return nil
	}
	rep, err := r.Close(context.Background())
	if r.h.core.finalReported.Swap(true) {
		return err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, o := range rep.Outputs {
		dropped := o.Dropped
		// Sampled records were dropped on request, and err contains the losses of the shutdown, so
		// neither is reported here.
		dropped[batch.Sampled], dropped[batch.Shutdown] = 0, 0
		if n := dropped.Total(); n > 0 {
			fmt.Fprintf(os.Stderr, "forebay: close: output %s: %s dropped since the start (%v)\n", o.Name, plural.Records(n), dropped)
		}
		if n := o.Kept(); n > 0 && o.KeptIn != "" {
			fmt.Fprintf(os.Stderr, "forebay: close: output %s: %s kept in %s for the next start\n", o.Name, plural.Records(n), o.KeptIn)
		}
	}
	return err
}
