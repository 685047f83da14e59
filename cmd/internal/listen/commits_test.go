package listen

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A gatedSink accepts all records. Its Commit blocks until the test sends to the channel gate or
// closes it.
type gatedSink struct{ gate chan struct{} }

func (g gatedSink) Put(context.Context, *Record) error { return nil }

func (g gatedSink) Commit(context.Context) error {
	<-g.gate
	return nil
}

// While a commit is in progress, added messages wait for the next commit. If an Add reaches the
// maximum number of waiting messages, it blocks.
func TestAddBlocksWhileTooManyWait(t *testing.T) {
	for most := 1; most < 4; most++ {
		bubble.Test(t, func(t *testing.T) {
			sink := gatedSink{make(chan struct{})}
			s := NewServer(Config{Name: "x", Sink: sink}, func(context.Context, *Conn) error { return nil })
			server, client := net.Pipe()
			go io.Copy(io.Discard, client)
			n := s.Commits(s.Conn(server), most)
			returned := 0
			add := func(calls int) {
				for range calls {
					if err := n.Add(t.Context(), 1, 1, func(dst []byte) []byte { return append(dst, 'a') }); err != nil {
						t.Error(err)
					}
					returned++
					n.Begin(t.Context())
				}
			}
			add(1)
			synctest.Wait() // wait until the commit of this message is in progress
			go add(3 * most)
			synctest.Wait()
			if returned != most {
				t.Errorf("%d calls of Add have returned, want %d", returned, most)
			}
			close(sink.gate)
			synctest.Wait()
			if err := n.End(t.Context()); err != nil || returned != 1+3*most || s.Stats().Messages != uint64(returned) {
				t.Errorf("after %d calls of Add: %v, %+v", returned, err, s.Stats())
			}
			server.Close()
			client.Close()
			s.Close(t.Context())
		})
	}
}
