package deliver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// acked is the driver of a protocol of lines. The server answers each line with one byte: '+' if it
// has stored the line, '-' if it refuses the line permanently.
type acked struct{ address string }

const window = 8

func (d acked) Traits() deliver.Traits { return deliver.Traits{Window: window} }

func (d acked) Open(l deliver.Life) (deliver.Session, error) {
	conn, err := new(net.Dialer).DialContext(l.Context(), "tcp", d.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(l.Context(), func() { conn.Close() }) // ends a Write that hangs
	s := &ackedSession{life: l, conn: conn, sent: make(chan *batch.Batch, window), done: make(chan struct{})}
	go s.answer()
	return s, nil
}

type ackedSession struct {
	life deliver.Life
	conn net.Conn
	sent chan *batch.Batch // has room for all batches in flight
	done chan struct{}     // closed when answer has returned
}

func (s *ackedSession) Send(b *batch.Batch) error {
	for i := range b.Runs {
		if _, err := s.conn.Write(b.Runs[i].Data()); err != nil {
			s.life.End(err) // records without an answer are sent again in the next session
			break
		}
	}
	s.sent <- b // last, because Answer may end the life of b
	return nil
}

// answer reads the answers of the server and reports them.
func (s *ackedSession) answer() {
	defer close(s.done)
	in := bufio.NewReader(s.conn)
	for b := range s.sent {
		var refused []int
		for i := range b.Len() {
			switch c, err := in.ReadByte(); {
			case err != nil:
				s.life.End(err)
				return
			case c == '-':
				refused = append(refused, i)
			}
		}
		s.life.Answer(b, batch.Outcome{Refused: batch.Of(refused...), Refusal: errors.New("the server does not like it")})
	}
}

func (s *ackedSession) Close() {
	s.conn.Close()
	close(s.sent)
	<-s.done // no goroutine reads a batch any more
}

// A driver implements only its protocol. The Output adds order, retries, the circuit breaker, dead
// letters, the spool and the account.
func Example_driver() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go serveLines(l)
	letters := deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
		for _, rec := range b.All() {
			fmt.Printf("dead letter: %q\n", rec.Data)
		}
		return batch.Outcome{}
	})
	out, err := deliver.NewOutput(acked{l.Addr().String()}, &deliver.OutputOptions{
		Name: "acked", Deliver: deliver.Options{DeadLetter: letters}, OnError: func(batch.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, line := range []string{"one", "bad", "two"} {
		fmt.Fprintln(out, line)
	}
	report, err := out.Shutdown(context.Background())
	fmt.Println(report.Account, err)
	// Output:
	// dead letter: "bad\n"
	// accepted=3 delivered=2 dropped=1{poison=1} <nil>
}

// serveLines is a server that closes its first connection without an answer.
func serveLines(l net.Listener) {
	for first := true; ; first = false {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		for in := bufio.NewScanner(conn); !first && in.Scan(); {
			answer := "+"
			if in.Text() == "bad" {
				answer = "-"
			}
			conn.Write([]byte(answer))
		}
		conn.Close()
	}
}
