// Package fromnats reads a stream of JetStream through a durable consumer.
//
// A message is acknowledged after all outputs have delivered or stored its record. Until then, the
// Reader sends in-progress acknowledgements, so that the server does not send the message again.
// While the outputs are full, at most the messages of one request are buffered.
package fromnats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/commits"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/internal/secrets"
	driver "github.com/forebay-log/forebay/jetstream"
)

// Config configures a [Reader].
type Config struct {
	NATS     driver.Config // servers, credentials and TLS
	Stream   string
	Consumer string   // durable name; if the consumer does not exist, it is created
	Subjects []string // filters of a new consumer; nil selects all subjects
	FromEnd  bool     // a new consumer starts at the end of the stream
	Fields   []string // fields of a record in addition to the subject, see [Reader.attrs]
	Dedup    bool     // skip duplicates
}

// Check returns an error if c is invalid. It does not connect.
func (c *Config) Check() error {
	for _, f := range []struct{ what, name string }{{"stream", c.Stream}, {"consumer", c.Consumer}} {
		if strings.ContainsAny(f.name, " .*>/\\\r\n\t") {
			return fmt.Errorf("--%s %q is not a valid %[1]s name: it has spaces, dots, wildcards or slashes", f.what, f.name)
		}
	}
	_, err := c.NATS.ClientOptions()
	return err
}

// These are limits for requests, and settings of a new consumer.
const (
	fetchMessages = 500
	fetchBytes    = 4 << 20
	fetchWait     = 100 * time.Millisecond // time to wait for more messages after the first one
	idleWait      = 5 * time.Second        // time to wait for the first message
	ackWait       = 30 * time.Second
	ackPending    = 10_000
	minPause      = 100 * time.Millisecond // pause between attempts to connect
	maxPause      = 15 * time.Second
	ackTimeout    = 10 * time.Second // time limit for sending acknowledgements
)

// These are bodies of acknowledgements. The documentation of JetStream calls them AckAck,
// AckProgress and AckNak.
var (
	acked      = []byte("+ACK")
	inProgress = []byte("+WPI") // makes the server wait longer for an acknowledgement
	nak        = []byte("-NAK") // makes the server send the message again
)

// A Reader implements [input.Reader].
type Reader struct {
	c            Config
	sink         commits.Sink
	ctx          context.Context // done after Stop
	stop         context.CancelFunc
	committer    *commits.Committer
	closed       chan struct{} // closed by Close to end keepInProgress
	connChanged  chan struct{} // receives a value when conn or ackWait changes
	progressDone chan struct{} // closed when keepInProgress has returned

	reads, acks commits.FailureLog

	mu      sync.Mutex // guards the fields below; acquire no other lock while holding mu
	conn    *nats.Conn // nil while not connected
	ackWait time.Duration
	fetched []string // reply subjects of messages that were fetched but not passed to the sink
	put     []string // reply subjects of messages that were passed to the sink but not acknowledged

	window *dedup.Window // detects duplicates; nil unless Config.Dedup is set; used only by Run
	rec    input.Record
}

