package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/secrets"
)

// A Destination is a [deliver.Destination] that produces to Kafka. Put an outlet in front
// of it with [deliver.NewOutput]. Its methods may be called from several goroutines.
type Destination struct {
	c      Config
	spread uint64 // partition of records without a key and without an origin

	connected                                        atomic.Bool
	sessions, records, resent, cut, refused, delayed atomic.Uint64

	mu         sync.Mutex // leaf; guards the rest
	limits     map[string]int
	controls   map[place]*control
	controlled int // their bytes
}

// New returns a Destination. It connects when there is something to send.
func New(c Config) (*Destination, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &Destination{c: r, spread: rand.Uint64(), limits: map[string]int{}, controls: map[place]*control{}}, nil
}

// String returns the destination without credentials.
func (d *Destination) String() string {
	scheme := "kafka"
	if d.c.TLS != nil {
		scheme = "kafka+tls"
	}
	return scheme + "://" + strings.Join(d.c.Brokers, ",") + "/" + d.c.Topic
}

// Traits says that Window batches may be under way, none larger than a Kafka batch. Records
// of every form are taken.
func (d *Destination) Traits() deliver.Traits {
	return deliver.Traits{Limits: batch.Limits{Bytes: d.c.BatchBytes - d.c.BatchBytes/4}, Window: d.c.Window}
}

// Stats is a snapshot of a [Destination].
type Stats struct {
	Connected bool          // a session is open
	Sessions  uint64        // sessions begun, each another producer
	Records   uint64        // records stored
	Resent    uint64        // Kafka batches sent again within a session
	Cut       uint64        // Kafka batches cut because they were too large
	Refused   uint64        // records refused
	Throttled time.Duration // how long brokers made the client wait because of quotas
}

// Stats returns a snapshot.
func (d *Destination) Stats() Stats {
	return Stats{
		Connected: d.connected.Load(), Sessions: d.sessions.Load(), Records: d.records.Load(), Resent: d.resent.Load(),
		Cut: d.cut.Load(), Refused: d.refused.Load(), Throttled: time.Duration(d.delayed.Load()),
	}
}

// limit returns how large a Kafka batch for a topic may be before compression.
func (d *Destination) limit(topic string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.limits[topic]; ok {
		return n
	}
	return d.c.BatchBytes
}

// learn lowers the limit of a topic.
func (d *Destination) learn(topic string, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.limits[topic]; !ok || bytes < n {
		d.limits[topic] = max(bytes, 1<<10)
	}
}

// forget undoes learn: what taught it was no limit.
func (d *Destination) forget(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.limits, topic)
}

// throttled counts how long quotas hold up the client, which waits by itself.
type throttled struct{ d *Destination }

func (h throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	h.d.delayed.Add(uint64(wait))
}

// client returns a client of the protocol. It retries nothing for long: that is the session's.
func (d *Destination) client(ctx context.Context) (*kgo.Client, error) {
	overhead := min(5*time.Second, max(100*time.Millisecond, d.c.RequestTimeout/2))
	return kgo.NewClient(append(d.c.options(), kgo.WithContext(ctx),
		kgo.RequestTimeoutOverhead(overhead), kgo.RequestRetries(len(d.c.Brokers)+1),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.WithHooks(throttled{d}), kgo.MetadataMinAge(50*time.Millisecond))...)
}

// ClientOptions returns the options of a client that has the brokers, the credentials and
// TLS of c, such as one that consumes. The other fields, Topic too, do not matter. The error
// names everything that is wrong.
func (c Config) ClientOptions() ([]kgo.Opt, error) {
	c.Topic = cmp.Or(c.Topic, "any")
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return r.options(), nil
}

// options are those of each client of a Config that was resolved.
func (c *Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("forebay", "1"), kgo.DisableClientMetrics(),
	}
	switch {
	case c.Dial != nil:
		opts = append(opts, kgo.Dialer(c.Dial))
	case c.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(c.TLS.Clone()), kgo.DialTimeout(c.DialTimeout))
	default:
		opts = append(opts, kgo.DialTimeout(c.DialTimeout))
	}
	if c.mechanism != nil {
		opts = append(opts, kgo.SASL(c.mechanism))
	}
	return opts
}

// Open connects, authenticates and becomes a producer of its own.
func (d *Destination) Open(l deliver.Life) (deliver.Session, error) {
	if d.c.DryRun != nil {
		return deliver.SendFunc(d.Traits(), d.sendDry).Open(l)
	}
	ctx, cancel := context.WithCancel(l.Context())
	s := newSession(d, l, ctx, cancel)
	err := s.begin()
	if err != nil {
		s.stop()
		if ended := context.Cause(l.Context()); ended != nil {
			err = ended
		}
		return nil, d.say("cannot begin", err)
	}
	d.sessions.Add(1)
	d.connected.Store(true)
	go s.run()
	return s, nil
}

// begin gets the number of a new producer.
func (s *session) begin() (err error) {
	if s.cl, err = s.d.client(s.ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.d.c.DialTimeout)
	defer cancel()
	resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, s.cl)
	if errors.Is(err, context.DeadlineExceeded) && s.ctx.Err() == nil {
		return fmt.Errorf("nobody at %s has answered as a broker within %v; is it one, and does it want TLS, or none?", strings.Join(s.d.c.Brokers, ","), s.d.c.DialTimeout)
	}
	if err != nil {
		return s.d.hide(err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("the broker gives no producer id: %w", err)
	}
	s.pid, s.epoch = resp.ProducerID, resp.ProducerEpoch
	return nil
}

// say describes an error; events name the output. Only a change of configuration mends those that
// it marks as fatal.
func (d *Destination) say(what string, err error) error {
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the broker ended the connection; it may want TLS, or refuse the credentials", err)
	}
	text := fmt.Errorf("kafka: %s: %w", what, err)
	if isFatal(err) {
		return batch.Fatal(text)
	}
	return text
}

// fatal are the errors that only a change of configuration mends.
var fatal = []error{
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.ClusterAuthorizationFailed,
	kerr.TopicAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.InvalidTopicException, kerr.PolicyViolation,
	kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks,
	kerr.SecurityDisabled,
}

func isFatal(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		op          *net.OpError
	)
	return slices.ContainsFunc(fatal, func(f error) bool { return errors.Is(err, f) }) ||
		errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

// hiddenMark stands for a credential.
const hiddenMark = "***"

// hide removes the credentials from an error of the client, which may repeat the words of a
// broker.
func (d *Destination) hide(err error) error {
	if err == nil {
		return nil
	}
	return secrets.HideIn(err, hiddenMark, d.c.User, d.c.Password)
}

// words returns the beginning of a broker's text, without the credentials.
func (d *Destination) words(text string) string {
	return fmt.Sprintf("%.200q", secrets.Hide(text, hiddenMark, d.c.User, d.c.Password))
}
