package netsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, destination string, o *Config) *Driver {
	t.Helper()
	c := Config{}
	if o != nil {
		c = *o
	}
	c.Address = destination
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A fakeLife is a deliver.Life that stores the answers and the end of a session.
type fakeLife struct {
	ctx context.Context
	end context.CancelCauseFunc

	onAnswer func() // called before an answer counts; may be nil

	mu       sync.Mutex
	answers  map[*batch.Batch]batch.Outcome // answers given before the end of the session
	over     bool
	endErr   error
	late     int // number of answers after the end of the session
	repeated int // number of second answers to a batch
}

func newFakeLife() *fakeLife {
	l := &fakeLife{answers: map[*batch.Batch]batch.Outcome{}}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

func (l *fakeLife) Context() context.Context { return l.ctx }

func (l *fakeLife) Answer(b *batch.Batch, o batch.Outcome) {
	if l.onAnswer != nil {
		l.onAnswer()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.answers[b]; twice {
		l.repeated++
	}
	if l.over {
		l.late++
		return
	}
	l.answers[b] = o
}

func (l *fakeLife) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over, l.endErr = true, err
	}
}

// answer returns the answer to b. over reports whether the session has ended, and why is the reason
// of its end.
func (l *fakeLife) answer(b *batch.Batch) (o batch.Outcome, answered, over bool, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, answered = l.answers[b]
	return o, answered, l.over, l.endErr
}

// A client makes the calls of an outlet to a Driver, without retries.
type client struct {
	t testing.TB
	d *Driver
	l *fakeLife
	s deliver.Session // nil: none
}

func mustConnect(t testing.TB, destination string, o *Config) *client {
	return &client{t: t, d: mustNew(t, destination, o)}
}

// send sends b, in a new session if none is open. It returns the number of settled records, and the
// reason why the others are not settled.
func (c *client) send(b *batch.Batch) (settled int, err error) {
	c.t.Helper()
	if c.s != nil {
		if _, _, over, _ := c.l.answer(b); over {
			c.leave(errors.New("over"))
		}
	}
	if c.s == nil {
		c.l = newFakeLife()
		if c.s, err = c.d.Open(c.l); err != nil {
			c.s = nil
			c.l.end(err)
			return 0, err
		}
	}
	if err := c.s.Send(b); err != nil {
		if _, answered, _, _ := c.l.answer(b); answered {
			c.t.Errorf("an answer to what was not sent: %v", err)
		}
		c.leave(err)
		return 0, err
	}
	o, answered, over, why := c.l.answer(b)
	switch {
	case c.l.late > 0 || c.l.repeated > 0:
		c.t.Errorf("%d answers came behind the end, %d were given twice", c.l.late, c.l.repeated)
	case answered:
		if err := o.Check(b.Len()); err != nil || (o.Why == nil) != o.Open.Empty() || !o.Refused.Empty() {
			c.t.Errorf("outcome %+v, %v", o, err)
		}
		if !o.Open.Empty() && o.Advice == batch.Again && !over {
			c.t.Error("records are open, and the session goes on")
		}
		return b.Len() - o.Open.Len(b.Len()), o.Why
	case !over:
		c.t.Error("neither an answer nor an end")
	}
	return 0, why
}

// sendAll sends b and fails the test unless all records are settled.
func (c *client) sendAll(b *batch.Batch) {
	c.t.Helper()
	if n, err := c.send(b); err != nil || n != b.Len() {
		c.t.Fatalf("%d of %d records, %v", n, b.Len(), err)
	}
}

// leave ends the session.
func (c *client) leave(why error) {
	if c.s != nil {
		c.l.end(why)
		c.s.Close()
		c.s = nil
	}
}

// close closes the session and the Driver.
func (c *client) close() error {
	c.leave(errors.New("finished"))
	return c.d.Close(context.Background())
}

func (c *client) mustClose() {
	c.t.Helper()
	if err := c.close(); err != nil {
		c.t.Error(err)
	}
}

// newBatch returns a batch of the given records.
func newBatch(recs ...string) *batch.Batch {
	var build batch.Batch
	for i, r := range recs {
		build.Append([]byte(r), uint64(i+1), batch.Meta{})
	}
	return &build
}

// wholeLines returns the complete lines of all connections in order. It fails the test if a line is
// incomplete, except at the end of a connection.
func wholeLines(t testing.TB, conns [][]byte) (lines []string) {
	t.Helper()
	for _, c := range conns {
		for len(c) > 0 {
			line, rest, ok := bytes.Cut(c, []byte{'\n'})
			if !ok {
				break // cut by the end of the connection
			}
			lines = append(lines, string(line))
			c = rest
		}
	}
	return lines
}

func TestRecordsArriveAsLines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		for _, b := range []*batch.Batch{newBatch("a\n", "b\n"), newBatch("c", "", "d\n", "\n"), newBatch(), newBatch("e\n")} {
			c.sendAll(b)
		}
		two := newBatch("f\n")
		two.Add(layout.NewRun([]byte("g\n"), []layout.Slot{{Len: 2}}))
		c.sendAll(two)
		synctest.Wait()
		if got := string(bytes.Join(p.Got(), nil)); got != "a\nb\nc\n\nd\n\ne\nf\ng\n" {
			t.Errorf("got %q", got)
		}
		if p.Conns() != 1 || c.d.Stats() != (Stats{Connected: true, Connects: 1}) {
			t.Errorf("%d connections, stats %+v", p.Conns(), c.d.Stats())
		}
		c.mustClose()
		if c.d.Stats() != (Stats{Connects: 1}) {
			t.Errorf("stats %+v", c.d.Stats())
		}
		p.Close()
	})
}