// New returns a Reader and starts its goroutines. Run connects to the server.
func New(c Config, sink commits.Sink) *Reader {
	r := &Reader{
		c: c, sink: sink, closed: make(chan struct{}), connChanged: make(chan struct{}, 1), progressDone: make(chan struct{}), ackWait: ackWait,
		reads: commits.FailureLog{Sink: sink}, acks: commits.FailureLog{Sink: sink},
	}
	if c.Dedup {
		r.window = dedup.New(nil)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.committer = commits.Start(sink, 200*time.Millisecond, r.pending, r.acknowledge)
	go r.keepInProgress()
	return r
}

// Run reads until Stop is called or the outputs are closed. In the latter case it returns
// input.ErrClosed.
func (r *Reader) Run() error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := r.session()
		switch {
		case r.ctx.Err() != nil:
			return nil
		case errors.Is(err, input.ErrClosed):
			return err
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		r.reads.Failed("cannot read stream "+r.c.Stream, r.hide(err))
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Stop makes Run return after the current call of the sink. It may be called more than once.
func (r *Reader) Stop() { r.stop() }

// session reads over one connection. After the last session, the connection stays open, because
// Close sends acknowledgements.
func (r *Reader) session() error {
	opts, err := r.c.NATS.ClientOptions()
	if err != nil {
		return err
	}
	conn, err := nats.Connect(r.c.NATS.Servers, append(opts, nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		return err
	}
	err = r.read(conn)
	if r.ctx.Err() == nil && !errors.Is(err, input.ErrClosed) {
		r.setConn(nil, ackWait)
		conn.Close()
	}
	return err
}

// setConn sets the connection for acknowledgements. wait is the ack wait of the consumer: the time
// after which the server sends an unacknowledged message again.
func (r *Reader) setConn(conn *nats.Conn, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.ackWait = conn, wait
	commits.Signal(r.connChanged)
}

// read fetches messages and passes them to the sink, until Stop is called or an error occurs.
func (r *Reader) read(conn *nats.Conn) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := r.consumer(js)
	if err != nil {
		if r.ctx.Err() != nil {
			conn.Close()
		}
		return err
	}
	c := consumer.CachedInfo().Config
	r.setConn(conn, slices.Min(append(c.BackOff, c.AckWait)))
	r.committer.Notify() // acknowledge messages from an earlier connection
	for {
		ctx, cancel := context.WithTimeout(r.ctx, idleWait)
		n, err := r.fetch(consumer, 1, jetstream.FetchContext(ctx)) // without the limit fetchBytes, which a single message may exceed
		cancel()
		if err == nil && n > 0 {
			_, err = r.fetch(consumer, fetchMessages, jetstream.FetchMaxWait(fetchWait), jetstream.FetchMaxBytes(fetchBytes))
		}
		switch {
		case r.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case conn.IsClosed():
			return nats.ErrConnectionClosed
		}
		r.reads.Worked()
	}
}

// consumer returns the durable consumer. If the consumer does not exist, it is created.
func (r *Reader) consumer(js jetstream.JetStream) (jetstream.Consumer, error) {
	c, err := js.Consumer(r.ctx, r.c.Stream, r.c.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		conf := jetstream.ConsumerConfig{
			Durable: r.c.Consumer, FilterSubjects: r.c.Subjects, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: ackPending,
		}
		if r.c.FromEnd {
			conf.DeliverPolicy = jetstream.DeliverNewPolicy
		}
		c, err = js.CreateConsumer(r.ctx, r.c.Stream, conf)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, errors.New("there is no such stream")
	case err != nil:
		return nil, err
	case c.CachedInfo().Config.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, fmt.Errorf("the consumer %s has the acknowledgement policy %s: create one with the policy explicit", r.c.Consumer, c.CachedInfo().Config.AckPolicy)
	}
	return c, nil
}

// fetch requests at most limit messages and passes them to the sink. It returns the number of
// messages.
func (r *Reader) fetch(c jetstream.Consumer, limit int, opts ...jetstream.FetchOpt) (int, error) {
	batch, err := c.Fetch(limit, opts...)
	if err != nil {
		return 0, err
	}
	var all []jetstream.Msg
	for m := range batch.Messages() {
		all = append(all, m)
		r.mu.Lock()
		r.fetched = append(r.fetched, m.Reply())
		r.mu.Unlock()
	}
	for _, m := range all {
		if r.ctx.Err() != nil {
			return 0, nil
		}
		if r.isFirst(m) {
			if err := r.sink.Put(r.record(m)); err != nil {
				return 0, err
			}
		}
		r.mu.Lock()
		r.fetched = r.fetched[1:]
		r.put = append(r.put, m.Reply())
		r.mu.Unlock()
		r.committer.Notify()
	}
	if err := batch.Error(); !errors.Is(err, context.DeadlineExceeded) {
		return len(all), err
	}
	return len(all), nil
}

// isFirst returns false if m is a duplicate of an earlier message.
func (r *Reader) isFirst(m jetstream.Msg) bool {
	if r.window == nil {
		return true
	}
	id, err := dedup.Parse([]byte(m.Headers().Get(nats.MsgIdHdr)))
	return err != nil || r.window.First(id)
}

// record converts m. The result is valid until the next call.
func (r *Reader) record(m jetstream.Msg) *input.Record {
	attrs := append(r.rec.Attrs[:0], slog.String("subject", m.Subject()))
	r.rec = input.Record{Body: m.Data()}
	if meta, err := m.Metadata(); err == nil {
		r.rec.Time = meta.Timestamp
		if slices.Contains(r.c.Fields, "sequence") {
			attrs = append(attrs, slog.Uint64("sequence", meta.Sequence.Stream))
		}
	}
	r.rec.Attrs = r.attrs(attrs, m)
	return &r.rec
}

// attrs appends attributes for the headers in Config.Fields.
func (r *Reader) attrs(dst []slog.Attr, m jetstream.Msg) []slog.Attr {
	for _, name := range r.c.Fields {
		if v := m.Headers().Get(name); v != "" && name != "sequence" {
			dst = append(dst, slog.String(name, v))
		}
	}
	return dst
}

// pending returns the reply subjects of the messages that can be acknowledged.
func (r *Reader) pending() ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.put), len(r.put) > 0 && r.conn != nil
}

