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
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

var pools = poolcheck.Use{Pool: &scratch, Make: newScratch}

func TestMain(m *testing.M) {
	checkPhases()
	goleak.VerifyTestMain(poolcheck.Tests(m, pools))
}

// received stores the messages that a test server has received. The map byTag has the field n of
// the records of each tag.
type received struct {
	mu      sync.Mutex
	byTag   map[string][]int
	frames  []*testkit.ForwardMessage
	errs    []error
	changed chan struct{} // closed when the next message arrives
}

// await waits until n records have arrived.
func (r *received) await(t *testing.T, n int) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		got := 0
		for _, m := range r.frames {
			got += len(m.Entries)
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d of %d records arrived", got, n)
		}
	}
}

func (r *received) add(m *testkit.ForwardMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byTag == nil {
		r.byTag = map[string][]int{}
	}
	r.frames = append(r.frames, m)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
	for _, e := range m.Entries {
		r.byTag[m.Tag] = append(r.byTag[m.Tag], recordNumber(e))
	}
}

func (r *received) get(tag string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byTag[tag])
}

// firstCopies returns the field n of the records of a tag in the order of arrival. Repeated values
// are omitted.
func (r *received) firstCopies(tag string) (ns []int) {
	seen := map[int]bool{}
	for _, n := range r.get(tag) {
		if !seen[n] {
			ns = append(ns, n)
		}
		seen[n] = true
	}
	return ns
}

func (r *received) messages() []*testkit.ForwardMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.frames)
}

// addErr stores an error of the test server, unless it only means that the client has closed the
// connection.
func (r *received) addErr(err error) {
	if err != nil && !isGone(err) {
		r.mu.Lock()
		r.errs = append(r.errs, err)
		r.mu.Unlock()
	}
}

// check fails the test if the test server had an error.
func (r *received) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.errs {
		t.Errorf("server: %v", err)
	}
}

// recordNumber returns the field n of an entry {"n": …}.
func recordNumber(entry []byte) int {
	_, b, _ := msgpack.Next(entry)
	_, b, _ = msgpack.Next(b)
	_, b, _ = msgpack.Next(b)
	_, b, _ = msgpack.Next(b)
	v, _, _ := msgpack.Next(b)
	return int(v.Num)
}

// ackAll reads messages and acknowledges them until the connection ends.
func (r *received) ackAll(c *testkit.ForwardConn) {
	for {
		m, err := c.Next()
		if err != nil {
			r.addErr(err)
			return
		}
		r.add(m)
		if m.Chunk != "" && c.Ack(m.Chunk) != nil {
			return
		}
	}
}

// listen starts f on a loopback port and returns the address.
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

// numbers returns a batch of the records {"n": n} with n in [from, to). Record n has the tag
// tags[n%len(tags)] or, if tags is empty, the default tag.
func numbers(t testing.TB, from, to int, tags ...string) *batch.Batch {
	t.Helper()
	b := &batch.Batch{Codec: Codec()}
	for n := from; n < to; n++ {
		rec, err := AppendEvent(nil, time.Unix(int64(n), 0), map[string]any{"n": n})
		if err != nil {
			t.Fatal(err)
		}
		stream := uint32(noTag)
		if len(tags) > 0 {
			if stream, err = new(valuer).streamOf(tags[n%len(tags)]); err != nil {
				t.Fatal(err)
			}
		}
		b.Append(rec, uint64(n+1), batch.Meta{Stream: stream})
	}
	return b
}

// seq returns the integers in [from, to).
func seq(from, to int) (s []int) {
	for ; from < to; from++ {
		s = append(s, from)
	}
	return s
}

