package fluent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/transport"
)

// With the zero Config, a Logger connects to 127.0.0.1:24224, has 4 MiB of memory, and sends frames
// of about 64 KiB with acknowledgements. While the server is down, every drop is counted, and only
// one Post waits.
func TestZeroConfigDefaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		addrs := map[string]bool{}
		up := false
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		defer f.Close()
		l := newTestLogger(t, testConfig{
			Config: Config{
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					addrs[network+" "+addr] = true
					if !up {
						return nil, errors.New("connection refused")
					}
					return f.Dial(ctx, network, addr)
				},
			},
		})
		s := l.Stats().Slab
		if s.SlabBytes*s.SlabCount != 4<<20 {
			t.Errorf("%d × %d bytes of memory", s.SlabCount, s.SlabBytes)
		}
		start, dropped, n := time.Now(), 0, 0
		for dropped < 10 {
			if err := l.Post("t", map[string]any{"n": n, "text": strings.Repeat("x", 300)}); errors.Is(err, slab.ErrDropped) {
				dropped++
			} else if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if took := time.Since(start); took != 250*time.Millisecond {
			t.Errorf("Post waited for %v", took)
		}
		if l.Account().Dropped[batch.Full] != 10 {
			t.Errorf("%s", l.Account())
		}
		mu.Lock()
		up = true
		mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if rep, err := l.Close(ctx); err != nil || rep.Delivered != uint64(n-10) {
			t.Errorf("%v: %s", err, rep.Account)
		}
		if len(addrs) != 1 || !addrs["tcp 127.0.0.1:24224"] {
			t.Errorf("%v", addrs)
		}
		full := 0
		for _, m := range r.messages() {
			if m.Chunk == "" || m.Total > 65<<10 {
				t.Errorf("a frame of %d bytes, chunk %q", m.Total, m.Chunk)
			}
			if m.Total > 60<<10 {
				full++
			}
		}
		if full < len(r.messages())/2 {
			t.Errorf("%d of %d frames have about 64 KiB", full, len(r.messages()))
		}
		r.check(t)
	})
}

// At most Window batches are in flight.
func TestWindowBoundsUnackedBatches(t *testing.T) {
	for _, window := range []int{0, 1, 7} {
		bubble.Test(t, func(t *testing.T) {
			acks := make(chan struct{})
			var mu sync.Mutex
			arrived := 0
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				ids := make(chan string, 100)
				go func() {
					for id := range ids {
						<-acks
						c.Ack(id)
					}
				}()
				defer close(ids)
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					mu.Lock()
					arrived++
					mu.Unlock()
					ids <- m.Chunk
				}
			}}
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, Window: window, FrameBytes: 1 << 10}, SlabBytes: 1 << 10, MaxRecord: 700, BufferBytes: 64 << 10})
			want := window
			if want == 0 {
				want = 4
			}
			const n = 20
			for range n { // each record fills a slab and a frame
				if err := l.Post("t", strings.Repeat("x", 600)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				time.Sleep(time.Second)
				synctest.Wait()
				mu.Lock()
				if now := min(want+i, n); arrived != now {
					t.Errorf("window %d: %d frames after %d acknowledgements", window, arrived, i)
				}
				mu.Unlock()
				acks <- struct{}{}
			}
			closeLogger(t, l)
			f.Close()
		})
	}
}

// The end of an idle connection is noticed immediately, before a batch is written to it.
func TestServerCloseOfIdleConnectionIsNoticed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
			if n > 0 {
				r.ackAll(c)
				return
			}
			if m, err := c.Next(); err == nil {
				r.add(m)
				c.Ack(m.Chunk)
			}
			time.Sleep(time.Second) // the server then closes with FIN
		}}
		s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial}})
		sendOK(t, s, numbers(t, 0, 10))
		if s.Stats().Server == "" {
			t.Error("no session is open")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.Stats().Server != "" {
			t.Error("the session did not notice the end of the connection")
		}
		sendOK(t, s, numbers(t, 10, 20))
		if st := s.Stats(); st.Lost != 0 || st.Connects != 2 || !slices.Equal(r.get("forebay"), seq(0, 20)) {
			t.Errorf("%+v, %v", st, r.get("forebay"))
		}
		s.close()
		f.Close()
	})
}

