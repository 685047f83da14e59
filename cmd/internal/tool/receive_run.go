package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/internal/units"
)

// closeTime limits the time for writing and acknowledging the received messages at the end of the
// program.
const closeTime = 10 * time.Second

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