// Records arrive in order within each tag, with and without acknowledgements and compression.
func TestRecordsArriveInOrderPerTag(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		for _, zip := range []string{"", "gzip"} {
			t.Run(fmt.Sprintf("noAck=%v/%s", noAck, zip), func(t *testing.T) {
				var r received
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
				s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, NoAck: noAck, Compress: zip, Tag: "own"}})
				sendOK(t, s, numbers(t, 0, 1000))
				sendOK(t, s, numbers(t, 1000, 1100, "a", "b", "c"))
				s.close() // with NoAck, a written record may not have arrived yet
				r.await(t, 1100)
				if got := r.get("own"); !slices.Equal(got, seq(0, 1000)) {
					t.Errorf("%d records of Config.Tag", len(got))
				}
				for i, tag := range []string{"a", "b", "c"} {
					var want []int
					for n := 1000; n < 1100; n++ {
						if n%3 == i {
							want = append(want, n)
						}
					}
					if got := r.get(tag); !slices.Equal(got, want) {
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
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, FrameBytes: 2000, MaxFrameBytes: 20000}})
	b := batch.Batch{Codec: Codec()}
	sizes := []int{100, 1500, 600, 5000, 10, 18500, 30000, 20}
	for i, n := range sizes {
		rec, _ := AppendEvent(nil, time.Unix(1, 0), map[string]any{"n": i, "x": strings.Repeat("x", n)})
		b.Append(rec, 0, batch.Meta{})
	}
	res := s.sendOne(&b)
	if refused := res.Refused.Append(nil, len(sizes)); !slices.Equal(refused, []int{6}) || !res.Open.Empty() || res.Refusal == nil {
		t.Errorf("%+v", res)
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
	// Batches with only one tag are also divided into frames.
	sendOK(t, s, numbers(t, 0, 2000))
	for _, m := range r.messages() {
		if len(m.Entries) > 1 && m.Payload > 2000 {
			t.Errorf("got a frame of %d bytes of payload", m.Payload)
		}
	}
}

// A record is refused if its tag is unknown, if it is empty or too large, or if it has another
// content type. The other records of its batch are sent.
func TestUnsendableRecordsAreRefusedAlone(t *testing.T) {
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{"127.0.0.1:1"}}})
	s.l = newFakeLife()
	nc, _ := net.Pipe()
	s.s = newSession(s.Driver, s.l, &conn{nc: nc, raw: nc, keepalive: true}) // no message arrives
	if accepts := s.Traits().Accepts; accepts("application/x-ndjson") || accepts("") || !accepts(entryType) {
		t.Error("Accepts")
	}
	allRefused := func(b *batch.Batch, text string) {
		t.Helper()
		if res := s.sendOne(b); res.Refused.Len(b.Len()) != b.Len() || !res.Open.Empty() || res.Refusal == nil || !strings.Contains(res.Refusal.Error(), text) {
			t.Errorf("%+v", res)
		}
	}
	b := batch.Batch{Codec: otherCodec{Codec()}}
	b.Append([]byte("{}\n"), 0, batch.Meta{})
	allRefused(&b, "application/x-other")
	for _, id := range []uint32{invalidTag, 1 << 30} {
		b := batch.Batch{Codec: Codec()} // a copy, because a session distinguishes batches by address
		b.Append([]byte{0x92, 1, 0x80}, 0, batch.Meta{Stream: id})
		allRefused(&b, "no usable tag")
	}
	for _, noAck := range []bool{false, true} {
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, MaxFrameBytes: 2500, FrameBytes: 2000, NoAck: noAck}})
		b := batch.Batch{Codec: Codec()}
		for n := range 10 {
			rec, m := mustEntry(t, n), batch.Meta{}
			switch n {
			case 2:
				m.Stream = 1 << 30
			case 4:
				rec = nil
			case 6:
				rec, _ = AppendEvent(nil, time.Unix(1, 0), strings.Repeat("x", 3000))
			}
			b.Append(rec, uint64(n), m)
		}
		res := s.sendOne(&b)
		if refused := res.Refused.Append(nil, 10); !slices.Equal(refused, []int{2, 4, 6}) || !res.Open.Empty() || res.Refusal == nil {
			t.Errorf("%+v", res)
		}
		s.close()
		r.await(t, 7)
		if got := r.get("forebay"); !slices.Equal(got, []int{0, 1, 3, 5, 7, 8, 9}) {
			t.Errorf("records %v arrived", got)
		}
		if st := s.Stats(); st.Refused != 3 {
			t.Errorf("%+v", st)
		}
	}
}

// An otherCodec does not have the content type of Forward entries.
type otherCodec struct{ batch.Codec }

func (otherCodec) ContentType() string { return "application/x-other" }

