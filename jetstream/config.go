package jetstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/forebay-log/forebay/internal/pattern"
)

// Config configures the protocol of a [Driver]. Memory and delivery are options of the output.
// Servers is required. Each other field states its default and unit.
type Config struct {
	// Servers are addresses of servers of one cluster, separated by commas:
	// "nats://a:4222,nats://b:4222" or "tls://…". The other servers of the cluster are discovered
	// at the start of a session. An address may contain a user and password.
	Servers string
	// Subject is the subject of a record. Fields in braces are replaced: {level}, or any member of
	// the record, as in "logs.{app}.{level}". In the values of fields, dots, spaces, wildcards and
	// control characters become "_". A missing or empty field becomes "unknown", as in package
	// kafka. Default "logs".
	Subject string
	// Stream is the name of the stream that must store the records. If the subject belongs to a
	// different stream, the server rejects the records, and they are held. Default "": any stream.
	Stream string
	// Sole declares that the stream has no other writer. The order is then preserved even if
	// servers lose messages; see the package comment. If a second writer exists, records of this
	// writer are rejected. Default false.
	Sole bool

	// Credentials is the path of a file with a JWT and a seed (.creds). Default "": none.
	Credentials string
	// NKey is the path of a file with the seed of an nkey. Default "": none.
	NKey string
	// Token is an authentication token. Default "": none.
	Token string
	// TLS configures TLS, even for addresses with nats://. Default nil: if the server or the
	// address requires TLS, the root certificates of the system are used.
	TLS *tls.Config

	// DialTimeout limits the time to connect to one server. Default 5 s.
	DialTimeout time.Duration
	// AckTimeout ends the session if messages wait for acknowledgements and none arrives within
	// this time. Default 10 s.
	AckTimeout time.Duration
	// DryRun, if not nil, receives one line for each record, with its subject. Nothing is sent to a
	// server. Default nil.
	DryRun io.Writer
	// Options are additional options of the connection, applied last. They cannot enable
	// reconnecting, because the output opens a new session instead. Default nil.
	Options []nats.Option
}

const (
	// window, batchRecords and batchBytes limit the batches in flight. After a lost connection, at
	// most window*batchRecords messages are sent again and may be duplicates.
	window       = 4
	batchRecords = 1000
	batchBytes   = 1 << 20

	defaultTimeout    = 5 * time.Second
	defaultAckTimeout = 10 * time.Second
)

// resolve returns c with defaults applied. The error names all invalid fields.
func (c Config) resolve() (Config, pattern.Pattern, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("jetstream: "+format, args...)) }
	for s := range strings.SplitSeq(c.Servers, ",") {
		if err := checkServer(strings.TrimSpace(s)); err != nil {
			bad("Servers: %w", err)
		}
	}
	if c.Subject == "" {
		c.Subject = "logs"
	}
	p, err := pattern.Parse(c.Subject)
	if err == nil {
		err = checkSubject(&p)
	}
	if err != nil {
		bad("Subject: %w", err)
	}
	if strings.ContainsAny(c.Stream, " .*>/\\\r\n\t") {
		bad("Stream: %q is not a valid stream name: it has spaces, dots, wildcards or slashes", c.Stream)
	}
	for _, t := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{{"DialTimeout", &c.DialTimeout, defaultTimeout}, {"AckTimeout", &c.AckTimeout, defaultAckTimeout}} {
		if *t.field < 0 {
			bad("%s is %s: want more than 0", t.name, *t.field)
		}
		if *t.field == 0 {
			*t.field = t.value
		}
	}
	return c, p, errors.Join(errs...)
}

// checkServer returns an error if s is not the address of a server. The error does not contain s,
// which may contain a password.
func checkServer(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return errors.New("an address is empty: want nats://HOST:PORT or tls://HOST:PORT")
	case err != nil || u.Host == "":
		return errors.New("an address cannot be read: want nats://HOST:PORT or tls://HOST:PORT")
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return fmt.Errorf("unknown scheme %q: want nats://HOST:PORT or tls://HOST:PORT", u.Scheme)
	}
	return nil
}

// checkSubject checks the literal parts of a subject. The values of fields need no check, because
// clean makes them valid.
func checkSubject(p *pattern.Pattern) error {
	for _, text := range p.Texts() {
		if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r == 0x7f }); i >= 0 {
			return fmt.Errorf("%q has %q; a subject to write to has no spaces and no wildcards", p, text[i])
		}
	}
	s := p.String()
	if strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
		return fmt.Errorf("%q has an empty part; write a name between the dots", s)
	}
	return nil
}

// clean appends the value of a field as one token of a subject. Separators, wildcards and control
// characters become "_"; see https://docs.nats.io/nats-concepts/subjects.
func clean(dst, value []byte) []byte {
	if len(value) == 0 {
		return append(dst, unknown...)
	}
	for _, c := range value {
		if c <= ' ' || c == '.' || c == '*' || c == '>' || c == 0x7f {
			c = '_'
		}
		dst = append(dst, c)
	}
	return dst
}
