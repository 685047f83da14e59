package program

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// The first signal begins the end, the second forces it. The end of the input is no
// signal: what stops a program and the one that reads from it stops them in any
// order.
func TestEnding(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for i, second := range []func(e *ending){
		func(e *ending) { time.Sleep(sameSignal); e.signal(syscall.SIGTERM) },
		func(e *ending) { e.signal(syscall.SIGINT) },
		func(e *ending) { // timeout(1) sends its signal twice
			e.signal(syscall.SIGTERM)
			if err := context.Cause(e.ctx); err != nil {
				t.Errorf("a repeated signal: %v", err)
			}
			time.Sleep(sameSignal)
			e.signal(syscall.SIGTERM)
		},
		func(e *ending) { e.signal(syscall.SIGTERM); time.Sleep(sameSignal / 2); e.signal(syscall.SIGTERM) },
	} {
		ended := i%2 == 0
		in, err := newInput(r)
		if err != nil {
			t.Fatal(err)
		}
		bubble.Test(t, func(t *testing.T) {
			e := newEnding(in, time.Minute)
			defer e.release()
			if ended {
				e.begin()
				time.Sleep(time.Second)
			}
			e.signal(syscall.SIGTERM)
			if !e.begun || context.Cause(e.ctx) != nil {
				t.Errorf("input ended: %v, after one signal begun: %v, %v", ended, e.begun, context.Cause(e.ctx))
			}
			second(e)
			if context.Cause(e.ctx) != errForced {
				t.Errorf("input ended: %v, after two signals %v", ended, context.Cause(e.ctx))
			}
		})
		in.close()
	}
}
