package program

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/internal/bubble"
)

// The first signal begins the shutdown of the pipeline, and the second signal forces its end. The
// end of the input does not count as a signal, because Ctrl-C also ends the program that writes the
// input.
func TestSecondSignalForcesEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for i, second := range []func(e *run.Ending){
		func(e *run.Ending) { time.Sleep(process.SameSignal); e.Signal(syscall.SIGTERM) },
		func(e *run.Ending) { e.Signal(syscall.SIGINT) },
		func(e *run.Ending) { // a signal of timeout(1) arrives twice
			e.Signal(syscall.SIGTERM)
			if err := context.Cause(e.Ctx); err != nil {
				t.Errorf("a repeated signal: %v", err)
			}
			time.Sleep(process.SameSignal)
			e.Signal(syscall.SIGTERM)
		},
		func(e *run.Ending) {
			e.Signal(syscall.SIGTERM)
			time.Sleep(process.SameSignal / 2)
			e.Signal(syscall.SIGTERM)
		},
	} {
		ended := i%2 == 0
		in, err := input.NewInput(r, intake.Text{})
		if err != nil {
			t.Fatal(err)
		}
		bubble.Test(t, func(t *testing.T) {
			e := run.NewEnding(in, time.Minute)
			defer e.Release()
			if ended {
				e.Begin()
				time.Sleep(time.Second)
			}
			e.Signal(syscall.SIGTERM)
			if !e.Begun || context.Cause(e.Ctx) != nil {
				t.Errorf("input ended: %v, after one signal begun: %v, %v", ended, e.Begun, context.Cause(e.Ctx))
			}
			second(e)
			if context.Cause(e.Ctx) != process.ErrForced {
				t.Errorf("input ended: %v, after two signals %v", ended, context.Cause(e.Ctx))
			}
		})
		in.Close()
	}
}
