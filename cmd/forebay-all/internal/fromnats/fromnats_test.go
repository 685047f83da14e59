package fromnats

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/sinktest"
	"github.com/forebay-log/forebay/dedup"
	driver "github.com/forebay-log/forebay/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node is a NATS server with JetStream that listens on loopback.
type node struct {
	*server.Server
	o server.Options
}

func start(t testing.TB, set func(*server.Options)) *node {
	t.Helper()
	n := &node{o: server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}}
	if set != nil {
		set(&n.o)
	}
	n.run(t)
	t.Cleanup(n.stop)
	return n
}

func (n *node) run(t testing.TB) {
	t.Helper()
	o := n.o
	var err error
	if n.Server, err = server.NewServer(&o); err != nil {
		t.Fatal(err)
	}
	n.Start()
	if !n.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	n.o.Port = n.Addr().(*net.TCPAddr).Port
}

func (n *node) stop() {
	n.Shutdown()
	n.WaitForShutdown()
}

func admin(t testing.TB, n *node) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(n.ClientURL())
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

func stream(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs.>"}})
	if err != nil {
		t.Fatal(err)
	}
}

// consumerAckWait is the time after which the server sends an unacknowledged message again. Even on
// a busy machine, acknowledgements arrive within this time.
const consumerAckWait = 2 * time.Second

// durable creates a consumer named c for the stream LOGS.
func durable(t testing.TB, js jetstream.JetStream, wait time.Duration) {
	t.Helper()
	_, err := js.CreateConsumer(t.Context(), "LOGS", jetstream.ConsumerConfig{Durable: "c", AckWait: wait, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
}

// publish publishes messages with the numbers n to m-1.
func publish(t testing.TB, js jetstream.JetStream, n, m int) {
	t.Helper()
	for i := n; i < m; i++ {
		if _, err := js.PublishAsync("logs.a", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("the server did not acknowledge the published messages within a minute")
	}
}

type run struct {
	*Reader
	*sinktest.Sink
	ended chan error
	once  sync.Once
}

func begin(t testing.TB, n *node, set func(*Config)) *run {
	t.Helper()
	c := Config{NATS: driver.Config{Servers: fmt.Sprintf("nats://127.0.0.1:%d", n.o.Port)}, Stream: "LOGS", Consumer: "c"}
	if set != nil {
		set(&c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	r := &run{Sink: sinktest.New(), ended: make(chan error, 1)}
	r.Reader = New(c, r.Sink)
	go func() { r.ended <- r.Run() }()
	t.Cleanup(func() { r.end(t, false) })
	return r
}

func (r *run) end(t testing.TB, delivered bool) {
	r.once.Do(func() {
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		if err := r.Reader.Close(delivered); err != nil {
			t.Error(err)
		}
	})
}

// outstanding returns the number of messages that were sent but not acknowledged, and the number of
// messages that were not sent yet.
func outstanding(t testing.TB, js jetstream.JetStream) (pending, waiting int) {
	t.Helper()
	c, err := js.Consumer(t.Context(), "LOGS", "c")
	if err != nil {
		return -1, -1
	}
	info, err := c.Info(t.Context())
	if err != nil {
		return -1, -1
	}
	return info.NumAckPending, int(info.NumPending)
}

func wantOnce(t testing.TB, bodies []string, n int) {
	t.Helper()
	for i := range max(n, len(bodies)) {
		if i >= len(bodies) || i >= n || bodies[i] != fmt.Sprint(i) {
			t.Errorf("message %d of %d, want %d: %.80q", i, len(bodies), n, strings.Join(bodies[min(i, len(bodies)):], " "))
			return
		}
	}
}

// Messages are acknowledged only after the outputs have delivered their records. Until then, the
// server does not send them again.
func TestMessagesAreAcknowledgedAfterDelivery(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	durable(t, js, consumerAckWait)
	r := begin(t, n, nil)
	r.Hold()
	publish(t, js, 0, 700)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 700 })
	before, _ := outstanding(t, js)
	time.Sleep(5 * consumerAckWait / 2) // longer than the ack wait
	wantOnce(t, r.Bodies(), 700)
	if now, _ := outstanding(t, js); now != before || now < 600 {
		t.Errorf("%d messages wait for an acknowledgement, it was %d", now, before)
	}
	r.Release()
	sinktest.Await(t, "acknowledgements", func() bool { p, _ := outstanding(t, js); return p == 0 })

	r.Hold()
	publish(t, js, 700, 800)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 800 })
	r.end(t, true) // acknowledges the last records
	// Wait, because the server processes acknowledgements on another goroutine.
	sinktest.Await(t, "acknowledgements", func() bool { p, w := outstanding(t, js); return p == 0 && w == 0 })
}

// If messages are not delivered, the server immediately sends them again.
func TestUndeliveredMessagesAreRedelivered(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	publish(t, js, 0, 100)
	r := begin(t, n, nil) // creates the consumer
	sinktest.Await(t, "acknowledgements", func() bool { p, w := outstanding(t, js); return len(r.Bodies()) == 100 && p == 0 && w == 0 })
	r.Hold()
	publish(t, js, 100, 200)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 200 })
	r.end(t, false)
	next := begin(t, n, nil)
	sinktest.Await(t, "reading again", func() bool { return len(next.Bodies()) == 100 })
	if got := next.Bodies(); !slices.Contains(got, "100") || !slices.Contains(got, "199") {
		t.Error(got)
	}
	sinktest.Await(t, "acknowledgements", func() bool { p, _ := outstanding(t, js); return p == 0 })
}