// A chunk that is sent again in a new session has the same id.
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
				return // the server sends no acknowledgement
			}
			c.Ack(m.Chunk)
		}
	}}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	b := numbers(t, 0, 10)
	for range 2 {
		if res := s.sendOne(b); res.answered || res.err == nil || !retries(res.err) {
			t.Fatalf("%+v", res)
		}
	}
	sendOK(t, s, b)
	sendOK(t, s, numbers(t, 10, 20))
	if len(ids) != 4 || ids[0] != ids[1] || ids[1] != ids[2] || ids[2] == ids[3] || len(ids[0]) != 24 {
		t.Errorf("%q", ids)
	}
}

// Two batches with equal records have different chunk ids while both are in flight.
func TestEqualBatchesInFlightGetDifferentChunkIDs(t *testing.T) {
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
			r.addErr(errors.New("same id"))
		}
		for _, id := range ids {
			c.Ack(id)
		}
		c.Next()
	}}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	sendOK(t, s, numbers(t, 0, 5), numbers(t, 0, 5))
	r.check(t)
}

// An acknowledgement applies only to the chunk with its id. Acknowledgements may arrive in another
// order, several times or with unknown ids.
func TestAckSettlesOnlyItsChunk(t *testing.T) {
	step := make(chan struct{})
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
		for _, i := range []int{2, 0, 3, 1} {
			<-step
			c.Ack(ids[i])
			c.Ack(ids[i])
		}
		c.Next()
	}}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var bs []*batch.Batch
	for i := range 4 {
		bs = append(bs, numbers(t, 10*i, 10*i+10))
		if err := s.s.Send(bs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for n, i := range []int{2, 0, 3, 1} {
		step <- struct{}{}
		if o, ok := s.l.wait(t.Context(), bs[i]); !ok || !o.Open.Empty() || len(s.l.answers) != n+1 {
			t.Errorf("batch %d: %+v %v", i, o, ok)
		}
	}
	s.close()
	if st := s.Stats(); st.UnknownAcks < 4 || st.UnknownAcks > 5 || st.Acks != 4 { // the session may end before the last acknowledgement
		t.Errorf("%+v", st)
	}
}

// If a connection ends, only the records of the unacknowledged frames of a batch are still
// undelivered.
func TestAckedFramesOfAnUnfinishedBatchAreSettled(t *testing.T) {
	for missing, want := range [][]int{
		{0, 2, 4, 6, 8},
		{10, 12, 14, 16, 18},
		{1, 3, 5, 7, 9},
	} {
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for i := range 4 {
				m, err := c.Next()
				if err != nil {
					return
				}
				if i != missing { // the tags of the frames are a, a, b, b
					c.Ack(m.Chunk)
				}
			}
		}}
		s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, FrameBytes: 5 * len(mustEntry(t, 0))}})
		res := s.sendOne(numbers(t, 0, 20, "a", "b"))
		if open := res.Open.Append(nil, 20); !res.answered || !slices.Equal(open, want) || res.Why == nil || !res.Refused.Empty() {
			t.Errorf("%d: %+v", missing, res)
		}
	}
}

// mustEntry returns the entry of the record {"n": n}.
func mustEntry(t *testing.T, n int) []byte {
	b := numbers(t, n, n+1)
	return b.At(0).Data
}

// All records arrive in order, whatever ends the first connection.
func TestRecordsSurviveEveryConnectionEnd(t *testing.T) {
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
				r.ackAll(c)
			}}
			s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
			s.sendUntilSettled(numbers(t, 0, 3000), 5)
			if got := r.get("forebay"); !slices.Equal(got, seq(0, 3000)) {
				t.Errorf("%d records", len(got))
			}
		})
	}
}