// If a connection fails within a batch, the completely written records are settled. The remaining
// records arrive complete over the next connection.
func TestPartialWriteSettlesWholeRecords(t *testing.T) {
	recs := []string{"first\n", "second\n", "third\n", "fourth\n"}
	all := strings.Join(recs, "")
	// Records that end with newlines are written directly from the batch. Others are copied, and
	// newlines are added.
	for _, newlines := range []bool{true, false} {
		for limit := 1; limit < len(all); limit++ {
			bubble.Test(t, func(t *testing.T) {
				var n testkit.Network
				p := n.Listen("peer:1", func(conn int) testkit.Behaviour {
					if conn == 0 {
						return testkit.Behaviour{Limit: limit, Chunk: 3}
					}
					return testkit.Behaviour{}
				})
				c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
				b := newBatch(recs...)
				if !newlines {
					b = newBatch("first", "second\n", "third", "fourth")
				}
				done, err := c.send(b)
				if err == nil || done != strings.Count(all[:limit], "\n") {
					t.Fatalf("limit %d: %v, %d records", limit, err, done)
				}
				c.sendAll(b.Slice(nil, done, b.Len()))
				synctest.Wait()
				if got := strings.Join(wholeLines(t, p.Got()), "\n") + "\n"; got != all {
					t.Errorf("limit %d: got %q", limit, got)
				}
				c.mustClose()
				p.Close()
			})
		}
	}
}

// If the peer closes the connection between two batches, the session ends without a write.
func TestPeerCloseBetweenSendsEndsTheSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		c.sendAll(newBatch("a\n"))
		synctest.Wait()
		p.Close()
		synctest.Wait()
		if _, _, over, why := c.l.answer(nil); !over || !errors.Is(why, errPeerClosed) || !strings.Contains(why.Error(), "tcp://peer:1") {
			t.Errorf("over: %t, %v", over, why)
		}
		if st := c.d.Stats(); st != (Stats{Connects: 1, Lost: 1}) {
			t.Errorf("stats %+v", st)
		}
		late := newBatch("b\n")
		if err := c.s.Send(late); !errors.Is(err, errPeerClosed) {
			t.Errorf("Send behind the end: %v", err)
		}
		q := n.Listen("peer:1", nil)
		c.sendAll(late)
		synctest.Wait()
		if got := wholeLines(t, append(p.Got(), q.Got()...)); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
		if st := c.d.Stats(); st != (Stats{Connected: true, Connects: 2, Lost: 1}) {
			t.Errorf("stats %+v", st)
		}
		c.mustClose()
		q.Close()
	})
}

