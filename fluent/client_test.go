package fluent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

var pools = poolcheck.Use{Pool: &scratch, Make: newScratch}

func TestMain(m *testing.M) { goleak.VerifyTestMain(poolcheck.Tests(m, pools)) }

// received collects what a peer was sent: the field n of the records, by tag.
type received struct {
	mu     sync.Mutex
	byTag  map[string][]int
	frames []*testkit.ForwardMessage
	errs   []error
}

func (r *received) add(m *testkit.ForwardMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byTag == nil {
		r.byTag = map[string][]int{}
	}
	r.frames = append(r.frames, m)
	for _, e := range m.Entries {
		r.byTag[m.Tag] = append(r.byTag[m.Tag], number1(e))
	}
}

func (r *received) get(tag string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byTag[tag])
}

func (r *received) messages() []*testkit.ForwardMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.frames)
}

func (r *received) fault(err error) {
	if err != nil && !isGone(err) {
		r.mu.Lock()
		r.errs = append(r.errs, err)
		r.mu.Unlock()
	}
}

func (r *received) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.errs {
		t.Errorf("peer: %v", err)
	}
}

// number1 returns the field n of an entry {"n": …}.
func number1(entry []byte) int {
	_, b, _ := msgpack.Next(entry)
	_, b, _ = msgpack.Next(b)
	_, b, _ = msgpack.Next(b)
	_, b, _ = msgpack.Next(b)
	v, _, _ := msgpack.Next(b)
	return int(v.Num)
}

// obedient reads and acknowledges until the connection ends.
func (r *received) obedient(c *testkit.ForwardConn) {
	for {
		m, err := c.Next()
		if err != nil {
			r.fault(err)
			return
		}
		r.add(m)
		if m.Chunk != "" && c.Ack(m.Chunk) != nil {
			return
		}
	}
}

func listen(t *testing.T, f *testkit.Forward) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Serve(l)
	t.Cleanup(f.Close)
	return l.Addr().String()
}

func newTestClient(t *testing.T, c Config) *Client {
	t.Helper()
	s, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ctx)
	})
	return s
}

// numbers returns a batch of records {"n": from…to-1}, all with one tag, or in
// turn with several.
func numbers(t testing.TB, from, to int, tags ...string) *batch.Batch {
	t.Helper()
	var b batch.Builder
	for n := from; n < to; n++ {
		rec, err := AppendEvent(nil, time.Unix(int64(n), 0), map[string]any{"n": n})
		if err != nil {
			t.Fatal(err)
		}
		stream := uint32(noTag)
		if len(tags) > 0 {
			if stream, err = streamOf(tags[n%len(tags)]); err != nil {
				t.Fatal(err)
			}
		}
		b.Append(rec, uint64(n+1), batch.Meta{Stream: stream})
	}
	return b.Batch(Codec())
}

func seq(from, to int) (s []int) {
	for ; from < to; from++ {
		s = append(s, from)
	}
	return s
}

func sendOK(t *testing.T, s *Client, b *batch.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Send(ctx, b); err != nil {
		t.Fatal(err)
	}
}

func TestSendWithAndWithoutAcksAndGzip(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		for _, zip := range []string{"", "gzip"} {
			t.Run(fmt.Sprintf("noAck=%v/%s", noAck, zip), func(t *testing.T) {
				var r received
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.obedient(c) }}
				s := newTestClient(t, Config{Servers: []string{listen(t, f)}, NoAck: noAck, Compress: zip, Tag: "own"})
				sendOK(t, s, numbers(t, 0, 1000))
				sendOK(t, s, numbers(t, 1000, 1100, "a", "b", "c"))
				if err := s.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				f.Close() // waits until the peer has read everything
				if got := r.get("own"); !noAck && !slices.Equal(got, seq(0, 1000)) {
					t.Errorf("%d records of the sink's own tag", len(got))
				}
				for i, tag := range []string{"a", "b", "c"} {
					var want []int
					for n := 1000; n < 1100; n++ {
						if n%3 == i {
							want = append(want, n)
						}
					}
					if got := r.get(tag); !noAck && !slices.Equal(got, want) {
						t.Errorf("tag %s: %v", tag, got)
					}
				}
				for _, m := range r.messages() {
					if m.Compressed != zip || (m.Chunk == "") != noAck || m.Payload == 0 {
						t.Errorf("%+v", m)
					}
				}
				r.check(t)
			})
		}
	}
}

