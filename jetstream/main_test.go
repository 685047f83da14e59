package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("FOREBAY_CHILD_DIR"); dir != "" {
		writeUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// A node is a NATS server with JetStream on loopback.
type node struct {
	*server.Server
	o server.Options
}

// start starts a server. set, if not nil, may change the options.
func start(t testing.TB, set func(*server.Options)) *node {
	t.Helper()
	n := &node{o: server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}}
	if set != nil {
		set(&n.o)
	}
	n.run(t)
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) run(t testing.TB) {
	t.Helper()
	o := n.o
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	n.Server = s
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	n.o.Port = s.Addr().(*net.TCPAddr).Port
}

func (n *node) stop() {
	n.Shutdown()
	n.WaitForShutdown()
}

// admin returns a connection to n with which a test manages streams.
func admin(t testing.TB, n *node, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(n.ClientURL(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// stream creates the stream LOGS with the subjects logs and logs.>.
func stream(t testing.TB, js jetstream.JetStream, set func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	c := jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs", "logs.>"}, Storage: jetstream.MemoryStorage, Duplicates: 2 * time.Minute}
	if set != nil {
		set(&c)
	}
	s, err := js.CreateStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A stored is a message as a consumer of the stream receives it.
type stored struct {
	subject, id, data string
}

// all returns the messages of a stream in order.
func all(t testing.TB, s jetstream.Stream) (msgs []stored) {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.DeleteConsumer(context.Background(), c.CachedInfo().Name) }()
	for len(msgs) < int(info.State.Msgs) {
		got, err := c.Fetch(int(info.State.Msgs)-len(msgs), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := len(msgs)
		for m := range got.Messages() {
			msgs = append(msgs, stored{m.Subject(), m.Headers().Get("Nats-Msg-Id"), string(m.Data())})
		}
		if len(msgs) == n {
			t.Fatalf("a consumer received %d of %d messages: %v", n, info.State.Msgs, got.Error())
		}
	}
	return msgs
}

// output opens an output with short retry delays. set, if not nil, may change the options.
func output(t testing.TB, c Config, set func(*deliver.OutputOptions)) (*deliver.Output, *events) {
	t.Helper()
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	e := new(events)
	o := fastOptions(e)
	if set != nil {
		set(&o)
	}
	out, err := deliver.NewOutput(d, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out, e
}

// fastOptions returns options with short retry delays that collect events in e.
func fastOptions(e *events) deliver.OutputOptions {
	return deliver.OutputOptions{
		Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20, OnError: e.add,
		Deliver: deliver.Options{
			Retry:   &deliver.RetryOptions{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond, FatalDelay: 50 * time.Millisecond},
			Breaker: &deliver.BreakerOptions{OpenMin: 10 * time.Millisecond, OpenMax: 50 * time.Millisecond, FatalDelay: 50 * time.Millisecond},
		},
	}
}

// line returns record i.
func line(i int) string { return fmt.Sprintf(`{"app":"app%d","i":%d}`, i%3, i) }

func write(t testing.TB, w io.Writer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := fmt.Fprintln(w, line(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// flush waits until all records are delivered.
func flush(t testing.TB, out *deliver.Output) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for out.Flush(ctx) != nil { // Flush fails while the circuit breaker is open
		if ctx.Err() != nil {
			t.Fatal(out.Stats().Account, ctx.Err())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// await waits until the function ok returns true.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

// numbers returns the field i of each message.
func numbers(t testing.TB, msgs []stored) (indexes []int) {
	t.Helper()
	for _, m := range msgs {
		var rec struct{ I int }
		if err := json.Unmarshal([]byte(m.data), &rec); err != nil {
			t.Fatalf("%q: %v", m.data, err)
		}
		indexes = append(indexes, rec.I)
	}
	return indexes
}

// wantCount checks that indexes contains the numbers from 0 to n-1 in order.
func wantCount(t testing.TB, indexes []int, n int) {
	t.Helper()
	if len(indexes) != n {
		t.Errorf("%d messages, want %d", len(indexes), n)
	}
	for i, got := range indexes {
		if got != i {
			t.Errorf("message %d is record %d; near it %v", i, got, indexes[max(0, i-3):min(len(indexes), i+4)])
			return
		}
	}
}

// A proxy is a TCP proxy that can discard data and close connections.
type proxy struct {
	l  net.Listener
	to string

	mu              sync.Mutex
	conns           []net.Conn
	discardAnswers  bool // discard the data of the server
	discardRequests bool // discard the data of the client
	wg              sync.WaitGroup
}

func newProxy(t testing.TB, n *node) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: n.Addr().String()}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(c, s, &p.discardRequests) })
		p.wg.Go(func() { p.pass(s, c, &p.discardAnswers) })
	}
}

// pass copies data until one of the connections ends. While *discard is true, it discards the data.
func (p *proxy) pass(from, to net.Conn, discard *bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		discarded := *discard
		p.mu.Unlock()
		if discarded {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// set sets discardAnswers and discardRequests for all connections.
func (p *proxy) set(discardAnswers, discardRequests bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discardAnswers, p.discardRequests = discardAnswers, discardRequests
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// events collects the events that OnError receives.
type events struct {
	mu  sync.Mutex
	all []batch.Event
}

func (e *events) add(ev batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// text returns the events as lines.
func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, ev := range e.all {
		fmt.Fprintln(&b, ev.Op, ev.Err)
	}
	return b.String()
}
