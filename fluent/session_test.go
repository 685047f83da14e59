package fluent

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A missing acknowledgement ends the session, even if other frames were acknowledged. The server is
// then skipped for a random time between half of ReconnectMax and ReconnectMax.
func TestMissingAckEndsSessionAndSkipsServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var b received
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for n := 0; ; n++ {
				m, err := c.Next()
				if err != nil {
					return
				}
				if n < 2 {
					c.Ack(m.Chunk)
				}
			}
		}}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { b.ackAll(c) }}
		defer fa.Close()
		defer fb.Close()
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers:      []string{"a", "b"},
				ReconnectMax: time.Minute,
				Heartbeat:    -1,
				Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
					if addr[:1] == "a" {
						return fa.Dial(ctx, n, addr)
					}
					return fb.Dial(ctx, n, addr)
				},
			},
		})
		sendOK(t, s, numbers(t, 0, 1), numbers(t, 1, 2))
		began := time.Now()
		if res := s.sendOne(numbers(t, 2, 3)); res.answered || !errors.Is(res.err, errNoAck) {
			t.Errorf("%+v", res)
		}
		sendOK(t, s, numbers(t, 2, 3))
		if took := time.Since(began); took != defaultAckTimeout || !slices.Equal(b.get("forebay"), []int{2}) {
			t.Errorf("after %s: %v", took, b.get("forebay"))
		}
		seen := map[time.Duration]bool{}
		for range 20 {
			h := health{}
			h.recordSilence(time.Minute)
			d := time.Until(h.until)
			seen[d] = true
			if d < 30*time.Second || d > time.Minute {
				t.Errorf("skipped for %s", d)
			}
		}
		if len(seen) < 10 {
			t.Errorf("no jitter: %v", seen)
		}
		s.close()
		sendOK(t, s, numbers(t, 3, 4))
		if fa.Conns() != 1 {
			t.Error("the server is not skipped")
		}
		s.close()
		time.Sleep(time.Minute)
		if sendOK(t, s, numbers(t, 4, 5)); fa.Conns() != 2 {
			t.Error("the server is skipped for too long")
		}
		s.close()
	})
}

