package forebay_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A hangingWriter is a writer whose Write hangs from the second call on, until it is released.
type hangingWriter struct {
	calls   atomic.Int64
	release chan struct{}
}

func (h *hangingWriter) Write(p []byte) (int, error) {
	if h.calls.Add(1) > 1 {
		<-h.release
	}
	return len(p), nil
}

type flushed struct{ *hangingWriter }

func (flushed) Flush() error { return nil }

// Close reports the records that a hanging writer has not accepted. Accepted records count as
// delivered, unless the writer buffers them and could not be flushed.
func TestCloseOfHangingWriterReportsRecords(t *testing.T) {
	for _, buffers := range []bool{false, true} {
		for _, crashSafe := range []bool{false, true} {
			t.Run(fmt.Sprintf("buffers=%v/crashSafe=%v", buffers, crashSafe), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					h := &hangingWriter{release: make(chan struct{})}
					var w io.Writer = h
					if buffers {
						w = flushed{h}
					}
					o := &deliver.OutputOptions{OnError: func(batch.Event) {}}
					if crashSafe {
						o.CrashDir = t.TempDir()
					}
					out, err := deliver.NewOutput(deliver.ToWriter(w), o)
					if err != nil {
						t.Fatal(err)
					}
					for n := range 2 {
						fmt.Fprintf(out, "record %d\n", n)
						time.Sleep(time.Second)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					rep, err := out.Shutdown(ctx)
					if rep.Delivered != 1 || rep.Check() != nil {
						t.Error(rep.Account)
					}
					text := fmt.Sprint(err)
					if strings.Contains(text, "did not flush") != buffers {
						t.Error(err)
					}
					if !buffers && crashSafe != (err == nil) {
						t.Error(err)
					}
					close(h.release)
				})
			})
		}
	}
}