// Written records are settled even if the peer closes before Send has answered.
func TestWrittenRecordsAreSettledThoughThePeerCloses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		c.sendAll(newBatch("a\n"))
		c.l.onAnswer = func() {
			synctest.Wait() // the peer has all records
			p.Close()
			synctest.Wait() // the reader has noticed
		}
		b := newBatch("b\n", "c\n")
		c.sendAll(b)
		if _, _, over, why := c.l.answer(b); !over || !errors.Is(why, errPeerClosed) {
			t.Errorf("over: %t, %v", over, why)
		}
		c.mustClose()
	})
}

// An endsInWrite is a connection whose peer closes during the second write and accepts only a part of it.
type endsInWrite struct {
	net.Conn
	writes *int
	takes  int
	end    chan struct{}
}

func (c endsInWrite) Read([]byte) (int, error)         { <-c.end; return 0, io.EOF }
func (c endsInWrite) SetWriteDeadline(time.Time) error { return nil }
func (c endsInWrite) Write(p []byte) (int, error) {
	if *c.writes++; *c.writes < 2 {
		return len(p), nil
	}
	close(c.end)
	time.Sleep(time.Second) // the reader has detected the close
	if c.takes < len(p) {
		return c.takes, net.ErrClosed
	}
	return len(p), nil
}

// If the peer closes during a Send, the answer with the settled records comes before the end of the
// session.
func TestAnswerPrecedesTheEndOfTheSession(t *testing.T) {
	for takes := range 7 {
		bubble.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer server.Close()
			writes := 0
			c := mustConnect(t, "tcp://peer:1", &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
				return endsInWrite{client, &writes, takes, make(chan struct{})}, nil
			}})
			c.sendAll(newBatch("z\n"))
			b := newBatch("a\n", "b\n", "c\n")
			done, err := c.send(b)
			_, _, over, why := c.l.answer(b)
			if done != takes/2 || (err == nil) != (takes == 6) || !over || !errors.Is(why, errPeerClosed) {
				t.Errorf("%d bytes taken: %d records, %v, over: %t, %v", takes, done, err, over, why)
			}
			c.mustClose()
			if st := c.d.Stats(); st != (Stats{Connects: 1, Lost: 1}) {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// If nobody listens, the error of Open names the destination.
func TestOpenErrorNamesTheDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		if _, err := c.send(newBatch("a\n")); err == nil || holds(err) || !strings.Contains(err.Error(), "cannot connect to tcp://peer:1: ") {
			t.Errorf("got %v", err)
		}
	})
}

// A peer that accepts no byte for WriteTimeout ends the session. A slow peer does not.
func TestStalledPeerTimesOutAndSlowPeerDoesNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		release := make(chan struct{})
		p := n.Listen("peer:1", func(conn int) testkit.Behaviour {
			if conn == 0 {
				return testkit.Behaviour{Limit: 7, Stall: release}
			}
			return testkit.Behaviour{Chunk: 16 << 10, Delay: time.Second}
		})
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		began := time.Now()
		if n, err := c.send(newBatch("first\n", "second\n")); n != 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d records, %v", n, err)
		}
		if d := time.Since(began); d != defaultWriteTimeout {
			t.Errorf("gave up after %s", d)
		}
		big := newBatch(slices.Repeat([]string{strings.Repeat("x", 999) + "\n"}, 1000)...)
		began = time.Now()
		if c.sendAll(big); time.Since(began) < time.Minute {
			t.Errorf("after %s", time.Since(began))
		}
		close(release)
		c.mustClose()
		p.Close()
	})
}