// If a server is down, its skip time doubles with each attempt up to ReconnectMax, with jitter.
// Each attempt resolves the host name again. After a successful connection, the skip time is
// ReconnectMin again.
func TestSkipTimeDoublesUpToReconnectMax(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var at []time.Time
		up := false
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if m, err := c.Next(); err == nil {
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers:      []string{"logs.test", "other.test"},
				ReconnectMin: time.Second,
				ReconnectMax: 8 * time.Second,
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr == "other.test:24224" {
						return f.Dial(ctx, network, addr)
					}
					if at = append(at, time.Now()); addr != "logs.test:24224" {
						t.Errorf("%s %s", network, addr)
					}
					if up {
						return f.Dial(ctx, network, addr)
					}
					return nil, errors.New("connection refused")
				},
			},
		})
		for len(at) < 12 {
			sendOK(t, s, numbers(t, 0, 1))
			s.close()
			time.Sleep(20 * time.Millisecond)
		}
		seen := map[time.Duration]bool{}
		for i := 1; i < len(at); i++ {
			most := min(time.Second<<(i-1), 8*time.Second)
			d := at[i].Sub(at[i-1])
			if d < most/2 || d > most+40*time.Millisecond {
				t.Errorf("attempt %d after %v, want %v to %v", i, d, most/2, most)
			}
			seen[d] = true
		}
		if len(seen) < 6 {
			t.Errorf("no jitter: %v", seen)
		}
		up = true
		time.Sleep(8 * time.Second)
		sendOK(t, s, numbers(t, 0, 1))
		s.close()
		up, at = false, nil
		for len(at) < 2 {
			sendOK(t, s, numbers(t, 0, 1))
			s.close()
			time.Sleep(20 * time.Millisecond)
		}
		if d := at[1].Sub(at[0]); d > time.Second+2*time.Millisecond {
			t.Errorf("after a connection the first delay is %v, want %v at most", d, time.Second)
		}
		s.close()
	})
}

// With IntegerTime, the time of an entry is in whole seconds instead of an EventTime.
func TestIntegerTimeWritesWholeSeconds(t *testing.T) {
	for _, integer := range []bool{false, true} {
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, IntegerTime: integer}})
		at := time.Unix(1_700_000_000, 123_456_789)
		if err := l.PostWithTime("t", at, map[string]any{"n": 1}); err != nil {
			t.Fatal(err)
		}
		closeLogger(t, l)
		if len(r.messages()) != 1 {
			t.Fatal("nothing arrived")
		}
		_, b, _ := msgpack.Next(r.messages()[0].Entries[0])
		tok, _, _ := msgpack.Next(b)
		got, ok := msgpack.EventTime(&tok)
		if integer && (tok.Kind != msgpack.Uint || int64(tok.Num) != at.Unix()) || !integer && (!ok || !got.Equal(at)) {
			t.Errorf("IntegerTime %v: %+v", integer, tok)
		}
	}
}

// The client sends the host name of the server (SNI) and accepts no TLS version below MinVersion.
func TestTLSSendsServerNameAndHonorsMinVersion(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "logs.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		server, min string
		max         uint16
		works       bool
	}{
		{"logs.test:24224", "", tls.VersionTLS12, true}, {"logs.test:24224", "1.3", tls.VersionTLS12, false},
		{"logs.test:24224", "1.3", tls.VersionTLS13, true}, {"logs.test:24224", "", tls.VersionTLS11, false},
	} {
		var r received
		names := make(chan string, 10)
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.Serve(tls.NewListener(l, &tls.Config{
			MinVersion: tls.VersionTLS10, MaxVersion: tc.max,
			GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				names <- h.ServerName
				return &pair, nil
			},
		}))
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers: []string{"tls://" + tc.server},
				TLS:     transport.TLS{CAFile: a.file, MinVersion: tc.min},
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr != tc.server {
						t.Error(addr)
					}
					return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
				},
			},
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = s.send(ctx, numbers(t, 0, 10))[0].err
		cancel()
		if (err == nil) != tc.works {
			t.Errorf("%+v: %v", tc, err)
		}
		if tc.works && <-names != "logs.test" {
			t.Error("the name of the server was not sent")
		}
		s.close()
		f.Close()
	}
}