func TestFramesStayBelowTheirLimits(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.obedient(c) }}
	s := newTestClient(t, Config{Servers: []string{listen(t, f)}, FrameBytes: 2000, MaxFrameBytes: 20000})
	var b batch.Builder
	sizes := []int{100, 1500, 600, 5000, 10, 18500, 30000, 20}
	for i, n := range sizes {
		rec, _ := AppendEvent(nil, time.Unix(1, 0), map[string]any{"n": i, "x": strings.Repeat("x", n)})
		b.Append(rec, 0, batch.Meta{})
	}
	err := s.Send(context.Background(), b.Batch(Codec()))
	if e := batch.Inspect(err); e.Kind != batch.KindReject || !slices.Equal(e.Records, []int{6}) {
		t.Errorf("%v: %+v", err, e)
	}
	total := 0
	for _, m := range r.messages() {
		total += len(m.Entries)
		if m.Total > 20000 || len(m.Entries) > 1 && m.Payload > 2000 {
			t.Errorf("frame of %d bytes, %d of payload, %d entries", m.Total, m.Payload, len(m.Entries))
		}
	}
	if total != len(sizes)-1 {
		t.Errorf("%d records arrived", total)
	}
	// A whole batch of one large tag is cut as well.
	sendOK(t, s, numbers(t, 0, 2000))
	for _, m := range r.messages() {
		if len(m.Entries) > 1 && m.Payload > 2000 {
			t.Errorf("frame of %d bytes of payload", m.Payload)
		}
	}
}

func TestForeignRecordsAndUnknownStreamsAreRefused(t *testing.T) {
	s := newTestClient(t, Config{Servers: []string{"127.0.0.1:1"}})
	var b batch.Builder
	b.Append([]byte("{}\n"), 0, batch.Meta{})
	err := s.Send(context.Background(), b.Batch(otherCodec{Codec()}))
	if e := batch.Inspect(err); e.Kind != batch.KindReject || !strings.Contains(err.Error(), "application/x-other") {
		t.Error(err)
	}
	if s.Accepts("application/x-ndjson") || !s.Accepts(ContentType) {
		t.Error("Accepts")
	}
	for _, id := range []uint32{invalidTag, 1 << 30} {
		b.Reset()
		b.Append([]byte{0x92, 1, 0x80}, 0, batch.Meta{Stream: id})
		err = s.Send(context.Background(), b.Batch(Codec()))
		if e := batch.Inspect(err); e.Kind != batch.KindReject {
			t.Error(err)
		}
	}
}

type otherCodec struct{ batch.Codec }

func (otherCodec) ContentType() string { return "application/x-other" }

// Chunks keep their ids when they are sent again.
func TestChunkIDsAreKeptAcrossResends(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			mu.Lock()
			ids = append(ids, m.Chunk)
			mu.Unlock()
			if n < 2 {
				return // no answer
			}
			c.Ack(m.Chunk)
		}
	}}
	s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
	b := numbers(t, 0, 10)
	for range 2 {
		if err := s.Send(context.Background(), b); err == nil || !batch.Retryable(err) {
			t.Fatal(err)
		}
	}
	sendOK(t, s, b)
	sendOK(t, s, numbers(t, 10, 20))
	if len(ids) != 4 || ids[0] != ids[1] || ids[1] != ids[2] || ids[2] == ids[3] || len(ids[0]) != 24 {
		t.Errorf("%q", ids)
	}
}

