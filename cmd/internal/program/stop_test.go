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
	for _, ended := range []bool{false, true} {
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
			e.signal(syscall.SIGTERM) // for the same reason
			if !e.begun || context.Cause(e.ctx) != nil {
				t.Errorf("input ended: %v, after one signal begun: %v, %v", ended, e.begun, context.Cause(e.ctx))
			}
			time.Sleep(sameSignal)
			e.signal(syscall.SIGTERM)
			if context.Cause(e.ctx) != errForced {
				t.Errorf("input ended: %v, after two signals %v", ended, context.Cause(e.ctx))
			}
		})
		in.close()
	}
}