// If a server stops reading or answering, the session ends after the timeout in the Config. If the
// server stops before the session begins, Open fails after the timeout.
func TestUnresponsiveServerTimesOut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script func(c *testkit.ForwardConn, stop chan struct{})
		c      testConfig
		took   time.Duration
		text   string
	}{
		{"no ack", func(c *testkit.ForwardConn, stop chan struct{}) { c.Next(); <-stop }, testConfig{}, defaultAckTimeout, "no acknowledgement in time"},
		{"ack of an unknown chunk", func(c *testkit.ForwardConn, stop chan struct{}) {
			c.Next()
			c.Ack("bm90IHlvdXJzIG5vdCB5b3Vycw==")
			<-stop
		}, testConfig{Config: Config{AckTimeout: time.Second}}, time.Second, "no acknowledgement"},
		{"stalled read", func(c *testkit.ForwardConn, stop chan struct{}) { <-stop }, testConfig{Config: Config{WriteTimeout: 2 * time.Second}}, 2 * time.Second, "did not read a batch within 2s"},
		{"slow read", func(c *testkit.ForwardConn, stop chan struct{}) {
			for {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}, testConfig{}, defaultWriteTimeout, "did not read a batch"},
		{"is not HELO", func(c *testkit.ForwardConn, stop chan struct{}) { <-stop }, testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}}, defaultHandshakeTimeout, "not finished within 5s"},
		{"HELO byte by byte", func(c *testkit.ForwardConn, stop chan struct{}) {
			for _, x := range (&testkit.ForwardAuth{Nonce: make([]byte, 200)}).HELO() {
				if _, err := c.Write([]byte{x}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}}, defaultHandshakeTimeout, "not finished within 5s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { tc.script(c, stop) }}
				tc.c.Dial = f.Dial
				s := newTestClient(t, tc.c)
				start := time.Now()
				err := s.sendOne(numbers(t, 0, 100)).err
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if err == nil || !strings.Contains(err.Error(), tc.text) || !retries(err) {
					t.Errorf("%v", err)
				}
				close(stop)
				s.close()
				f.Close()
			})
		})
	}
}

func TestIdleConnectionIsClosedAfterIdleTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) { r.ackAll(c) }}
		defer f.Close()
		s := newTestClient(t, testConfig{Config: Config{Dial: f.Dial, IdleTimeout: time.Minute}})
		sendOK(t, s, numbers(t, 0, 1))
		time.Sleep(59 * time.Second)
		if s.Stats().Server == "" {
			t.Error("the connection was closed too early")
		}
		sendOK(t, s, numbers(t, 1, 2))
		time.Sleep(59 * time.Second)
		if s.Stats().Server == "" || f.Conns() != 1 {
			t.Error("the connection was closed too early")
		}
		time.Sleep(2 * time.Second)
		if s.Stats().Server != "" {
			t.Error("the connection was not closed")
		}
		sendOK(t, s, numbers(t, 2, 3))
		if f.Conns() != 2 || s.Stats().Lost != 0 {
			t.Errorf("%d connections, %+v", f.Conns(), s.Stats())
		}
		s.close()
	})
}

// While the first server is down, the second is used. After Config.Failback the first is used
// again.
func TestFailoverAndFailback(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		down := map[string]bool{}
		var a, b received
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { a.ackAll(c) }}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { b.ackAll(c) }}
		defer fa.Close()
		defer fb.Close()
		set := func(name string, v bool) {
			mu.Lock()
			defer mu.Unlock()
			down[name] = v
		}
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers: []string{"a", "b"},
				Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					if down[addr[:1]] {
						return nil, errors.New("connection refused")
					}
					if addr[:1] == "a" {
						return fa.Dial(ctx, n, addr)
					}
					return fb.Dial(ctx, n, addr)
				},
			},
		})
		set("a", true)
		sendOK(t, s, numbers(t, 0, 10))
		if st := s.Stats(); !strings.HasPrefix(st.Server, "b:") {
			t.Errorf("%+v", st)
		}
		set("a", false)
		time.Sleep(30 * time.Second)
		sendOK(t, s, numbers(t, 10, 20))
		if len(a.get("forebay")) > 0 {
			t.Error("the client returned to the preferred server too early")
		}
		time.Sleep(31 * time.Second)
		sendOK(t, s, numbers(t, 20, 30)) // the client notices that server a is reachable
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
		s.close()
		err := s.sendOne(numbers(t, 40, 50)).err
		if !retries(err) || !strings.Contains(err.Error(), "a:24224") || !strings.Contains(err.Error(), "b:24224") {
			t.Errorf("%v", err)
		}
		set("b", false) // if there is no other server, a skipped one is tried
		sendOK(t, s, numbers(t, 40, 50))
		s.close()
	})
}

// A server that closes connections without an acknowledgement is skipped.
func TestFailoverFromServerThatClosesWithoutAck(t *testing.T) {
	var bad, good received
	fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		if m, err := c.Next(); err == nil {
			bad.add(m)
		}
	}}
	fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { good.ackAll(c) }}
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, fa), listen(t, fb)}}})
	if res := s.sendOne(numbers(t, 0, 10)); res.answered {
		t.Fatal("the batch was answered without an acknowledgement")
	}
	sendOK(t, s, numbers(t, 0, 10))
	if !slices.Equal(good.get("forebay"), seq(0, 10)) {
		t.Error(good.get("forebay"))
	}
}