// Equal records in flight at once have different ids.
func TestEqualContentInFlight(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		var ids []string
		for range 2 {
			m, err := c.Next()
			if err != nil {
				return
			}
			r.add(m)
			ids = append(ids, m.Chunk)
		}
		if ids[0] == ids[1] {
			r.fault(errors.New("same id"))
		}
		for _, id := range ids {
			c.Ack(id)
		}
		c.Next()
	}}
	s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
	b := numbers(t, 0, 5)
	done := make(chan error, 2)
	for range 2 {
		s.Start(context.Background(), b, func(err error) { done <- err })
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	r.check(t)
}

func TestAcksOutOfOrderAndUnknown(t *testing.T) {
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		var ids []string
		for range 4 {
			m, err := c.Next()
			if err != nil {
				return
			}
			ids = append(ids, m.Chunk)
		}
		c.Ack("no such chunk of ours....")
		c.Ack(strings.Repeat("A", 24))
		for _, i := range []int{2, 0, 0, 3, 1} {
			c.Ack(ids[i])
		}
		c.Next()
	}}
	s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		s.Start(context.Background(), numbers(t, 10*i, 10*i+10), func(err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			order = append(order, i)
		})
	}
	wg.Wait()
	if len(order) != 4 {
		t.Errorf("answers: %v", order)
	}
	if st := s.Stats(); st.UnknownAcks != 2 || st.Acks != 4 {
		t.Errorf("%+v", st)
	}
}

// Of each tag only what comes before the first chunk without an answer is settled.
func TestPartOfABatchIsAcknowledged(t *testing.T) {
	for missing, want := range [][]int{
		{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}, // what came behind it of its tag is sent again
		{10, 12, 14, 16, 18},
		{1, 3, 5, 7, 9, 11, 13, 15, 17, 19},
	} {
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for i := range 4 {
				m, err := c.Next()
				if err != nil {
					return
				}
				if i != missing { // frames: a, a, b, b
					c.Ack(m.Chunk)
				}
			}
		}}
		s := newTestClient(t, Config{Servers: []string{listen(t, f)}, FrameBytes: 5 * len(mustEntry(t, 0))})
		err := s.Send(context.Background(), numbers(t, 0, 20, "a", "b"))
		e := batch.Inspect(err)
		if e.Kind != batch.KindPartial || !slices.Equal(e.Records, want) {
			t.Errorf("%d: %v: %+v", missing, err, e)
		}
	}
}

func mustEntry(t *testing.T, n int) []byte {
	b := numbers(t, n, n+1)
	return b.At(0).Data
}

func TestEndsOfConnections(t *testing.T) {
	for name, script := range map[string]func(c *testkit.ForwardConn){
		"FIN at once":           func(c *testkit.ForwardConn) {},
		"RST at once":           func(c *testkit.ForwardConn) { c.Reset() },
		"RST within a frame":    func(c *testkit.ForwardConn) { io.ReadFull(c, make([]byte, 100)); c.Reset() },
		"FIN without an answer": func(c *testkit.ForwardConn) { c.Next() },
		"garbage":               func(c *testkit.ForwardConn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); c.Next(); c.Next() },
		"0xc1":                  func(c *testkit.ForwardConn) { c.Write([]byte{0xc1}); c.Next(); c.Next() },
		"endless message": func(c *testkit.ForwardConn) {
			c.Write(append([]byte{0xdb, 0, 1, 0, 0}, make([]byte, maxMessage+1)...))
			c.Next()
			c.Next()
		},
		"ack is no id": func(c *testkit.ForwardConn) { c.Next(); c.Write([]byte{0x81, 0xa3, 'a', 'c', 'k', 7}) },
		"half an ack":  func(c *testkit.ForwardConn) { c.Next(); c.Write([]byte{0x81, 0xa3, 'a'}) },
	} {
		t.Run(name, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
				if n == 0 {
					script(c)
					return
				}
				r.obedient(c)
			}}
			s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
			err := s.Send(context.Background(), numbers(t, 0, 3000))
			if err != nil && !batch.Retryable(err) {
				t.Fatalf("%v", err)
			}
			for tries := 0; err != nil && tries < 5; tries++ { // the end may be seen before anything is written
				time.Sleep(batch.Inspect(err).After)
				err = s.Send(context.Background(), numbers(t, 0, 3000))
			}
			if got := r.get("forebay"); !slices.Equal(got, seq(0, 3000)) {
				t.Errorf("%d records", len(got))
			}
		})
	}
}

