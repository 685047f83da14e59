package listen

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A gated sink commits when the test sends to gate.
type gated struct{ gate chan struct{} }

func (g gated) Put(context.Context, *Record) error { return nil }

func (g gated) Commit(context.Context) error {
	<-g.gate
	return nil
}

// While a commit is in progress, at most most messages wait for the next one. Add of the last of
// them blocks.
func TestAddBlocksWhileTooManyWait(t *testing.T) {
	for most := 1; most < 4; most++ {
		bubble.Test(t, func(t *testing.T) {
			sink := gated{make(chan struct{})}
			s := NewServer(Config{Name: "x", Sink: sink}, func(context.Context, *Conn) error { return nil })
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			n := s.Commits(s.Conn(near), most)
			taken := 0
			take := func(calls int) {
				for range calls {
					if err := n.Add(t.Context(), 1, 1, func(dst []byte) []byte { return append(dst, 'a') }); err != nil {
						t.Error(err)
					}
					taken++
					n.Begin(t.Context())
				}
			}
			take(1)
			synctest.Wait() // its commit is in progress
			go take(3 * most)
			synctest.Wait()
			if taken != most {
				t.Errorf("%d calls have returned with at most %d waiting", taken, most)
			}
			close(sink.gate)
			synctest.Wait()
			if err := n.End(t.Context()); err != nil || taken != 1+3*most || s.Stats().Messages != uint64(taken) {
				t.Errorf("%v after %d calls, %+v", err, taken, s.Stats())
			}
			near.Close()
			far.Close()
			s.Close(t.Context())
		})
	}
}
