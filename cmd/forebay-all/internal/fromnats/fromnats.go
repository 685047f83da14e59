// Package fromnats reads a stream of JetStream through a durable consumer.
//
// A message is acknowledged once every output has its record. Until then the server is told
// that it is being worked on, so that it does not send it again. While outputs are full
// nothing is fetched beyond what one request brings.
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
	NATS     driver.Config // servers, credentials, TLS
	Stream   string
	Consumer string   // the durable one; it is made if it does not exist
	Subjects []string // filters of one that is made; nil: all
	FromEnd  bool     // one that is made begins at the end
	Fields   []string // see [Reader.attrs]
	Dedup    bool     // messages that come twice are left out
}

// Check finds what is wrong with c.
func (c *Config) Check() error {
	for _, f := range []struct{ what, name string }{{"stream", c.Stream}, {"consumer", c.Consumer}} {
		if strings.ContainsAny(f.name, " .*>/\\\r\n\t") {
			return fmt.Errorf("--%s %q is not a valid %[1]s name: it has spaces, dots, wildcards or slashes", f.what, f.name)
		}
	}
	_, err := c.NATS.ClientOptions()
	return err
}

// The shape of requests, and of a consumer that is made.
const (
	fetchMessages = 500
	fetchBytes    = 4 << 20
	fetchWait     = 100 * time.Millisecond // for more messages, once there is one
	idleWait      = 5 * time.Second        // for the first one
	ackWait       = 30 * time.Second
	ackPending    = 10_000
	leastPause    = 100 * time.Millisecond // between connections
	mostPause     = 15 * time.Second
	closing       = 10 * time.Second // for the last acknowledgements
)

// Bodies of acknowledgements.
var (
	acked = []byte("+ACK")
	works = []byte("+WPI") // it is being worked on
	again = []byte("-NAK") // it is to be sent again
)

// A Reader is a [input.Reader].
type Reader struct {
	c    Config
	sink commits.Sink
	ctx  context.Context // until Stop
	stop context.CancelFunc
	loop *commits.Loop
	over chan struct{} // closed by Close
	met  chan struct{} // holds one when there is another connection
	beat chan struct{} // closed when nobody tells the server any more that it goes on

	reading, storing commits.Trouble

	mu      sync.Mutex // a leaf; guards the rest
	conn    *nats.Conn // nil: there is none
	patient time.Duration
	held    []string // subjects that acknowledge messages: fetched, and not put
	put     []string // put, and not acknowledged

	window *dedup.Window // of Run; nil: none
	rec    input.Record
}

// New returns a Reader, which has no connection yet.
func New(c Config, sink commits.Sink) *Reader {
	r := &Reader{
		c: c, sink: sink, over: make(chan struct{}), met: make(chan struct{}, 1), beat: make(chan struct{}), patient: ackWait,
		reading: commits.Trouble{Sink: sink}, storing: commits.Trouble{Sink: sink},
	}
	if c.Dedup {
		r.window = dedup.New(nil)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.loop = commits.Begin(sink, 200*time.Millisecond, r.take, r.acknowledge)
	go r.goOn()
	return r
}

// Run reads until Stop, or until the sink takes no more.
func (r *Reader) Run() error {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		began := time.Now()
		err := r.session()
		switch {
		case r.ctx.Err() != nil:
			return nil
		case errors.Is(err, input.ErrClosed):
			return err
		}
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		r.reading.Is("cannot read stream "+r.c.Stream, r.plain(err))
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Stop makes Run return.
func (r *Reader) Stop() { r.stop() }

// session reads over one connection. It stays open when Run is to end: acknowledgements go
// over it still.
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
		r.use(nil, ackWait)
		conn.Close()
	}
	return err
}

// use makes conn the connection of acknowledgements.
func (r *Reader) use(conn *nats.Conn, patient time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.patient = conn, patient
	select {
	case r.met <- struct{}{}:
	default:
	}
}

