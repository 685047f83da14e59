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
// The goroutine of Run handles signals and stops the other goroutines. Each input has at least one
// goroutine that writes its lines to the outputs. The outlet of each output has a goroutine. Other
// goroutines write the live line and the summary, and reopen files.
type Pipeline struct {
	*output.Env
	C    *config.Pipeline
	term *os.File // terminal for the live line, or nil

	Mu           sync.Mutex // guards the fields below up to inputsDone; a goroutine that holds the lock changing may read these fields without Mu
	Inlets       []*LiveInput
	Outs         []*output.Output
	past         intake.Tally // counters of removed inlets
	removed      []removedOutput
	Live         int // number of inputs that are reading, plus the number of retainLive calls that are not released
	errs         []error
	inputMissing bool          // Live is retained because an input is missing; guarded by the lock changing
	inputsDone   chan struct{} // closed when Live becomes 0

	changing mutex // held while outputs, inlets or levels change

	Changes *reloader // applies changes of the configuration file; nil without one

	Signals        chan os.Signal
	terminalClosed func() bool // reports whether the controlling terminal was closed; nil if SIGHUP only reopens files
	ops            *opsServer  // nil if disabled

	Fallbacks      map[string]*dest.Fallback // by the value of --fallback
	finalMessages  []string                  // messages printed with the summary
	positionsLost  bool                      // an input could not store its positions
	earlyShutdowns sync.WaitGroup            // waits for the outputs that shutDownBlocked shuts down
}

// New returns a Pipeline that is not open yet. Its messages go to stderr.
func New(c *config.Pipeline, stderr io.Writer) *Pipeline {
	return &Pipeline{
		Env: &output.Env{
			Console: &console.Console{W: stderr, Name: c.Name}, MaxRecord: int(c.MaxRecord.Value), DrainTimeout: time.Duration(c.DrainTimeout),
			DryRun: c.DryRun, Named: c.Named,
		},
		C: c, Signals: make(chan os.Signal, 4),
		Fallbacks: map[string]*dest.Fallback{}, inputsDone: make(chan struct{}), Live: 1, // run releases it after it has started all inputs
		changing: make(mutex, 1),
	}
}

// A mutex is a lock. A caller of lock waits at most until its context is done.
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

// A removedOutput contains the counters of removed outputs that had the same name.
type removedOutput struct {
	to     string
	until  time.Time
	report batch.Report
	kept   uint64 // number of records that remain on disk and that no output delivers
}