// Open, Send and Close return when the context of the Life ends, regardless of the peer. Open also
// returns after DialTimeout.
func TestContextEndsOpenSendAndClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		release := make(chan struct{})
		p := n.Listen("peer:1", func(int) testkit.Behaviour { return testkit.Behaviour{Limit: 3, Stall: release} })
		d := mustNew(t, "tcp://peer:1", &Config{Dial: n.Dial, WriteTimeout: time.Hour})
		noTime := fmt.Errorf("no time: %w", context.DeadlineExceeded)
		l := newFakeLife()
		s, err := d.Open(l)
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch("a\n", "b\n")
		began := time.Now()
		time.AfterFunc(time.Second, func() { l.end(noTime) })
		err = s.Send(b)
		s.Close()
		o, _, over, why := l.answer(b)
		if err != nil || !over || o.Open.Len(2) != 1 || !errors.Is(why, noTime) || time.Since(began) != time.Second {
			t.Errorf("%v, %+v, %v after %s", err, o, why, time.Since(began))
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}

		hang := mustNew(t, "tcp://peer:1", &Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		l, began = newFakeLife(), time.Now()
		time.AfterFunc(time.Second, func() { l.end(noTime) })
		if _, err := hang.Open(l); !errors.Is(err, noTime) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		began = time.Now()
		if _, err := hang.Open(newFakeLife()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != defaultDialTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		p.Close()
	})
}

// A halfConn is a connection with the method CloseWrite, like TCP. The method calls the function
// half instead of closing the sending side.
type halfConn struct {
	net.Conn
	half func()
}

func (c halfConn) CloseWrite() error { c.half(); return nil }

// Close closes the sending side and waits up to 500 ms until the peer closes its side, or 20 ms if
// the outlet is out of time. Any other end of the connection is an error.
func TestCloseWaitsForThePeer(t *testing.T) {
	noTime := fmt.Errorf("no time: %w", context.DeadlineExceeded)
	for _, tt := range []struct {
		cause error
		after time.Duration // time after which the peer closes; 0: never
		want  time.Duration
	}{
		{errors.New("finished"), 100 * time.Millisecond, 100 * time.Millisecond},
		{errors.New("finished"), 0, closeTimeout},
		{noTime, 5 * time.Millisecond, 5 * time.Millisecond},
		{noTime, 0, lateCloseTimeout},
	} {
		bubble.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			halves := 0
			half := func() {
				if halves++; tt.after > 0 {
					time.AfterFunc(tt.after, func() { server.Close() })
				}
			}
			d := mustNew(t, "tcp://peer:1", &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
				return halfConn{client, half}, nil
			}})
			l := newFakeLife()
			s, err := d.Open(l)
			if err != nil {
				t.Fatal(err)
			}
			l.end(tt.cause)
			began := time.Now()
			s.Close()
			if took := time.Since(began); took != tt.want || halves != 1 {
				t.Errorf("%v, %s: took %s, closed the sending side %d times", tt.cause, tt.after, took, halves)
			}
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, _, over, _ := l.answer(nil); over || d.Stats().Lost > 0 {
				t.Errorf("closing is told as a loss: %t, %+v", over, d.Stats())
			}
			server.Close()
		})
	}
}

// A readError is a connection whose reads fail once its sending side is closed.
type readError struct {
	net.Conn
	broken chan struct{}
}

func (c readError) Read([]byte) (int, error) { <-c.broken; return 0, errors.New("reset") }
func (c readError) CloseWrite() error        { close(c.broken); return nil }

// Driver.Close returns an error if the last connection broke after its last record was written.
func TestCloseReportsABrokenConnection(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	c := mustConnect(t, "tcp://peer:1", &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		return readError{client, make(chan struct{})}, nil
	}})
	c.sendAll(newBatch())
	if err := c.close(); err == nil || !strings.Contains(err.Error(), "the last records may not have arrived: reset") {
		t.Errorf("got %v", err)
	}
}