// If the server speaks another protocol, the error contains the first line that it sent, without
// secrets.
func TestErrorQuotesUnexpectedMessage(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	alert := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Write([]byte{0x15, 3, 1, 0, 2, 2, 10}); io.Copy(io.Discard, c) }}
	mail := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		c.Write([]byte("220 mail.test ESMTP\r\n"))
		io.Copy(io.Discard, c)
	}}
	mailAddr := listen(t, mail)
	echo := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Write([]byte("key is k3y, \x1b[31m\n")); io.Copy(io.Discard, c) }}
	bell := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Write([]byte("the key is k3y\n")); io.Copy(io.Discard, c) }}
	for _, tc := range []struct {
		name string
		c    testConfig
		text string
	}{
		{"web", testConfig{Config: Config{Servers: []string{web.Listener.Addr().String()}}}, `not the Forward protocol: it sent "HTTP/1.1 400 Bad Request"`},
		{"web, without acknowledgements", testConfig{Config: Config{Servers: []string{web.Listener.Addr().String()}, NoAck: true}}, `it sent "HTTP/1.1 400 Bad Request"`},
		{"TLS", testConfig{Config: Config{Servers: []string{listen(t, alert)}}}, "tls://"},
		{"mail", testConfig{Config: Config{Servers: []string{mailAddr}}}, `it sent "220 mail.test ESMTP"`},
		{"mail, with a handshake", testConfig{Config: Config{Servers: []string{mailAddr}, Auth: Auth{SharedKey: "k"}}}, `is not HELO: it sent "220 mail.test ESMTP"`},
		{"text with escape characters", testConfig{Config: Config{Servers: []string{listen(t, echo)}}}, "not the Forward protocol"},
		{"a secret", testConfig{Config: Config{Servers: []string{listen(t, bell)}, Auth: Auth{SharedKey: "k3y"}}}, `it sent "the key is (secret)"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.c.HandshakeTimeout = 20 * time.Second
			s := newTestClient(t, tc.c)
			res := s.sendOne(numbers(t, 0, 100))
			if res.answered || res.err == nil || !strings.Contains(res.err.Error(), tc.text) || strings.ContainsAny(res.err.Error(), "\x1b\n") || strings.Contains(res.err.Error(), "k3y") {
				t.Errorf("%v\nwant %s", res.err, tc.text)
			}
		})
	}
}

// A lateConn is a connection whose third write fails with a reset. Its input becomes readable only
// after that write.
type lateConn struct {
	net.Conn
	mu     sync.Mutex
	said   []byte
	writes int
	failed chan struct{}
	until  time.Time
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes++; c.writes == 3 {
		close(c.failed)
		return len(p) / 2, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	m, err := testkit.ParseForward(p)
	if err != nil {
		return 0, err
	}
	server, client := net.Pipe()
	go (&testkit.ForwardConn{Conn: server}).Ack(m.Chunk)
	buf := make([]byte, 100)
	n, _ := client.Read(buf)
	c.said = append(c.said, buf[:n]...)
	return len(p), nil
}

func (c *lateConn) Read(p []byte) (int, error) {
	<-c.failed
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return 0, os.ErrDeadlineExceeded
	}
	if len(c.said) == 0 {
		return 0, io.EOF // Write has returned the reset
	}
	n := copy(p, c.said[:min(len(c.said), 7)])
	c.said = c.said[n:]
	return n, nil
}

func (c *lateConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *lateConn) SetWriteDeadline(time.Time) error { return nil }

func (c *lateConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	return nil
}

// If acknowledgements arrive before a reset, their records are not sent again, even if a write
// fails before the acknowledgements are read.
func TestAcksBeforeAResetCount(t *testing.T) {
	s := newTestClient(t, testConfig{
		Config: Config{
			Compress: "gzip",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				nc, _ := net.Pipe()
				return &lateConn{Conn: nc, failed: make(chan struct{})}, nil
			},
		},
	})
	res := s.send(t.Context(), numbers(t, 0, 10), numbers(t, 10, 20), numbers(t, 20, 30))
	if !res[0].answered || !res[1].answered || res[2].answered || !errors.Is(res[2].err, syscall.ECONNRESET) {
		t.Errorf("%+v", res)
	}
}

// When the context of a session ends, every wait of the session ends: for dialing, writing and
// reading.
func TestContextEndsEveryWaitOfASession(t *testing.T) {
	for name, script := range map[string]func(c *testkit.ForwardConn, stop chan struct{}){
		"waiting for an ack": func(c *testkit.ForwardConn, stop chan struct{}) { c.Next(); <-stop },
		"being written":      func(c *testkit.ForwardConn, stop chan struct{}) { <-stop },
	} {
		for _, phase := range []string{"serving", "one message", "no ack"} {
			t.Run(name+", "+phase, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					stop := make(chan struct{})
					auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
					f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
						if phase == "one message" {
							c.Handshake(auth)
						}
						script(c, stop)
					}}
					conf := testConfig{Config: Config{Dial: f.Dial, NoAck: phase == "no ack"}}
					if phase == "one message" {
						conf.Auth.SharedKey = "k"
					}
					s := newTestClient(t, conf)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					res := s.send(ctx, numbers(t, 0, 100), numbers(t, 100, 200), numbers(t, 200, 300))
					if took := time.Since(start); took != time.Second {
						t.Errorf("took %v", took)
					}
					if res[2].answered || !errors.Is(res[2].err, context.DeadlineExceeded) {
						t.Errorf("%+v", res)
					}
					s.close()
					if time.Since(start) > time.Second {
						t.Error("Close waited for the server")
					}
					close(stop)
					f.Close()
				})
			})
		}
	}
	t.Run("dialling", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := newTestClient(t, testConfig{
				Config: Config{
					Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					},
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.open(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			start := time.Now()
			err := s.open(t.Context())
			if time.Since(start) != defaultDialTimeout || !strings.Contains(err.Error(), "no connection within 5s") {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	})
}

// Open returns when its context ends, even if Config.Dial does not return. A connection that Dial
// returns later is closed.
func TestOpenReturnsThoughDialIgnoresItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		client, server := net.Pipe()
		s := newTestClient(t, testConfig{
			Config: Config{
				Dial: func(context.Context, string, string) (net.Conn, error) {
					<-release
					return client, nil
				},
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.open(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(release)
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	})
}

// A hangingConn is a connection whose Read ignores deadlines and Close.
type hangingConn struct {
	net.Conn
	release chan struct{}
}

func (c hangingConn) Read([]byte) (int, error)    { <-c.release; return 0, io.EOF }
func (c hangingConn) Write(p []byte) (int, error) { return len(p), nil }
func (hangingConn) Close() error                  { return nil }
func (hangingConn) SetDeadline(time.Time) error   { return nil }

func (hangingConn) SetReadDeadline(time.Time) error  { return nil }
func (hangingConn) SetWriteDeadline(time.Time) error { return nil }

// Close returns within closeGrace, even if the connection's Read never returns.
func TestCloseReturnsThoughTheConnectionHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newTestClient(t, testConfig{Config: Config{Dial: func(context.Context, string, string) (net.Conn, error) { return hangingConn{release: release}, nil }}})
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.s.Send(numbers(t, 0, 10)); err != nil {
			t.Error(err)
		}
		start := time.Now()
		s.close()
		if took := time.Since(start); took > closeGrace {
			t.Errorf("Close took %s", took)
		}
		close(release)
	})
}

// A session in the phase leaving accepts no batches, receives the acknowledgements of earlier
// batches, and does not end by itself.
func TestLeavingSessionStillReceivesAcks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var a received
		up, step := false, make(chan struct{})
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { a.ackAll(c) }}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				<-step
				c.Ack(m.Chunk)
			}
		}}
		defer fa.Close()
		defer fb.Close()
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers:     []string{"a", "b"},
				AckTimeout:  time.Hour,
				IdleTimeout: -1,
				Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
					switch {
					case addr[:1] == "b":
						return fb.Dial(ctx, n, addr)
					case up:
						return fa.Dial(ctx, n, addr)
					}
					return nil, errors.New("connection refused")
				},
			},
		})
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		up = true
		time.Sleep(defaultFailback)
		first, second := numbers(t, 0, 10), numbers(t, 10, 20)
		if err := s.s.Send(first); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := s.s.Send(second); err == nil {
			t.Error("Send accepted a batch")
		}
		step <- struct{}{}
		if o, ok := s.l.wait(t.Context(), first); !ok || !o.Open.Empty() {
			t.Errorf("%+v", o)
		}
		select {
		case <-s.l.ended:
			t.Errorf("the session has ended: %v", s.l.err)
		default:
		}
		s.close()
		sendOK(t, s, second)
		if st := s.Stats(); !strings.HasPrefix(st.Server, "a:") || st.Lost != 0 || !slices.Equal(a.get("forebay"), seq(10, 20)) {
			t.Errorf("%+v", st)
		}
		s.close()
	})
}

// A session that ends without batches in flight is not counted as a lost connection in Stats. It
// may end because it was idle for IdleTimeout or because the server closed the connection.
func TestEndOfIdleSessionLosesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
			if n > 0 {
				time.Sleep(time.Minute)
				return
			}
			c.Next()
		}}
		defer f.Close()
		s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, IdleTimeout: 2 * time.Minute}})
		for i, clean := range []bool{true, false} {
			if err := s.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-s.l.ended
			if err := s.s.Send(numbers(t, 0, 1)); err == nil {
				t.Error("Send accepted a batch")
			}
			if (s.l.err == nil) != clean || holds(s.l.err) {
				t.Errorf("%d: %v", i, s.l.err)
			}
			s.close()
		}
		if st := s.Stats(); st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// The memory of a batch is not read after Send has returned, even if its records are not yet
// acknowledged.
func TestBatchMemoryIsReadOnlyDuringSend(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		var r received
		step := make(chan struct{})
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			m, err := c.Next()
			if err != nil {
				return
			}
			r.add(m)
			<-step
			if !noAck {
				c.Ack(m.Chunk)
			}
			c.Next()
		}}
		s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, NoAck: noAck}})
		b := numbers(t, 0, 100)
		w := s.awaited.add(b.At(7).Time, b.At(7).Data)
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.s.Send(b); err != nil {
			t.Fatal(err)
		}
		for _, rec := range b.All() {
			clear(rec.Data)
		}
		close(step)
		if o, ok := s.l.wait(t.Context(), b); !ok || !o.Open.Empty() {
			t.Errorf("%+v", o)
		}
		if acked, why := s.awaited.remove(w); !acked || why != nil {
			t.Errorf("the waiter has no outcome: %v", why)
		}
		r.await(t, 100)
		if !slices.Equal(r.get("forebay"), seq(0, 100)) {
			t.Error("the records that arrived differ from those of the batch")
		}
		s.close()
	}
}

// The type hostile is a server that, at random, closes connections and omits or delays
// acknowledgements. It stores the records that arrive.
type hostile struct {
	mu      sync.Mutex
	rng     *rand.Rand
	good    bool
	first   map[string][]int // records by tag, in the order of their first copies
	arrived map[int]bool
}

func (h *hostile) roll(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.good {
		return -1
	}
	return h.rng.IntN(n)
}

func (h *hostile) arrive(m *testkit.ForwardMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range m.Entries {
		n := recordNumber(e)
		if !h.arrived[n] {
			h.first[m.Tag] = append(h.first[m.Tag], n)
		}
		h.arrived[n] = true
	}
}

func (h *hostile) serve(_ int, c *testkit.ForwardConn) {
	var held []string
	for {
		roll := h.roll(30)
		if roll == 0 {
			c.Read(make([]byte, 50))
			c.Reset()
			return
		}
		m, err := c.Next()
		if err != nil {
			return
		}
		switch roll {
		case 1:
			c.Reset()
			return
		case 2:
			h.arrive(m)
			c.Reset()
			return
		case 3:
			h.arrive(m)
			c.Ack(m.Chunk)
			return
		}
		h.arrive(m)
		if held = append(held, m.Chunk); roll >= 0 && roll < 15 {
			continue
		}
		h.mu.Lock()
		h.rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		h.mu.Unlock()
		for _, id := range held {
			c.Ack(id)
		}
		held = held[:0]
	}
}

// Even with hostile servers, every record that a session reports as delivered has arrived. If the
// other records are sent again, the first copies of the records of each tag arrive in order.
func TestSettledRecordsArriveDespiteHostileServers(t *testing.T) {
	for seed := range testkit.Walks(t, 6) {
		rng := testkit.Rand(seed)
		h := &hostile{rng: testkit.Rand(seed + 1<<32), first: map[string][]int{}, arrived: map[int]bool{}}
		f := &testkit.Forward{Script: h.serve}
		c := testConfig{Config: Config{Servers: []string{listen(t, f)}, FrameBytes: 100 << rng.IntN(4), AckTimeout: 20 * time.Millisecond}}
		if rng.IntN(2) == 0 {
			c.Compress = "gzip"
		}
		s := newTestClient(t, c)
		var open []int
		next := 0
		for round := 0; round < 60 || len(open) > 0; round++ {
			if round == 60 {
				h.mu.Lock()
				h.good = true
				h.mu.Unlock()
			}
			for len(open) < 40 && round < 60 {
				open = append(open, next)
				next++
			}
			var bs []*batch.Batch
			var of [][]int
			for rest := open; len(rest) > 0; {
				n := min(1+rng.IntN(20), len(rest))
				b := &batch.Batch{Codec: Codec()}
				for _, x := range rest[:n] {
					one := numbers(t, x, x+1, "a", "b", "a", "a")
					b.Append(one.At(0).Data, uint64(x+1), one.At(0).Meta)
				}
				bs, of = append(bs, b), append(of, rest[:n])
				rest = rest[n:]
			}
			settled := map[int]bool{}
			for i, r := range s.send(t.Context(), bs...) {
				if r.answered && !r.Refused.Empty() {
					t.Fatalf("refused: %+v", r)
				}
				for _, k := range r.settled(len(of[i])) {
					settled[of[i][k]] = true
				}
			}
			h.mu.Lock()
			for n := range settled {
				if !h.arrived[n] {
					t.Errorf("record %d is settled but has not arrived", n)
				}
			}
			h.mu.Unlock()
			open = slices.DeleteFunc(slices.Clone(open), func(n int) bool { return settled[n] })
			if round > 1000 {
				t.Fatal("no further record was settled")
			}
		}
		s.close()
		f.Close()
		for tag, ns := range h.first {
			if !slices.IsSorted(ns) {
				t.Errorf("%s: first copies: %v", tag, ns)
			}
		}
		if len(h.arrived) != next || t.Failed() {
			t.Fatalf("%d of %d arrived", len(h.arrived), next)
		}
	}
}
