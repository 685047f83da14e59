package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/forebay-log/forebay/internal/pattern"
)

// Config configures the protocol of a [Driver]. Memory and delivery are options of the output.
// Brokers and Topic are required. Each other field states its default and unit.
type Config struct {
	// Brokers are the addresses of one broker or more, as host:port, or as host for port 9092.
	// These brokers return the addresses of all others.
	Brokers []string
	// Topic is the topic, or a pattern such as "logs.{app}" that is filled with fields of each
	// record. "{level}" is the level of the record. Any other name in braces is a field. A missing
	// or empty field becomes "unknown". Characters that Kafka does not allow become "_".
	Topic string
	// Key is the key of the records, a pattern such as "{user}". Records with the same key keep
	// their order. Default "": no key. Records without a key, or with an empty one, are sent to one
	// partition for each origin (the output of a process).
	Key string
	// TraceField is the field whose value is sent as the header trace-id. Default "trace_id"; "-":
	// none.
	TraceField string
	// Compression is "zstd", "lz4", "snappy", "gzip" or "none". Default "zstd".
	Compression string
	// ClientID is the client.id, the name of the client in the logs and quotas of the brokers.
	// Default "forebay".
	ClientID string
	// AutoCreate requests the creation of a missing topic. The brokers comply if their
	// auto.create.topics.enable is set. Default false.
	AutoCreate bool

	// User and Password are the SASL credentials. They are removed from errors. Default: none.
	User, Password string
	// Mechanism is "plain", "scram-sha-256" or "scram-sha-512". Default, if User is set:
	// "scram-sha-512".
	Mechanism string
	// TLS configures TLS. If ServerName is empty, the certificate of each broker must be valid for
	// its host. Default nil: no TLS.
	TLS *tls.Config
	// Dial opens connections. If it is set, it must also apply the TLS configuration. Default nil:
	// the Dialer of package net is used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// BatchBytes is the maximum size of a Kafka batch in bytes before compression, 1 KiB to 256
	// MiB. It should not exceed message.max.bytes of the brokers (1,048,588 by default) or
	// max.message.bytes of the topic. If a broker refuses a batch because of its size, the Driver
	// uses a smaller limit. Default 1,000,000.
	BatchBytes int
	// Window is the maximum number of batches in flight, 1 to 1024. One batch becomes one or more
	// Kafka batches for each of its partitions. Default 4.
	Window int
	// Timeout limits how long a failed Kafka batch is sent again within a session, counted from its
	// first failure. After Timeout the session ends, and the retries of the output apply. Within a
	// session, a batch is stored once; the next session may store it again. Default 30 s.
	Timeout time.Duration
	// RequestTimeout limits the time until a broker responds. The time includes the replication of
	// a Kafka batch to all in-sync replicas. Default 10 s.
	RequestTimeout time.Duration
	// DialTimeout limits the time to open a connection. It also limits the time to start a session.
	// Default 10 s.
	DialTimeout time.Duration
	// DryRun, if not nil, receives one line for each record, with its topic and key. Nothing is
	// sent to Kafka. Default nil.
	DryRun io.Writer

	// Fields derived from the fields above by resolve.
	topic, key, trace pattern.Pattern
	compressor        kgo.Compressor // nil: no compression
	mechanism         sasl.Mechanism // nil: no authentication
}

// codecs maps each value of [Config.Compression] to its codec.
var codecs = map[string]func() kgo.CompressionCodec{
	"zstd": kgo.ZstdCompression, "lz4": kgo.Lz4Compression, "snappy": kgo.SnappyCompression,
	"gzip": kgo.GzipCompression, "none": kgo.NoCompression,
}