// acknowledge acknowledges messages. all contains their reply subjects, which are the first
// elements of r.put.
func (r *Reader) acknowledge(ctx context.Context, all []string) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := r.publish(ctx, acked, all); err != nil {
		return // Run reports the lost connection, and the messages are acknowledged over the next one
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.put = r.put[len(all):]; len(r.put) > 0 {
		r.committer.Notify()
	}
}

// publish sends body to subjects, and waits until the server has received all messages.
func (r *Reader) publish(ctx context.Context, body []byte, subjects []string) error {
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn == nil {
		return nats.ErrConnectionClosed
	}
	for _, s := range subjects {
		if err := conn.Publish(s, body); err != nil {
			return err
		}
	}
	return conn.FlushWithContext(ctx)
}

// keepInProgress sends in-progress acknowledgements for all messages that are not acknowledged,
// three times per ack wait. It runs until Close is called.
func (r *Reader) keepInProgress() {
	defer close(r.progressDone)
	for {
		r.mu.Lock()
		wait := r.ackWait
		r.mu.Unlock()
		select {
		case <-r.closed:
			return
		case <-r.connChanged: // use the new ack wait
			continue
		case <-time.After(wait / 3):
		}
		r.mu.Lock()
		all := slices.Concat(r.fetched, r.put)
		r.mu.Unlock()
		if len(all) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), wait/3)
			_ = r.publish(ctx, inProgress, all) // an error means a lost connection, which Run notices
			cancel()
		}
	}
}

// hide removes credentials from err.
func (r *Reader) hide(err error) error {
	if err == nil {
		return nats.ErrConnectionClosed
	}
	words := []string{r.c.NATS.Token}
	for s := range strings.SplitSeq(r.c.NATS.Servers, ",") {
		if u, err := url.Parse(s); err == nil && u.User != nil {
			password, _ := u.User.Password()
			words = append(words, password)
		}
	}
	return secrets.HideIn(err, "***", words...)
}

// Close closes the connection. If delivered is true, all outputs have delivered or stored all
// records, and Close acknowledges the messages. If delivered is false, it requests that they are
// sent again.
func (r *Reader) Close(delivered bool) error {
	r.stop()
	r.committer.Stop()
	close(r.closed)
	<-r.progressDone
	ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
	defer cancel()
	var err error
	if delivered && len(r.put) > 0 && r.publish(ctx, acked, r.put) != nil {
		err = fmt.Errorf("the last messages of stream %s were not acknowledged: they are read again", r.c.Stream)
	}
	if !delivered {
		r.fetched = append(r.fetched, r.put...)
	}
	_ = r.publish(ctx, nak, r.fetched) // if this fails, the server sends the messages again after their ack wait
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	if r.window != nil {
		if n := r.window.Stats().Twice; n > 0 {
			r.sink.Say("duplicate messages skipped: %d", n)
		}
	}
	return err
}