// read puts messages until something fails.
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
	r.use(conn, slices.Min(append(c.BackOff, c.AckWait)))
	r.loop.News() // what an earlier connection has not acknowledged
	for {
		ctx, cancel := context.WithTimeout(r.ctx, idleWait)
		n, err := r.fetch(consumer, 1, jetstream.FetchContext(ctx)) // of any size
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
		r.reading.Over()
	}
}

// consumer returns the durable consumer, and makes it where there is none.
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

// fetch puts up to most messages.
func (r *Reader) fetch(c jetstream.Consumer, most int, opts ...jetstream.FetchOpt) (int, error) {
	batch, err := c.Fetch(most, opts...)
	if err != nil {
		return 0, err
	}
	var all []jetstream.Msg
	for m := range batch.Messages() {
		all = append(all, m)
		r.mu.Lock()
		r.held = append(r.held, m.Reply())
		r.mu.Unlock()
	}
	for _, m := range all {
		if r.ctx.Err() != nil {
			return 0, nil
		}
		if r.first(m) {
			if err := r.sink.Put(r.record(m)); err != nil {
				return 0, err
			}
		}
		r.mu.Lock()
		r.held = r.held[1:]
		r.put = append(r.put, m.Reply())
		r.mu.Unlock()
		r.loop.News()
	}
	if err := batch.Error(); !errors.Is(err, context.DeadlineExceeded) {
		return len(all), err
	}
	return len(all), nil
}

// first reports whether a message came for the first time, as far as is known.
func (r *Reader) first(m jetstream.Msg) bool {
	if r.window == nil {
		return true
	}
	id, err := dedup.Parse([]byte(m.Headers().Get(nats.MsgIdHdr)))
	return err != nil || r.window.First(id)
}

// record returns what the sink is given for m.
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

// attrs appends the headers that Config.Fields name.
func (r *Reader) attrs(dst []slog.Attr, m jetstream.Msg) []slog.Attr {
	for _, name := range r.c.Fields {
		if v := m.Headers().Get(name); v != "" && name != "sequence" {
			dst = append(dst, slog.String(name, v))
		}
	}
	return dst
}

// take returns what was put and is not acknowledged.
func (r *Reader) take() ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.put), len(r.put) > 0 && r.conn != nil
}

// acknowledge tells the server that the first messages of put are safe.
func (r *Reader) acknowledge(ctx context.Context, all []string) {
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	if err := r.describe(ctx, acked, all); err != nil {
		return // the connection is gone, which Run tells; the next one says it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.put = r.put[len(all):]; len(r.put) > 0 {
		r.loop.News()
	}
}

// describe sends a body to subjects, and waits until the server has it.
func (r *Reader) describe(ctx context.Context, body []byte, subjects []string) error {
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

// goOn tells the server that it goes on with what it has, until Close.
func (r *Reader) goOn() {
	defer close(r.beat)
	for {
		r.mu.Lock()
		patient := r.patient
		r.mu.Unlock()
		select {
		case <-r.over:
			return
		case <-r.met: // a server may be less patient
			continue
		case <-time.After(patient / 3):
		}
		r.mu.Lock()
		all := slices.Concat(r.held, r.put)
		r.mu.Unlock()
		if len(all) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), patient/3)
			_ = r.describe(ctx, works, all) // Run notices a connection that is gone
			cancel()
		}
	}
}

// plain takes secrets and the name of the library out of an error.
func (r *Reader) plain(err error) error {
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

// Close acknowledges everything that was put, if the outputs have it, and closes the
// connection.
func (r *Reader) Close(delivered bool) error {
	r.stop()
	r.loop.End()
	close(r.over)
	<-r.beat
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var err error
	if delivered && len(r.put) > 0 && r.describe(ctx, acked, r.put) != nil {
		err = fmt.Errorf("the last messages of stream %s were not acknowledged: they are read again", r.c.Stream)
	}
	if !delivered {
		r.held = append(r.held, r.put...)
	}
	_ = r.describe(ctx, again, r.held) // else they are sent again when the server's patience ends
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
