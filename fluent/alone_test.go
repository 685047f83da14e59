package fluent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A resetConn reports the end of its input as a reset by the peer, because net.Pipe cannot produce
// a reset.
type resetConn struct{ net.Conn }

func (c resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

// A server that closes each connection after one message receives each record once, even without
// acknowledgements. It may close with FIN or RST, and may send HELO or not.
func TestNoAckSendsEachRecordOnceToOneMessageServers(t *testing.T) {
	for _, helo := range []bool{true, false} {
		for _, end := range []string{"FIN", "RST", "silence"} {
			if !helo && end == "silence" {
				continue // without HELO, a server that does not close keeps its connections
			}
			t.Run(fmt.Sprintf("HELO %v, %s", helo, end), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					var r received
					auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
					f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
						if helo {
							if ok, err := c.Handshake(auth); !ok {
								r.addErr(fmt.Errorf("refused: %w", err))
								return
							}
						}
						m, err := c.Next()
						if err != nil {
							r.addErr(err)
							return
						}
						r.add(m)
						if end == "silence" {
							c.Read(make([]byte, 1))
						}
						time.Sleep(10 * time.Millisecond) // time in which the server processes the message
					}}
					defer f.Close()
					c := testConfig{
						Config: Config{
							NoAck: true,
							Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
								nc, err := f.Dial(ctx, n, addr)
								if end == "RST" && err == nil {
									nc = resetConn{nc}
								}
								return nc, err
							},
						},
					}
					if helo {
						c.Auth.SharedKey = "k"
					}
					s := newTestClient(t, c)
					var bs []*batch.Batch
					for i := range 30 {
						bs = append(bs, numbers(t, i, i+1))
					}
					for i, res := range s.send(t.Context(), append(bs, numbers(t, 30, 60, "x", "y", "z"))...) {
						if !res.answered || !res.Open.Empty() || !res.Refused.Empty() {
							t.Errorf("batch %d: %+v", i, res)
						}
					}
					if got := r.get("forebay"); !slices.Equal(got, seq(0, 30)) {
						t.Errorf("%v", got)
					}
					for i, tag := range []string{"x", "y", "z"} {
						if got := r.get(tag); len(got) != 10 || got[0] != 30+i {
							t.Errorf("%s: %v", tag, got)
						}
					}
					if n := f.Conns(); n != 33 {
						t.Errorf("got %d connections for 33 messages", n)
					}
					if st := s.Stats(); st.Lost != 0 {
						t.Errorf("%+v", st)
					}
					s.close()
					r.check(t)
				})
			})
		}
	}
}

// If the server closes the connection when a message is only partly written, this message is sent
// again, and the other messages of the batch are not.
func TestPartlyWrittenMessageIsSentAgain(t *testing.T) {
	for _, helo := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
			f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
				if helo {
					c.Handshake(auth)
				}
				if n%2 == 0 {
					io.ReadFull(c, make([]byte, 100))
					c.Reset()
					return
				}
				if m, err := c.Next(); err == nil {
					r.add(m)
				}
			}}
			defer f.Close()
			c := testConfig{Config: Config{NoAck: true, Dial: f.Dial}}
			if helo {
				c.Auth.SharedKey = "k"
			}
			s := newTestClient(t, c)
			if res := s.sendOne(numbers(t, 0, 1000)); res.answered || res.err == nil {
				t.Errorf("%+v", res)
			}
			sendOK(t, s, numbers(t, 0, 1000))
			if got := r.get("forebay"); !slices.Equal(got, seq(0, 1000)) {
				t.Errorf("%d records", len(got))
			}
			// The batch consists of two messages. The server reads only the first.
			res := s.sendOne(numbers(t, 0, 20, "x", "y"))
			if res.answered {
				t.Errorf("%+v", res)
			}
			res = s.sendOne(numbers(t, 0, 20, "x", "y"))
			if open := res.Open.Append(nil, 20); !res.answered || !slices.Equal(open, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}) || res.Why == nil {
				t.Errorf("%+v", res)
			}
			s.close()
		})
	}
}