// Bytes that the peer sends are discarded.
func TestRepliesAreDiscarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", func(int) testkit.Behaviour {
			return testkit.Behaviour{Reply: bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n\x00\xff"), 1000)}
		})
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		for range 3 {
			c.sendAll(newBatch("a\n"))
		}
		synctest.Wait()
		if got := wholeLines(t, p.Got()); len(got) != 3 || p.Conns() != 1 {
			t.Errorf("got %q over %d connections", got, p.Conns())
		}
		c.mustClose()
		p.Close()
	})
}

// Over connections that fail at random, every record arrives complete, at least once and in order.
// No other line arrives.
func TestRecordsArriveWholeOverFaultyConnections(t *testing.T) {
	for _, scheme := range []string{"tcp", "syslog+tcp"} {
		bubble.Test(t, func(t *testing.T) {
			rng := testkit.Rand(testkit.Seed(t))
			for range testkit.Rounds(t, 30, 2000) {
				faultyRound(t, scheme+"://peer:1", testkit.Rand(rng.Uint64()))
			}
		})
	}
}

type random interface {
	IntN(int) int
	Float64() float64
}

func faultyRound(t *testing.T, destination string, rng random) {
	var n testkit.Network
	var mu sync.Mutex
	roll := func() float64 { mu.Lock(); defer mu.Unlock(); return rng.Float64() }
	pick := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
	p := n.Listen("peer:1", func(int) testkit.Behaviour {
		b := testkit.Behaviour{Limit: 1 + pick(5000)}
		if pick(2) == 0 {
			b.Chunk = 1 + pick(200)
		}
		return b
	})
	prob := roll() / 2
	n.Wrap(func(c net.Conn) net.Conn { return testkit.Faulty(c, testkit.RandomFaults(roll, pick, prob)) })
	c := mustConnect(t, destination, &Config{Dial: n.Dial})
	number := 0
	var want []string
	for range 20 {
		var build batch.Batch
		for range 1 + pick(30) {
			number++
			line := fmt.Sprintf("%06d %s", number, strings.Repeat("x", pick(100)))
			want = append(want, line)
			if pick(10) > 0 {
				line += "\n"
			}
			build.Append([]byte(line), uint64(number), batch.Meta{})
		}
		for b := &build; b.Len() > 0; {
			done, err := c.send(b)
			if b = b.Slice(nil, done, b.Len()); err != nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	_ = c.close() // the connection may have broken
	p.Close()
	var got []string
	for _, conn := range p.Got() {
		if c.d.t.syslog {
			msgs, _ := parseCounted(conn)
			for _, m := range msgs {
				_, text, _ := strings.Cut(m, " - - ")
				got = append(got, text)
			}
		} else {
			got = append(got, wholeLines(t, [][]byte{conn})...)
		}
	}
	last := 0
	seen := map[string]bool{}
	for _, line := range got {
		var at int
		if _, err := fmt.Sscanf(line, "%06d", &at); err != nil || at < 1 || at > number || line != want[at-1] {
			t.Fatalf("made up: %q", line)
		}
		if at > last+1 {
			t.Fatalf("record %d came after %d", at, last)
		}
		last = at
		seen[line] = true
	}
	if len(seen) != number {
		t.Fatalf("%d of %d records arrived", len(seen), number)
	}
}

// Traits.Accepts rejects binary records. If they are sent anyway, the outlet holds them.
func TestBinaryRecordsAreNotAccepted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		c := mustConnect(t, "tcp://peer:1", &Config{Dial: n.Dial})
		for form, want := range map[string]bool{"": true, "text/plain": true, "application/x-ndjson": true,
			"application/logfmt": true, "application/x-msgpack": false} {
			if c.d.Traits().Accepts(form) != want {
				t.Errorf("Accepts(%q) = %t", form, !want)
			}
		}
		b := newBatch("x")
		b.Codec = binaryCodec{}
		done, err := c.send(b)
		if o, _, over, _ := c.l.answer(b); done != 0 || o.Advice != batch.Hold || over || !strings.Contains(err.Error(), "application/x-msgpack") {
			t.Errorf("%d records, %+v", done, o)
		}
		c.sendAll(newBatch("y"))
		c.mustClose()
		p.Close()
		if got := string(bytes.Join(p.Got(), nil)); got != "y\n" {
			t.Errorf("got %q", got)
		}
		if !mustNew(t, "syslog+tcp://peer:1", nil).Traits().Accepts("application/x-msgpack") {
			t.Error("syslog takes any form")
		}
	})
}

