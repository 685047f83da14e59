package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/listen/ndjson"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/vfs"
)

// closeTime limits the time for writing and acknowledging the received messages at the end of the
// program.
const closeTime = 10 * time.Second

// runReceive runs the listeners until a signal arrives, an error occurs, or --count records are
// received.
func runReceive(c *receiveConfig, stdout, stderr *os.File) error {
	var out io.Writer = stdout
	if c.out != "" {
		o := file.Options{Mode: 0o644}
		if c.fsync {
			o.Sync = "always"
		}
		f, err := file.Open(c.out, &o)
		if err != nil {
			return exit.Config(outError(err))
		}
		defer f.Close()
		out = f
	}
	arrived := make(chan os.Signal, 4)
	process.Notify(arrived)
	r := &input.Receiver{C: &c.ListenConfig, Action: c.faultInjection.Action(), Reporter: input.NewReporter(stderr)}
	wanted := uint64(c.count.Value)
	var ending process.Signals
	full, failed := make(chan struct{}, 1), make(chan error, 1)
	r.Sink = ndjson.New(out, func(records uint64, err error) {
		switch {
		case err != nil:
			select {
			case failed <- err:
			default:
			}
		case wanted > 0 && records >= wanted:
			select {
			case full <- struct{}{}:
			default:
			}
		}
	})
	start := time.Now()
	if err := r.Listen(); err != nil {
		r.Close(context.Background())
		return exit.Config(err)
	}
	var failure error
	select {
	case <-full:
	case failure = <-failed:
	case sig := <-arrived:
		ending.Second(sig)
	}
	if err := endReceiver(r, &ending, arrived); err != nil && failure == nil {
		failure = err
	}
	select {
	case failure = <-failed:
	default:
	}
	if !c.Quiet {
		r.Reporter.Line(summaryOfReceiver(r, time.Since(start)))
	}
	switch {
	case errors.Is(failure, syscall.EPIPE):
		return exit.Runtime(nil) // print nothing: the reader of the output has exited
	case failure == process.ErrForced, failure == errOutputStalled:
		return exit.Runtime(failure)
	case failure != nil && c.out != "":
		return exit.Runtime(outError(failure))
	case failure != nil:
		return exit.Runtime(fmt.Errorf("cannot write standard output: %w", vfs.Cause(failure)))
	}
	if got := recordsOf(r); got < wanted {
		return exit.Runtime(fmt.Errorf("%s of the %s records of --count were received", units.Count(got), units.Count(wanted)))
	}
	return nil
}

// outError adds the name of the flag --out to err, which package file has returned and which
// contains the path.
func outError(err error) error {
	return fmt.Errorf("--out: %s", strings.TrimPrefix(err.Error(), "file: "))
}

// errOutputStalled is returned if the output accepts no data for closeTime.
var errOutputStalled = errors.New("standard output is not being read: the last messages were not acknowledged")

// endReceiver closes the listeners. If received messages cannot be acknowledged, it returns an
// error.
func endReceiver(r *input.Receiver, ending *process.Signals, arrived <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.Close(ctx)
	}()
	for {
		select {
		case <-closed:
			return nil
		case sig := <-arrived:
			if ending.Second(sig) {
				return process.ErrForced
			}
		case <-ctx.Done(): // the output is blocked; nothing else takes this long
			select {
			case <-closed:
				return nil
			case <-time.After(time.Second):
				return errOutputStalled
			}
		}
	}
}

// recordsOf returns the number of records that all listeners have received.
func recordsOf(r *input.Receiver) (n uint64) {
	for _, s := range r.Servers {
		n += s.Stats().Records
	}
	return n
}

// summaryOfReceiver returns a line with the number of records that each listener has received.
func summaryOfReceiver(r *input.Receiver, took time.Duration) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "received %s in %s", console.Amount(recordsOf(r), "record"), units.Duration(took.Round(time.Millisecond)))
	for i, s := range r.Servers {
		st := s.Stats()
		fmt.Fprintf(&sb, "; %s records=%d messages=%d connections=%d", r.Names[i], st.Records, st.Messages, st.Conns)
		if st.Refused > 0 {
			fmt.Fprintf(&sb, " refused=%d", st.Refused)
		}
	}
	return sb.String()
}