// resolve returns c with defaults applied and the derived fields set. The error lists every problem
// of c.
func (c Config) resolve() (Config, error) {
	// All fields are checked, so that the error lists all problems at once. It contains no
	// credentials.
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("kafka: Config."+format, args...)) }
	c.Brokers = slices.Clone(c.Brokers)
	if len(c.Brokers) == 0 {
		bad("Brokers is empty; give host:port of one broker or more")
	}
	for i, b := range c.Brokers {
		c.Brokers[i] = strings.TrimSpace(b)
		if !isBroker(c.Brokers[i]) {
			bad("Brokers: entry %d is not host:port", i+1)
		}
	}
	c.ClientID = cmp.Or(c.ClientID, "forebay")
	c.TraceField = cmp.Or(c.TraceField, "trace_id")
	c.Compression = cmp.Or(strings.ToLower(c.Compression), "zstd")
	c.BatchBytes = cmp.Or(c.BatchBytes, 1_000_000)
	c.Window = cmp.Or(c.Window, 4)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", c.Timeout}, {"RequestTimeout", c.RequestTimeout}, {"DialTimeout", c.DialTimeout}} {
		if f.value < time.Millisecond {
			bad("%s is %s; want 1 ms or more", f.name, f.value)
		}
	}
	if c.BatchBytes < 1<<10 || c.BatchBytes > 1<<28 {
		bad("BatchBytes is %d; want 1 KiB to 256 MiB", c.BatchBytes)
	}
	if c.Window < 1 || c.Window > 1<<10 {
		bad("Window is %d; want 1 to 1024", c.Window)
	}
	c.readPatterns(bad)
	if codec := codecs[c.Compression]; codec == nil {
		bad("Compression is %q; want zstd, lz4, snappy, gzip or none", c.Compression)
	} else if c.compressor, _ = kgo.DefaultCompressor(codec()); c.compressor == nil && c.Compression != "none" {
		bad("Compression %q is not available", c.Compression)
	}
	c.readCredentials(bad)
	return c, errors.Join(errs...)
}

// isBroker reports whether b is host:port or a host without a port.
func isBroker(b string) bool {
	host, port, err := net.SplitHostPort(b)
	if err != nil { // b has no port
		return b != "" && (!strings.Contains(b, ":") || net.ParseIP(b) != nil) && !strings.ContainsAny(b, "/@ ")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return host != "" && err == nil && n > 0 && !strings.ContainsAny(b, "/@ ")
}

// readPatterns parses Topic, Key and TraceField. It calls bad for each error.
func (c *Config) readPatterns(bad func(string, ...any)) {
	var err error
	if c.topic, err = pattern.Parse(c.Topic); err != nil {
		bad("Topic: %w", err)
	}
	if fixed, is := c.topic.Fixed(); c.Topic == "" {
		bad("Topic is empty; give a name, or a pattern such as logs.{app}")
	} else if is && (fixed == "." || fixed == ".." || len(fixed) > maxTopic) {
		bad("Topic %.60q is not a topic name: use 1 to %d characters, and neither . nor ..", fixed, maxTopic)
	}
	for _, text := range c.topic.Texts() {
		if string(cleanTopic(nil, []byte(text))) != text {
			bad("Topic: %.60q has characters that Kafka does not allow; use letters, digits, . _ and -", text)
		}
	}
	if c.key, err = pattern.Parse(c.Key); err != nil {
		bad("Key: %w", err)
	}
	if c.TraceField != "-" {
		if c.trace, err = pattern.Parse("{" + c.TraceField + "}"); err != nil {
			bad("TraceField: %w", err)
		}
	}
}

// readCredentials sets mechanism from User, Password and Mechanism. It calls bad for each error.
func (c *Config) readCredentials(bad func(string, ...any)) {
	if c.User == "" {
		if c.Password != "" || c.Mechanism != "" {
			bad("User is empty, but Password or Mechanism is set; set User as well")
		}
		return
	}
	if c.Password == "" {
		bad("Password is empty, but User is set; set both")
	}
	c.Mechanism = cmp.Or(strings.ToLower(c.Mechanism), "scram-sha-512")
	switch c.Mechanism {
	case "plain":
		c.mechanism = plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "scram-sha-256":
		c.mechanism = scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		c.mechanism = scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	default:
		bad("Mechanism is %q; want plain, scram-sha-256 or scram-sha-512", c.Mechanism)
	}
}

// unknown replaces a missing or empty field in the name of a topic.
const unknown = "unknown"

// maxTopic is the maximum length of the name of a topic, in bytes
// (org.apache.kafka.common.internals.Topic).
const maxTopic = 249

// cleanTopic appends value to dst as part of a topic name. Characters other than letters, digits,
// ".", "_" and "-" become "_".
func cleanTopic(dst, value []byte) []byte {
	if len(value) == 0 {
		return append(dst, unknown...)
	}
	for _, c := range value {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			dst = append(dst, c)
		} else if c < 0x80 || c >= 0xc0 { // one underscore for each multibyte character
			dst = append(dst, '_')
		}
	}
	return dst
}