// A binaryCodec has a binary content type.
type binaryCodec struct{}

func (binaryCodec) ContentType() string { return "application/x-msgpack" }
func (binaryCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	return fmt.Appendf(dst, `{"bytes":%d}`, len(rec))
}
func (binaryCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

func TestParseDestinations(t *testing.T) {
	for in, want := range map[string]string{
		"tcp://localhost:5170":           "tcp://localhost:5170",
		"TCP://localhost:5170/":          "tcp://localhost:5170",
		"tls://[::1]:6514":               "tls://[::1]:6514",
		"unix:/run/log.sock":             "unix:/run/log.sock",
		"unix:///run/log.sock":           "unix:/run/log.sock",
		"unix:rel/sock":                  "unix:rel/sock",
		"unix:a%3Fb%25%41":               "unix:a?b%%41",
		"syslog+tcp://h:514?app=x":       "syslog+tcp://h:514",
		"syslog+tls://h:6514?facility=3": "syslog+tls://h:6514",
		"syslog+unix:/dev/log?hostname=a&app=b&procid=c&msgid=d": "syslog+unix:/dev/log",
	} {
		s, err := New(Config{Address: in})
		if err != nil || s.t.String() != want {
			t.Errorf("%q: %v, %v", in, s, err)
		}
	}
	for _, in := range []string{
		"", "localhost:5170x", "tcp:localhost:1", "tcp://", "tcp://host", "tcp://:514", "tcp://host:", "tcp://h:1/path",
		"tcp://h:1#f", "tcp://::1:514", "unix:", "udp://h:514", "tcp://h:1?app=x", "syslog+tcp://h:1?color=red",
		"syslog+tcp://h:1?facility=x", "syslog+tcp://h:1?a=%zz", "syslog+udp://h:1", "syslog+tcp://h:1?facility=24",
	} {
		if s, err := New(Config{Address: in}); err == nil {
			t.Errorf("%q is read as %v", in, s)
		}
	}
	if _, err := New(Config{Address: "tcp://user:secret@h:1"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	for _, o := range []Config{{DialTimeout: -1}, {WriteTimeout: -1}, {Facility: "what"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestSyslogMessageFormat(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.FixedZone("", 3600)).UnixNano()
	tests := []struct {
		dest  string
		codec batch.Codec
		rec   string
		meta  batch.Meta
		want  string
	}{
		{"syslog+tcp://h:1", nil, "hello\n", batch.Meta{Time: at}, "<14>1 2026-03-04T04:06:07.891011Z host app 42 - - hello"},
		{"syslog+tcp://h:1?facility=local0&app=shop&hostname=web%201&procid=&msgid=m", nil, "two\nlines\n\n", batch.Meta{Level: slog.LevelError},
			"<131>1 - web_1 shop 42 m - two\nlines\n"},
		{"syslog+tcp://h:1?facility=0", binaryCodec{}, "\x81\xa1", batch.Meta{Level: slog.LevelDebug}, "<7>1 - host app 42 - - {\"bytes\":2}"},
		{"syslog+tcp://h:1", nil, "", batch.Meta{}, "<14>1 - host app 42 - - "},
	}
	for _, tt := range tests {
		s := mustNew(t, tt.dest, &Config{Hostname: "host", AppName: "app", ProcID: "42"})
		rec := batch.Record{Data: []byte(tt.rec), Meta: tt.meta}
		if s.o.ProcID != "42" { // an empty parameter selects the default
			s.o.ProcID = "42"
		}
		if got := string(s.o.message(nil, tt.codec, &rec)); got != tt.want {
			t.Errorf("got\n%q want\n%q", got, tt.want)
		}
	}
}

func TestSeverityOfLevels(t *testing.T) {
	for level, want := range map[slog.Level]int{
		-8: 7, slog.LevelDebug: 7, -1: 7, slog.LevelInfo: 6, 1: 6, 2: 5, 3: 5, slog.LevelWarn: 4, 7: 4,
		slog.LevelError: 3, 11: 3, 12: 2, 127: 2,
	} {
		if got := severity(level); got != want {
			t.Errorf("level %d: severity %d, want %d", level, got, want)
		}
	}
}

func TestHeaderFieldsArePrintableASCII(t *testing.T) {
	for in, want := range map[string]string{"": "-", "ok": "ok", "a b\tc": "a_b_c", "grün": "gr_n", "\x00": "_"} {
		if got := field(in, 48); got != want {
			t.Errorf("field(%q) = %q, want %q", in, got, want)
		}
	}
	if got := field(strings.Repeat("x", 100), 32); len(got) != 32 {
		t.Errorf("%d characters", len(got))
	}
}

// parseCounted parses octet-counted messages (RFC 6587 §3.4.1) and returns the remaining bytes.
func parseCounted(p []byte) (msgs []string, rest []byte) {
	for {
		head, tail, ok := bytes.Cut(p, []byte{' '})
		var n int
		if !ok || len(head) == 0 || head[0] == '0' {
			return msgs, p
		}
		if _, err := fmt.Sscanf(string(head), "%d", &n); err != nil || n > len(tail) {
			return msgs, p
		}
		msgs = append(msgs, string(tail[:n]))
		p = tail[n:]
	}
}

func TestSyslogMessagesAreOctetCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:514", nil)
		c := mustConnect(t, "syslog+tcp://peer:514?hostname=h&app=a&procid=1", &Config{Dial: n.Dial})
		c.sendAll(newBatch("one\n", "two\nlines", ""))
		synctest.Wait()
		msgs, rest := parseCounted(p.Got()[0])
		if want := []string{"<14>1 - h a 1 - - one", "<14>1 - h a 1 - - two\nlines", "<14>1 - h a 1 - - "}; !slices.Equal(msgs, want) || len(rest) > 0 {
			t.Errorf("got %q, left over %q", msgs, rest)
		}
		c.mustClose()
		p.Close()
	})
}

// Send allocates a few times per batch, and not per record.
func TestSendAllocatesNothingPerRecord(t *testing.T) {
	for _, destination := range []string{"tcp://h:1", "syslog+tcp://h:1"} {
		client, server := net.Pipe()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, server)
		}()
		c := mustConnect(t, destination, &Config{Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }})
		b := new(testkit.Model).Batch(300, 200, batch.Meta{Time: 1})
		if got := allocs.PerRun(50, func() {
			if c.l != nil {
				clear(c.l.answers)
			}
			c.sendAll(b)
		}); got > 6 { // the deadlines of net.Pipe allocate for each write
			t.Errorf("%s: %v allocations for 300 records", destination, got)
		}
		c.mustClose()
		<-gone
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"tcp://h:1", "unix:/x", "syslog+tls://[::1]:6514?app=a&facility=local7", "tcp://u:p@h:1", "a:b", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := New(Config{Address: in})
		if err != nil {
			return
		}
		again, err := New(Config{Address: s.t.String()})
		if err != nil || again.t.String() != s.t.String() || again.t.network != s.t.network || again.t.address != s.t.address {
			t.Errorf("%q is read as %q, and that as %v, %v", in, &s.t, again, err)
		}
		for _, f := range []string{s.o.Hostname, s.o.AppName, s.o.ProcID, s.o.MsgID} {
			if f == "" || len(f) > 255 || strings.ContainsFunc(f, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q: field %q", in, f)
			}
		}
	})
}