// A server that failed is skipped for a random time between half the computed time and the computed
// time. This holds for any durations in the Config and any number of failures.
func TestSkipTimeStaysWithinBounds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, lo := range []time.Duration{100 * time.Millisecond, 5 * time.Second, time.Minute, 100 * time.Hour, math.MaxInt64 / 4} {
			var down, mute health
			for n := range 40 {
				time.Sleep(time.Second)
				down.recordFailure(lo, 2*lo)
				want := time.Duration(min(2, n+1)) * lo
				if d := time.Until(down.until); d < want/2 || d > want {
					t.Fatalf("%s: skipped for %s after %d failures", lo, d, n+1)
				}
				mute.recordSilence(lo)
				if d := time.Until(mute.until); d < min(lo, maxUnresponsiveSkip)/2 || d > maxUnresponsiveSkip {
					t.Fatalf("%s: skipped for %s after %d unresponsive connections", lo, d, n+1)
				}
			}
		}
	})
}

// A preferred server that accepts connections but acknowledges nothing is tried again after
// increasing times, up to maxUnresponsiveSkip. It is used when it acknowledges records again.
func TestUnresponsiveServerIsRetriedLessOften(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var a, b received
		var healthy atomic.Bool
		fa := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if healthy.Load() {
				a.ackAll(c)
			}
			for {
				if _, err := c.Next(); err != nil {
					return
				}
			}
		}}
		fb := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { b.ackAll(c) }}
		defer fa.Close()
		defer fb.Close()
		s := newTestClient(t, testConfig{
			Config: Config{
				Servers:   []string{"a", "b"},
				Heartbeat: -1,
				Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
					if addr[:1] == "a" {
						return fa.Dial(ctx, n, addr)
					}
					return fb.Dial(ctx, n, addr)
				},
			},
		})
		send := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				s.sendUntilSettled(numbers(t, 0, 1), 3)
			}
		}
		send(2 * time.Hour)
		if n := fa.Conns() / 2; n < 4 || n > 30 { // one connection to probe the server, one to send
			t.Errorf("the unresponsive server was tried %d times in two hours", n)
		}
		if st := s.Stats(); !strings.HasPrefix(st.Server, "b:") {
			t.Errorf("%+v", st)
		}
		healthy.Store(true)
		send(20 * time.Minute)
		if st := s.Stats(); !strings.HasPrefix(st.Server, "a:") {
			t.Errorf("the preferred server is not used: %+v", st)
		}
		s.close()
	})
}

func TestKeepaliveFalseUsesOneConnectionPerMessage(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		var r received
		auth := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if ok, err := c.Handshake(auth); !ok {
				r.addErr(fmt.Errorf("refused: %w", err))
				return
			}
			m, err := c.Next()
			if err != nil {
				r.addErr(err)
				return
			}
			r.add(m)
			if m.Chunk != "" {
				c.Ack(m.Chunk)
			}
		}}
		s := newTestClient(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, NoAck: noAck, Auth: Auth{SharedKey: "k"}}})
		var bs []*batch.Batch
		for i := range 4 {
			bs = append(bs, numbers(t, 10*i, 10*i+10))
		}
		sendOK(t, s, bs...)
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

func FuzzAcks(f *testing.F) {
	f.Add([]byte{0x81, 0xa3, 'a', 'c', 'k', 0xa1, 'x'})
	f.Add([]byte{0x92, 0xa4, 'H', 'E', 'L', 'O', 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &conn{in: slices.Clone(b), conf: &resolved{credentials: new(credentials)}}
		err := c.answers(func(id chunkID) {
			if !bytes.Contains(b, id[:]) {
				t.Fatalf("%q is not in %q", id, b)
			}
		})
		if err == nil && len(c.in) > len(b) {
			t.Fatalf("compression: %d bytes became %d", len(b), len(c.in))
		}
	})
}

// holds reports whether err causes records to be kept until the configuration changes. retries
// reports whether err causes them to be sent again after the retry delay.
func holds(err error) bool   { return batch.FailedOutcome(err).Advice == batch.Hold }
func retries(err error) bool { return batch.FailedOutcome(err).Advice == batch.Again }