// What is started before its caller can know of a failure is behind it, too.
func TestStartBesideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r received
		die := make(chan struct{})
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
			if n > 0 {
				r.obedient(c)
				return
			}
			c.Next()
			<-die
		}}
		defer f.Close()
		s := newTestClient(t, Config{Dial: f.Dial})
		telling, told := make(chan struct{}), make(chan struct{})
		s.Start(t.Context(), numbers(t, 0, 10), func(err error) {
			if err == nil {
				t.Error("settled")
			}
			close(telling)
			<-told
		})
		synctest.Wait() // it is written: the sender has nothing to do with what follows
		close(die)
		<-telling
		second := make(chan error, 1)
		s.Start(t.Context(), numbers(t, 10, 20), func(err error) { second <- err })
		if err := <-second; !errors.Is(err, errBehind) {
			t.Error(err)
		}
		sendOK(t, s, numbers(t, 0, 10)) // who sends again what has failed knows of it
		sendOK(t, s, numbers(t, 10, 20))
		close(told)
		if got := r.get("forebay"); !slices.Equal(got, seq(0, 20)) {
			t.Error(got)
		}
	})
}

// What is queued behind a failure is not sent: it would be out of order.
func TestNothingIsSentBehindAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r received
		release := make(chan struct{})
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
			if n > 0 {
				r.obedient(c)
				return
			}
			c.Next()
			<-release
		}}
		defer f.Close()
		s := newTestClient(t, Config{Dial: f.Dial})
		done := make(chan error, 4)
		for i := range 4 {
			s.Start(context.Background(), numbers(t, 10*i, 10*i+10), func(err error) { done <- err })
		}
		synctest.Wait()
		close(release)
		for range 4 {
			if err := <-done; err == nil {
				t.Error("settled")
			}
		}
		if got := r.get("forebay"); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
		for i := range 4 {
			sendOK(t, s, numbers(t, 10*i, 10*i+10))
		}
		if got := r.get("forebay"); !slices.Equal(got, seq(0, 40)) {
			t.Errorf("%v", got)
		}
		s.Close(context.Background())
	})
}

func TestTimeouts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script func(c *testkit.ForwardConn, stop chan struct{})
		c      Config
		took   time.Duration
		text   string
	}{
		{"no ack", func(c *testkit.ForwardConn, stop chan struct{}) { c.Next(); <-stop }, Config{}, DefaultAckTimeout, "no acknowledgement in time"},
		{"another's ack", func(c *testkit.ForwardConn, stop chan struct{}) {
			c.Next()
			c.Ack("bm90IHlvdXJzIG5vdCB5b3Vycw==")
			<-stop
		}, Config{AckTimeout: time.Second}, time.Second, "no acknowledgement"},
		{"stalled read", func(c *testkit.ForwardConn, stop chan struct{}) { <-stop }, Config{WriteTimeout: 2 * time.Second}, 2 * time.Second, "did not read a batch within 2s"},
		{"slow read", func(c *testkit.ForwardConn, stop chan struct{}) {
			for {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}, Config{}, DefaultWriteTimeout, "did not read a batch"},
		{"no HELO", func(c *testkit.ForwardConn, stop chan struct{}) { <-stop }, Config{SharedKey: "k"}, DefaultHandshakeTimeout, "not finished within 5s"},
		{"HELO drop by drop", func(c *testkit.ForwardConn, stop chan struct{}) {
			for _, x := range (&testkit.ForwardAuth{Nonce: make([]byte, 200)}).HELO() {
				if _, err := c.Write([]byte{x}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, Config{SharedKey: "k"}, DefaultHandshakeTimeout, "not finished within 5s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { tc.script(c, stop) }}
				tc.c.Dial = f.Dial
				s := newTestClient(t, tc.c)
				start := time.Now()
				err := s.Send(context.Background(), numbers(t, 0, 100))
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if err == nil || !strings.Contains(err.Error(), tc.text) || !batch.Retryable(err) {
					t.Errorf("%v", err)
				}
				close(stop)
				s.Close(context.Background())
				f.Close()
			})
		})
	}
}

func TestIdleConnectionsAreClosedAndTheEndIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) { r.obedient(c) }}
		defer f.Close()
		s := newTestClient(t, Config{Dial: f.Dial, IdleTimeout: time.Minute})
		sendOK(t, s, numbers(t, 0, 1))
		time.Sleep(59 * time.Second)
		if s.Stats().Server == "" {
			t.Error("closed too early")
		}
		sendOK(t, s, numbers(t, 1, 2))
		time.Sleep(59 * time.Second)
		if s.Stats().Server == "" || f.Conns() != 1 {
			t.Error("closed too early")
		}
		time.Sleep(2 * time.Second)
		if s.Stats().Server != "" {
			t.Error("not closed")
		}
		sendOK(t, s, numbers(t, 2, 3))
		if f.Conns() != 2 || s.Stats().Lost != 0 {
			t.Errorf("%d connections, %+v", f.Conns(), s.Stats())
		}
		s.Close(context.Background())
	})
}

func TestContextEndsWhatIsUnderWay(t *testing.T) {
	for name, script := range map[string]func(c *testkit.ForwardConn, stop chan struct{}){
		"waiting for an ack": func(c *testkit.ForwardConn, stop chan struct{}) { c.Next(); <-stop },
		"being written":      func(c *testkit.ForwardConn, stop chan struct{}) { <-stop },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { script(c, stop) }}
				s := newTestClient(t, Config{Dial: f.Dial})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				done := make(chan error, 3)
				for range 3 {
					s.Start(ctx, numbers(t, 0, 100), func(err error) { done <- err })
				}
				start := time.Now()
				for range 3 {
					if err := <-done; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errBehind) {
						t.Error(err)
					}
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				close(stop)
				s.Close(context.Background())
				f.Close()
			})
		})
	}
	t.Run("dialing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newTestClient(t, Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := s.Send(ctx, numbers(t, 0, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			start := time.Now()
			err := s.Send(context.Background(), numbers(t, 0, 1))
			if time.Since(start) != DefaultDialTimeout || !strings.Contains(err.Error(), "no connection within 5s") {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			s.Close(context.Background())
		})
	})
}

func TestCloseOfTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Next(); <-stop }}
		s := newTestClient(t, Config{Dial: f.Dial})
		done := make(chan error, 4)
		for range 4 {
			s.Start(context.Background(), numbers(t, 0, 100), func(err error) { done <- err })
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := s.Close(ctx); err == nil {
					t.Error("nothing said of batches without an answer")
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		for range 4 {
			if err := <-done; err == nil {
				t.Error("settled")
			}
		}
		if err := s.Send(context.Background(), numbers(t, 0, 1)); !errors.Is(err, ErrClosed) || !errors.Is(err, batch.ErrClosed) {
			t.Error(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		close(stop)
		f.Close()
	})
}

// A Config.Dial that heeds no context does not hold Close.
func TestCloseWhileDialIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newTestClient(t, Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			<-release
			return nil, errors.New("connection refused")
		}})
		done := make(chan error, 1)
		s.Start(context.Background(), numbers(t, 0, 100), func(err error) { done <- err })
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			start := time.Now()
			if err := s.Close(ctx); err == nil || time.Since(start) > time.Second+closeGrace {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			cancel()
		}
		close(release)
		if err := <-done; err == nil {
			t.Error("settled")
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestFailoverAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		down := map[string]bool{}
		var a, b received
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { a.obedient(c) }}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { b.obedient(c) }}
		defer fa.Close()
		defer fb.Close()
		set := func(name string, v bool) {
			mu.Lock()
			defer mu.Unlock()
			down[name] = v
		}
		s := newTestClient(t, Config{Servers: []string{"a", "b"}, Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if down[addr[:1]] {
				return nil, errors.New("connection refused")
			}
			if addr[:1] == "a" {
				return fa.Dial(ctx, n, addr)
			}
			return fb.Dial(ctx, n, addr)
		}})
		set("a", true)
		sendOK(t, s, numbers(t, 0, 10))
		if st := s.Stats(); !strings.HasPrefix(st.Server, "b:") {
			t.Errorf("%+v", st)
		}
		set("a", false)
		time.Sleep(30 * time.Second)
		sendOK(t, s, numbers(t, 10, 20))
		if len(a.get("forebay")) > 0 {
			t.Error("returned too early")
		}
		time.Sleep(31 * time.Second)
		sendOK(t, s, numbers(t, 20, 30)) // finds out that a is back
		synctest.Wait()
		sendOK(t, s, numbers(t, 30, 40))
		if st := s.Stats(); !strings.HasPrefix(st.Server, "a:") || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
		if got := slices.Concat(b.get("forebay"), a.get("forebay")); !slices.Equal(got, seq(0, 40)) {
			t.Errorf("%v", got)
		}
		set("a", true)
		set("b", true)
		s.fail(s.conn, errors.New("test"))
		err := s.Send(context.Background(), numbers(t, 40, 50))
		if e := batch.Inspect(err); e.Kind != batch.KindRetry || e.After <= 0 || !strings.Contains(err.Error(), "a:24224") || !strings.Contains(err.Error(), "b:24224") {
			t.Errorf("%v", err)
		}
		s.Close(context.Background())
	})
}

