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
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
)

// A Pipeline is a running `forebay pipe`, `forebay tail` or `forebay run`.
//
// The goroutine of Run handles signals and stops the other goroutines. Each input has at least one
// goroutine that writes its lines to the outputs. Each output has a goroutine that delivers its
// records. Other goroutines write the live line and the summary, and reopen files.
type Pipeline struct {
	*output.Env
	C    *config.Pipeline
	term *os.File // terminal for the live line; nil if there is none

	Mu           sync.Mutex // guards the fields from Inlets to inputsDone; if the lock changing is held, the fields may also be read without Mu
	Inlets       []*LiveInput
	Outs         []*output.Output
	past         intake.Tally // counters of removed inputs
	removed      []removedOutput
	Live         int // number of inputs that are reading, and of calls of retainLive without releaseLive
	errs         []error
	inputMissing bool          // retainLive was called because an input is missing; guarded by the lock changing
	inputsDone   chan struct{} // closed when Live is 0

	changing mutex // held while outputs, inlets or levels change

	Changes *reloader // applies changes of the configuration file; nil if there is no file

	Signals        chan os.Signal
	terminalClosed func() bool // reports whether the controlling terminal was closed; nil if SIGHUP never ends the program
	ops            *opsServer  // nil if nothing is served

	Fallbacks      map[string]*dest.Fallback // keys are values of --fallback
	finalMessages  []string                  // messages to print with the summary
	positionsLost  bool                      // an input could not store its position
	earlyShutdowns sync.WaitGroup            // waits for the shutdowns that shutDownBlocked has started
}

// New returns a Pipeline that is not open. It writes messages to stderr.
func New(c *config.Pipeline, stderr io.Writer) *Pipeline {
	return &Pipeline{
		Env: &output.Env{
			Console: &console.Console{W: stderr, Name: c.Name}, MaxRecord: int(c.MaxRecord.Value), DrainTimeout: time.Duration(c.DrainTimeout),
			DryRun: c.DryRun, Named: c.Named,
		},
		C: c, Signals: make(chan os.Signal, 4),
		Fallbacks: map[string]*dest.Fallback{}, inputsDone: make(chan struct{}), Live: 1, // run decrements Live after it has started all inputs
		changing: make(mutex, 1),
	}
}

// A mutex is a lock that a caller can wait for until a context is done.
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

// A removedOutput contains the counters of closed outputs that have the same name.
type removedOutput struct {
	to     string
	until  time.Time
	report batch.Report
	kept   uint64 // number of records on disk that no output delivers
}

// A LiveInput is an input that was opened, with the source that reads it.
type LiveInput struct {
	*intake.Inlet
	c     *input.Config // changes only while all intakes are locked
	Src   input.Source
	ended chan struct{} // closed after Src.Run has returned
}

// A reloader applies changes of a configuration file to a running pipeline, on request or when the
// file changes. No record is lost, and unchanged inputs and outputs continue.
//
// An output is closed for a change when its records are delivered or stored on disk. If that takes
// too long, the change is rejected and has no effect. An input is stopped for a change, its
// position is stored, and it is opened again.
//
// If the pipeline has no configuration file, its *reloader is nil.
type reloader struct {
	file  string
	stdin *os.File
	poll  bool // check the file for changes at the interval pollEvery

	data     []byte // content of the file at startup
	requests chan struct{}
	ctx      context.Context // canceled when the pipeline ends
	cancel   context.CancelFunc
	fatal    chan struct{} // closed when the pipeline must end, because an output could not be opened again
	done     chan struct{} // closed when the goroutine has ended; nil until begin is called
}
