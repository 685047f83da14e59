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

// A Driver is a [deliver.Destination] that sends records to Kafka. Use it with [deliver.NewOutput].
// Its methods are safe for concurrent use.
type Driver struct {
	c Config // resolved, immutable
	// spread is a random number. It determines the partition of records with neither a key nor an
	// origin.
	spread uint64

	// The following fields are counters for Stats. delayed is Stats.Throttled in ns.
	connected                                        atomic.Bool
	sessions, records, resent, cut, refused, delayed atomic.Uint64

	// The following fields are kept across sessions, so that a new session knows the size limits
	// and the reference records (copies of accepted records). mu guards them. No other lock is
	// acquired while mu is held.
	mu sync.Mutex
	// limits contains the learned size limit of a Kafka batch, in bytes before compression, by
	// topic.
	limits         map[string]int
	references     map[topicPartition]*reference
	referenceBytes int // total size of the references, in bytes
}

// New returns a Driver. The error lists every problem of c. New does not connect; the first session
// does.
func New(c Config) (*Driver, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &Driver{c: r, spread: rand.Uint64(), limits: map[string]int{}, references: map[topicPartition]*reference{}}, nil
}

// String returns the address of the destination without credentials.
func (d *Driver) String() string {
	scheme := "kafka"
	if d.c.TLS != nil {
		scheme = "kafka+tls"
	}
	return scheme + "://" + strings.Join(d.c.Brokers, ",") + "/" + d.c.Topic
}

// Traits returns the limits of a batch: up to Window batches are in flight, and records of all
// content types are accepted. A batch has at most three quarters of BatchBytes, because keys,
// headers and the conversion to JSON enlarge records.
func (d *Driver) Traits() deliver.Traits {
	return deliver.Traits{Limits: batch.Limits{Bytes: d.c.BatchBytes - d.c.BatchBytes/4}, Window: d.c.Window}
}

// Stats is a snapshot of the counters of a [Driver] since New.
type Stats struct {
	Connected bool   // a session is open
	Sessions  uint64 // number of sessions, each with a new producer
	Records   uint64 // number of stored records
	Resent    uint64 // number of Kafka batches that were sent again within a session
	Cut       uint64 // number of Kafka batches that were divided because they were too large
	Refused   uint64 // number of records that the brokers refused
	// Throttled is the total delay that quotas of the brokers have imposed.
	Throttled time.Duration
}

// Stats returns a snapshot of the counters. It does not wait for the brokers.
func (d *Driver) Stats() Stats {
	return Stats{
		Connected: d.connected.Load(), Sessions: d.sessions.Load(), Records: d.records.Load(), Resent: d.resent.Load(),
		Cut: d.cut.Load(), Refused: d.refused.Load(), Throttled: time.Duration(d.delayed.Load()),
	}
}

// limit returns the maximum size of a Kafka batch for a topic, in bytes before compression.
func (d *Driver) limit(topic string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.limits[topic]; ok {
		return n
	}
	return d.c.BatchBytes
}

// learn lowers the limit of a topic to the given number of bytes, but not below 1 KiB.
func (d *Driver) learn(topic string, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.limits[topic]; !ok || bytes < n {
		d.limits[topic] = max(bytes, 1<<10)
	}
}

// forget removes the learned limit of a topic. It is called when a faulty broker has refused a
// batch because of its size.
func (d *Driver) forget(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.limits, topic)
}

// throttled is a hook of the Kafka client. It adds up the delays that brokers' quotas impose. The
// client itself waits during these delays.
type throttled struct{ d *Driver }

// OnBrokerThrottle implements [kgo.HookBrokerThrottle].
func (h throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	h.d.delayed.Add(uint64(wait))
}