// Without acknowledgements, all messages to a server that keeps connections open use one
// connection. The client waits for the probe time only after the first message.
func TestKeptConnectionIsProbedOnce(t *testing.T) {
	for _, tags := range [][]string{nil, {"x", "y", "z"}} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
			s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, NoAck: true}})
			began := time.Now()
			for i := range 10 {
				sendOK(t, s, numbers(t, 10*i, 10*i+10, tags...))
			}
			if took := time.Since(began); took != probeMin || f.Conns() != 1 {
				t.Errorf("%s, %d connections", took, f.Conns())
			}
			s.close()
			f.Close()
			if n := len(r.get("forebay")) + len(r.get("x")) + len(r.get("y")) + len(r.get("z")); n != 100 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// The probe time is how long the client waits for a server to close the connection after the first
// message. It grows, up to probeMax, if the server repeatedly closes the connection later.
func TestProbeTimeGrowsForServersThatCloseLate(t *testing.T) {
	r := newRoster(make([]*server, 1))
	last := time.Duration(0)
	for range 10 {
		d := r.probeTime(0, 10*time.Millisecond)
		if d < last || d > probeMax {
			t.Errorf("%s after %s", d, last)
		}
		last = d
		r.recordEnd(0, time.Second)
	}
	if last != probeMax {
		t.Errorf("after many late ends: probe time %s", last)
	}
	r.recordEnd(0, time.Hour) // the server keeps the connection open
	if d := r.probeTime(0, 0); d != probeMin {
		t.Errorf("probe time %s after an hour", d)
	}

	bubble.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if m, err := c.Next(); err == nil {
				r.add(m)
				time.Sleep(200 * time.Millisecond)
			}
		}}
		defer f.Close()
		s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, NoAck: true}})
		for i := range 20 {
			s.sendOne(numbers(t, i, i+1))
			time.Sleep(time.Second) // time for the reader to notice the FIN
		}
		if got := r.get("forebay"); len(got) != 20 {
			t.Errorf("%v", got)
		}
		if d := s.roster.probeTime(0, 0); d < 200*time.Millisecond {
			t.Errorf("the probe time is %s", d)
		}
		s.close()
	})
}

// If a server announces keepalive=false and sends no acknowledgement, the session ends after
// AckTimeout.
func TestMissingAckEndsSessionOfOneMessageServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			c.Handshake(auth)
			c.Next()
			c.Ack(strings.Repeat("A", 24))
			c.Next()
		}}
		defer f.Close()
		s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, Auth: Auth{SharedKey: "k"}}})
		began := time.Now()
		res := s.sendOne(numbers(t, 0, 10))
		if res.answered || !errors.Is(res.err, errNoAck) || time.Since(began) != defaultAckTimeout {
			t.Errorf("%+v", res)
		}
		if st := s.Stats(); st.UnknownAcks != 1 || st.Lost != 1 {
			t.Errorf("%+v", st)
		}
		s.close()
	})
}

// A Logger sends each record once and in order to a server that announces keepalive=false, although
// each session accepts only one batch.
func TestLoggerSendsInOrderToOneMessageServers(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				if ok, _ := c.Handshake(auth); !ok {
					return
				}
				if m, err := c.Next(); err == nil {
					r.add(m)
					time.Sleep(time.Second)
					c.Ack(m.Chunk)
				}
			}}
			defer f.Close()
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, NoAck: noAck, Auth: Auth{SharedKey: "k"}}, OnError: func(e batch.Event) { t.Error(e) }})
			for i := range 10 {
				l.Post("x", map[string]any{"n": i})
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			if a := l.Account(); a.Delivered != 10 || !slices.Equal(r.get("x"), seq(0, 10)) {
				t.Errorf("%s: %v", a, r.get("x"))
			}
			closeLogger(t, l)
		})
	}
}