// A server that takes connections and nothing else is passed over.
func TestFailoverFromAServerThatOnlyAccepts(t *testing.T) {
	var bad, good received
	fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		if m, err := c.Next(); err == nil {
			bad.add(m)
		}
	}}
	fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { good.obedient(c) }}
	s := newTestClient(t, Config{Servers: []string{listen(t, fa), listen(t, fb)}})
	if err := s.Send(context.Background(), numbers(t, 0, 10)); err == nil {
		t.Fatal("settled")
	}
	sendOK(t, s, numbers(t, 0, 10))
	if !slices.Equal(good.get("forebay"), seq(0, 10)) {
		t.Error(good.get("forebay"))
	}
}

// A server is passed over for at least half of what is due, however long that is
// and however often it failed.
func TestPassedOverForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lo := range []time.Duration{100 * time.Millisecond, 5 * time.Second, time.Minute, 100 * time.Hour, math.MaxInt64 / 4} {
			var down, mute server
			for n := range 40 {
				time.Sleep(time.Second)
				down.failed(io.EOF, lo, 2*lo)
				want := time.Duration(min(2, n+1)) * lo
				if d := time.Until(down.until); d < want/2 || d > want {
					t.Fatalf("%s: passed over for %s after %d failures", lo, d, n+1)
				}
				mute.silent(io.EOF, lo)
				if d := time.Until(mute.until); d < min(lo, muteMax)/2 || d > muteMax {
					t.Fatalf("%s: passed over for %s after %d mute connections", lo, d, n+1)
				}
			}
		}
	})
}

// A first server that takes connections and acknowledges nothing is tried again
// ever more seldom; once it acknowledges, it is used.
func TestFailoverFromAServerThatStaysMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b received
		var well atomic.Bool
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if well.Load() {
				a.obedient(c)
			}
			for {
				if _, err := c.Next(); err != nil {
					return
				}
			}
		}}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { b.obedient(c) }}
		defer fa.Close()
		defer fb.Close()
		s := newTestClient(t, Config{Servers: []string{"a", "b"}, Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
			if addr[:1] == "a" {
				return fa.Dial(ctx, n, addr)
			}
			return fb.Dial(ctx, n, addr)
		}})
		send := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				for s.Send(context.Background(), numbers(t, 0, 1)) != nil {
				}
			}
		}
		send(2 * time.Hour)
		if n := fa.Conns(); n < 4 || n > 30 {
			t.Errorf("the mute server was tried %d times in two hours", n)
		}
		if st := s.Stats(); !strings.HasPrefix(st.Server, "b:") {
			t.Errorf("%+v", st)
		}
		well.Store(true)
		send(20 * time.Minute)
		if st := s.Stats(); !strings.HasPrefix(st.Server, "a:") {
			t.Errorf("it is well again: %+v", st)
		}
		s.Close(context.Background())
	})
}

