package run

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
)

// A Pipeline is a running `forebay pipe`, `forebay tail` or `forebay run`.
//
// The goroutine of Run handles signals and ends the others. Each input has at least one goroutine that
// writes its lines to the outputs. Each output has the goroutine of its outlet. Other goroutines write
// the live line and the summary, and reopen files.
type Pipeline struct {
	*output.Env
	C    *config.Pipeline
	term *os.File // terminal for the live line, or nil

	Mu     sync.Mutex // guards the fields up to over; the goroutine that changes them may read without it
	Inlets []*LiveInput
	Outs   []*output.Output
	past   intake.Tally // counters of removed inlets
	gone   []retired
	Live   int // number of inlets that read, plus changes in progress
	errs   []error
	waits  bool          // a missing input keeps the pipeline running; guarded by changing
	over   chan struct{} // closed when Live is 0

	changing mutex // held while outputs, inlets or levels change

	Changes *reloader // applies changes of the configuration file; nil without one

	Signals  chan os.Signal
	hungUp   func() bool // reports whether the controlling terminal was closed; nil if SIGHUP only reopens files
	watchers *opsServer  // nil if disabled

	Fallbacks map[string]*dest.Fallback // by the value of --fallback
	lastly    []string                  // messages of Shutdown that are printed with the summary
	unstored  bool                      // an input could not store its positions
	early     sync.WaitGroup            // waits for the outputs that unstick shuts down
}

// New returns a Pipeline that is not open yet. Its messages go to stderr.
func New(c *config.Pipeline, stderr io.Writer) *Pipeline {
	return &Pipeline{
		Env: &output.Env{
			Console: &console.Console{W: stderr, Name: c.Name}, MaxRecord: int(c.MaxRecord.Value), DrainTimeout: time.Duration(c.DrainTimeout),
			DryRun: c.DryRun, Named: c.Named,
		},
		C: c, Signals: make(chan os.Signal, 4),
		Fallbacks: map[string]*dest.Fallback{}, over: make(chan struct{}), Live: 1, // released when run has started all inlets
		changing: make(mutex, 1),
	}
}

// A mutex is a lock whose callers wait at most until their context is done.
type mutex chan struct{}

func (m mutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m mutex) unlock() { <-m }

// A retired contains the counters of removed outputs with the same name.
type retired struct {
	to     string
	until  time.Time
	report batch.Report
	kept   uint64 // number of records on disk that no output delivers
}