// client returns a Kafka client for single requests. The client repeats a failed request only a few
// times, because the session has its own retry delays. Its connections end with ctx.
func (d *Driver) client(ctx context.Context) (*kgo.Client, error) {
	// The client waits for the timeout in a produce request plus this overhead.
	overhead := min(5*time.Second, max(100*time.Millisecond, d.c.RequestTimeout/2))
	return kgo.NewClient(append(d.c.options(), kgo.WithContext(ctx),
		kgo.RequestTimeoutOverhead(overhead), kgo.RequestRetries(len(d.c.Brokers)+1),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.WithHooks(throttled{d}), kgo.MetadataMinAge(50*time.Millisecond))...)
}

// ClientOptions returns the options of a Kafka client with the brokers, the credentials and the TLS
// configuration of c, for example for a consumer. The other fields, including Topic, are ignored.
// The error lists every problem of c.
func (c Config) ClientOptions() ([]kgo.Opt, error) {
	c.Topic = cmp.Or(c.Topic, "any")
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return r.options(), nil
}

// options returns the options of every Kafka client with the resolved Config c.
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

// Open connects, authenticates and starts a new producer. The sequence numbers of earlier sessions
// do not matter, because they belong to other producer ids. Open implements [deliver.Destination].
func (d *Driver) Open(l deliver.Life) (deliver.Session, error) {
	if d.c.DryRun != nil {
		return deliver.SendFunc(d.Traits(), d.sendDry).Open(l)
	}
	ctx, cancel := context.WithCancel(l.Context())
	// The context of the session ends when the context of l ends, or when stop is called.
	s := newSession(d, l, ctx, cancel)
	err := s.begin()
	if err != nil {
		s.stop()
		if ended := context.Cause(l.Context()); ended != nil {
			err = ended
		}
		return nil, d.describe("cannot begin", err)
	}
	d.sessions.Add(1)
	d.connected.Store(true)
	go s.run()
	return s, nil
}

// begin requests the id of a new idempotent producer (InitProducerId), within DialTimeout.
func (s *session) begin() (err error) {
	if s.cl, err = s.d.client(s.ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.d.c.DialTimeout)
	defer cancel()
	// This is the first request of the session. If it succeeds, a broker is reachable and the
	// credentials are accepted.
	resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, s.cl)
	if errors.Is(err, context.DeadlineExceeded) && s.ctx.Err() == nil {
		return fmt.Errorf("no broker answered at %s within %v; check the address, and whether it requires TLS", strings.Join(s.d.c.Brokers, ","), s.d.c.DialTimeout)
	}
	if err != nil {
		return s.d.hide(err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("the broker assigned no producer id: %w", err)
	}
	s.pid, s.epoch = resp.ProducerID, resp.ProducerEpoch
	return nil
}

// describe returns err as an error of the Driver for the outlet. The parameter what names the
// failed operation. The error is fatal if only a change of configuration helps.
func (d *Driver) describe(what string, err error) error {
	// A broker closes the connection without a message if it expects TLS, or after a failed
	// authentication in an old version of the protocol.
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the broker closed the connection; it may require TLS, or have refused the credentials", err)
	}
	text := fmt.Errorf("kafka: %s: %w", what, err)
	if isFatal(err) {
		return batch.Fatal(text)
	}
	return text
}

// fatal lists the errors of brokers for which only a change of configuration helps.
var fatal = []error{
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.ClusterAuthorizationFailed,
	kerr.TopicAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.InvalidTopicException, kerr.PolicyViolation,
	kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks,
	kerr.SecurityDisabled,
}

// isFatal reports whether err needs a change of configuration: whether it is in the list fatal, an
// invalid certificate, a server without TLS, or a TLS alert. A TLS alert is a net.OpError with Op
// "remote error" or "local error".
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

// hiddenMark replaces a credential in error messages.
const hiddenMark = "***"

// hide returns err without the user and the password. err comes from the Kafka client and may quote
// a broker's message.
func (d *Driver) hide(err error) error {
	if err == nil {
		return nil
	}
	return secrets.HideIn(err, hiddenMark, d.c.User, d.c.Password)
}

// redactedText returns the first 200 bytes of a broker's message, quoted and without credentials.
func (d *Driver) redactedText(text string) string {
	return fmt.Sprintf("%.200q", secrets.Hide(text, hiddenMark, d.c.User, d.c.Password))
}