func TestKeepaliveFalse(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		var r received
		auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if ok, err := c.Handshake(auth); !ok {
				r.fault(fmt.Errorf("refused: %w", err))
				return
			}
			m, err := c.Next()
			if err != nil {
				r.fault(err)
				return
			}
			r.add(m)
			if m.Chunk != "" {
				c.Ack(m.Chunk)
			}
		}}
		s := newTestClient(t, Config{Servers: []string{listen(t, f)}, SharedKey: "k", NoAck: noAck})
		done := make(chan error, 4)
		for i := range 4 {
			s.Start(context.Background(), numbers(t, 10*i, 10*i+10), func(err error) { done <- err })
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		sendOK(t, s, numbers(t, 40, 60, "x", "y"))
		if got := r.get("forebay"); !slices.Equal(got, seq(0, 40)) || len(r.get("x")) != 10 || len(r.get("y")) != 10 {
			t.Errorf("noAck %v: %v", noAck, got)
		}
		if n := f.Conns(); n != 6 {
			t.Errorf("noAck %v: %d connections for 6 messages", noAck, n)
		}
		r.check(t)
	}
}

// A record at which the server closes is found and refused; the others arrive, in
// order.
func TestPoisonIsFound(t *testing.T) {
	for _, poison := range [][]int{{37}, {0}, {99}, {10, 11, 60}, {0, 1, 2}} {
		t.Run(fmt.Sprint(poison), func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					if !bytes.Contains(m.Entries[0], []byte(controlText)) {
						for _, e := range m.Entries {
							if slices.Contains(poison, number1(e)) {
								return
							}
						}
						r.add(m)
					}
					c.Ack(m.Chunk)
				}
			}}
			s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
			b := numbers(t, 0, 100)
			var err error
			sends := 0
			for sends = 1; sends < 10; sends++ {
				if err = s.Send(context.Background(), b); !batch.Retryable(err) {
					break
				}
			}
			e := batch.Inspect(err)
			if e.Kind != batch.KindReject || !slices.Equal(e.Records, poison) || sends != DefaultPoisonCloses+1 {
				t.Errorf("after %d sends: %v: %+v", sends, err, e)
			}
			want := slices.DeleteFunc(seq(0, 100), func(n int) bool { return slices.Contains(poison, n) })
			if got := r.get("forebay"); !slices.Equal(got, want) {
				t.Errorf("arrived: %v", got)
			}
			sendOK(t, s, numbers(t, 100, 200))
		})
	}
}

// A server that is down is no proof against a record.
func TestOutageIsNoPoison(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
		if n < 2*DefaultPoisonCloses+1 {
			c.Next()
			return
		}
		r.obedient(c)
	}}
	s := newTestClient(t, Config{Servers: []string{listen(t, f)}})
	for range 3 * DefaultPoisonCloses {
		err := s.Send(context.Background(), numbers(t, 0, 1))
		if err == nil {
			break
		}
		if !batch.Retryable(err) {
			t.Fatalf("given up: %v", err)
		}
	}
	if got := r.get("forebay"); !slices.Equal(got, []int{0}) {
		t.Errorf("%v", got)
	}
}

func FuzzAcks(f *testing.F) {
	f.Add([]byte{0x81, 0xa3, 'a', 'c', 'k', 0xa1, 'x'})
	f.Add([]byte{0x92, 0xa4, 'H', 'E', 'L', 'O', 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Client{c: &resolved{}, suspects: map[chunkID]int{}}
		c := &conn{byID: map[chunkID]uint64{}, keepalive: true}
		rest, err := s.consume(c, slices.Clone(b))
		if err == nil && len(rest) > len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(rest))
		}
		if s.stats.Acks != 0 {
			t.Fatal("an ack for nothing")
		}
	})
}