// Records with any content can be parsed unchanged from their frames.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("one\n"), []byte("two\nlines"), int64(1), 8)
	f.Add([]byte{}, []byte("12 x"), int64(0), -8)
	f.Fuzz(func(t *testing.T, a, b []byte, at int64, level int) {
		s := &session{d: mustNew(t, "syslog+tcp://h:1?hostname=h&app=a&procid=1", nil)}
		for _, data := range [][]byte{a, b} {
			s.frame(nil, &batch.Record{Data: data, Meta: batch.Meta{Time: at, Level: slog.Level(level)}})
		}
		msgs, rest := parseCounted(s.buf)
		if len(msgs) != 2 || len(rest) != 0 {
			t.Fatalf("%d messages, %q left over", len(msgs), rest)
		}
		for i, data := range [][]byte{a, b} {
			_, text, ok := strings.Cut(msgs[i], " h a 1 - - ")
			if want := string(trimNewline(data)); !ok || text != want {
				t.Errorf("got %q, want %q", text, want)
			}
		}
	})
}

// Records of an Output arrive once and in order at a peer that resets its connections at random.
// net.Pipe has no buffer, so the peer has read every written byte.
func TestOutputKeepsOrderWhenConnectionsReset(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rng := testkit.Rand(testkit.Seed(t))
		for range testkit.Rounds(t, 10, 500) {
			var n testkit.Network
			var mu sync.Mutex
			between := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			p := n.Listen("peer:1", func(int) testkit.Behaviour {
				return testkit.Behaviour{Limit: 1 + between(3000), Chunk: 1 + between(500)}
			})
			o, err := deliver.NewOutput(mustNew(t, "tcp://peer:1", &Config{Dial: n.Dial}), &deliver.OutputOptions{
				Slab:         slab.Options{SlabBytes: 512 << between(4), SlabCount: 2, WhenFull: slab.Block(), FlushInterval: time.Millisecond},
				CloseTimeout: time.Hour, OnError: func(batch.Event) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for len(want) < 600 {
				for range 1 + between(40) {
					want = append(want, fmt.Sprintf("%06d %s", len(want), strings.Repeat("x", between(60))))
					if err := o.WriteRecord([]byte(want[len(want)-1]+"\n"), batch.Meta{}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Duration(between(3)) * time.Millisecond) // the outlet sends the record
			}
			rep, err := o.Shutdown(t.Context())
			if err != nil || rep.Delivered != uint64(len(want)) || rep.Check() != nil {
				t.Errorf("%v, %v", rep, err)
			}
			p.Close()
			if got := wholeLines(t, p.Got()); !slices.Equal(got, want) {
				t.Fatalf("%d lines of %d", len(got), len(want))
			}
		}
	})
}

// holds reports whether an outlet holds its records because of err.
func holds(err error) bool { return batch.FailedOutcome(err).Advice == batch.Hold }

// The message about a refused connection has the address and the reason once.
func TestRefusedConnectionIsReportedBriefly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := "tcp://" + l.Addr().String()
	l.Close()
	d := mustNew(t, to, nil)
	events := make(chan batch.Event, 100)
	out, err := deliver.NewOutput(d, &deliver.OutputOptions{OnError: func(e batch.Event) { events <- e }})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	out.Write([]byte("line\n"))
	e := <-events
	if text := e.Err.Error(); !strings.HasPrefix(text, "netsink: cannot connect to "+to+": ") || strings.Count(text, l.Addr().String()) != 1 || strings.Contains(text, "dial") {
		t.Errorf("%q", text)
	}
}