// While the outputs are full, the server does not send messages again, because the reader sends
// in-progress acknowledgements.
func TestMessagesStayInProgressWhileOutputsAreFull(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	durable(t, js, consumerAckWait)
	r := begin(t, n, nil)
	r.Fill()
	publish(t, js, 0, 2000)
	sinktest.Await(t, "a fetch", func() bool { p, _ := outstanding(t, js); return p > 0 })
	time.Sleep(5 * consumerAckWait / 2) // longer than the ack wait
	if p, _ := outstanding(t, js); p > fetchMessages+1 {
		t.Errorf("%d messages are fetched", p)
	}
	r.Drain()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 2000 })
	wantOnce(t, r.Bodies(), 2000)
}

// After a restart of the server, the reader connects again and acknowledges messages over the new
// connection.
func TestReaderReconnectsAndAcknowledges(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	durable(t, js, time.Minute)
	publish(t, js, 0, 300)
	r := begin(t, n, nil)
	r.Hold()
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 300 })
	n.stop()
	sinktest.Await(t, "a message", func() bool { return strings.Contains(r.Messages(), "cannot read stream LOGS") })
	n.run(t)
	js = admin(t, n)
	publish(t, js, 300, 400)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 400 })
	wantOnce(t, r.Bodies(), 400)
	r.Release()
	sinktest.Await(t, "acknowledgements", func() bool { p, _ := outstanding(t, js); return p == 0 })
	sinktest.Await(t, "a message", func() bool { return strings.Contains(r.Messages(), "works again") })
}

// A record gets the time and the fields of the message.
func TestRecordHasFieldsOfJetStream(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	m := &nats.Msg{Subject: "logs.web", Data: []byte("one"), Header: nats.Header{nats.MsgIdHdr: {"x-1"}, "Tenant": {"t"}}}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := begin(t, n, func(c *Config) { c.Fields = []string{"sequence", nats.MsgIdHdr, "Tenant", "None"} })
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 1 })
	if got := r.Records()[0]; got.Attrs != "subject=logs.web sequence=1 Nats-Msg-Id=x-1 Tenant=t " || time.Since(got.Time).Abs() > time.Hour || got.Level != "" {
		t.Errorf("%+v", got)
	}
}

// A message with the id of an earlier message is acknowledged and skipped.
func TestDuplicatesAreSkippedAndAcknowledged(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs.>"}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []uint64{1, 2, 1, 3} {
		m := &nats.Msg{Subject: "logs.a", Data: fmt.Append(nil, i), Header: nats.Header{nats.MsgIdHdr: {dedup.ID{Origin: [16]byte{1}, Ticket: i}.String()}}}
		sinktest.Await(t, "a message", func() bool { // publish after the duplicate window of the stream, so that the stream accepts the duplicate
			ack, err := js.PublishMsg(t.Context(), m)
			return err == nil && !ack.Duplicate
		})
	}
	r := begin(t, n, func(c *Config) { c.Dedup = true })
	sinktest.Await(t, "acknowledgements", func() bool { p, w := outstanding(t, js); return p == 0 && w == 0 && len(r.Bodies()) == 3 })
	r.end(t, true)
	if got := strings.Join(r.Bodies(), ""); got != "123" || !strings.Contains(r.Messages(), "duplicate messages skipped: 1") {
		t.Error(got, r.Messages())
	}
}

// A missing stream is reported once. When it is created, it is read.
func TestMissingStreamIsReportedOnce(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	r := begin(t, n, nil)
	sinktest.Await(t, "a message", func() bool {
		return strings.Contains(r.Messages(), "cannot read stream LOGS: there is no such stream; retrying")
	})
	stream(t, js)
	publish(t, js, 0, 10)
	sinktest.Await(t, "reading", func() bool { return len(r.Bodies()) == 10 })
	if n := strings.Count(r.Messages(), "no such stream"); n != 1 {
		t.Errorf("it is reported %d times:\n%s", n, r.Messages())
	}
}

func TestRefusedCredentialsAreReportedAndHidden(t *testing.T) {
	n := start(t, func(o *server.Options) { o.Username, o.Password = "me", "right" })
	r := begin(t, n, func(c *Config) { c.NATS.Servers = fmt.Sprintf("nats://me:wr0ng-word@127.0.0.1:%d", n.o.Port) })
	sinktest.Await(t, "a message", func() bool { return strings.Contains(r.Messages(), "Authorization Violation") })
	if strings.Contains(r.Messages(), "wr0ng") {
		t.Error(r.Messages())
	}
}

// A consumer without explicit acknowledgements is rejected, because records would be lost.
func TestConsumerWithoutAcksIsRejected(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	if _, err := js.CreateConsumer(t.Context(), "LOGS", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	r := begin(t, n, nil)
	sinktest.Await(t, "a message", func() bool {
		return strings.Contains(r.Messages(), "the acknowledgement policy AckNone: create one with the policy explicit")
	})
}

func TestClosedOutputsEndTheReader(t *testing.T) {
	n := start(t, nil)
	js := admin(t, n)
	stream(t, js)
	r := begin(t, n, nil)
	r.Sink.Close()
	publish(t, js, 0, 10)
	if err := <-r.ended; err == nil || err.Error() != "the outputs are closed" {
		t.Error(err)
	}
	r.ended <- nil
	r.end(t, false)
	if p, w := outstanding(t, js); p+w != 10 {
		t.Errorf("%d and %d messages are left", p, w)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{NATS: driver.Config{Servers: "nats://h"}, Stream: "a.b", Consumer: "c"},
		{NATS: driver.Config{Servers: "nats://h"}, Stream: "a", Consumer: "*"},
		{Stream: "a", Consumer: "c"},
	} {
		if c.Check() == nil {
			t.Errorf("%+v is sound", c)
		}
	}
}
