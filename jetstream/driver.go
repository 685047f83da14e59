package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/pattern"
	"github.com/forebay-log/forebay/internal/secrets"
)

// A Driver is a [deliver.Destination] that sends records to JetStream. Use it with
// [deliver.NewOutput], or use [To]. Its methods are safe for concurrent use.
type Driver struct {
	c       Config          // resolved, immutable
	subject pattern.Pattern // parsed c.Subject

	// The counters of Stats.
	connected                    atomic.Bool
	connects, stored, duplicates atomic.Uint64
}

// New returns a Driver. The error lists every problem of c. New does not connect; the first session
// does.
func New(c Config) (*Driver, error) {
	c, p, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &Driver{c: c, subject: p}, nil
}

// Traits returns the limits of a batch: up to four batches are in flight, each of up to 1,000
// records and 1 MiB. Records of all content types are accepted.
func (d *Driver) Traits() deliver.Traits {
	return deliver.Traits{Window: window, Limits: batch.Limits{Records: batchRecords, Bytes: batchBytes}}
}

// Stats is a snapshot of the counters of a [Driver] since New.
type Stats struct {
	Connected  bool   // a session is open
	Connects   uint64 // number of connections made
	Stored     uint64 // number of messages that the server has acknowledged
	Duplicates uint64 // number of messages of Stored that were already in the stream
}

// Stats returns a snapshot of the counters. It may be called from any goroutine.
func (d *Driver) Stats() Stats {
	return Stats{Connected: d.connected.Load(), Connects: d.connects.Load(), Stored: d.stored.Load(), Duplicates: d.duplicates.Load()}
}

// Open connects to one of the servers in Config.Servers; see [deliver.Destination]. nats.go tries
// the servers in random order.
func (d *Driver) Open(l deliver.Life) (deliver.Session, error) {
	if d.c.DryRun != nil {
		return deliver.SendFunc(d.Traits(), d.sendDry).Open(l)
	}
	s := newSession(d, l)
	o, err := d.c.options()
	if err != nil {
		return nil, batch.Fatal(err)
	}
	o = append([]nats.Option{
		nats.NoEcho(), nats.FlusherTimeout(d.c.AckTimeout), nats.PingInterval(d.c.AckTimeout), nats.MaxPingsOutstanding(1),
		nats.SetCustomDialer(s.wire),
	}, o...)
	o = append(o, nats.NoReconnect(), nats.ClosedHandler(s.closed), nats.ErrorHandler(s.reportError), forceCallbacks)
	conn, err := nats.Connect(d.c.Servers, o...)
	if err == nil {
		err = s.begin(conn)
	}
	if err != nil {
		s.wire.closeAll()
		if ended := context.Cause(l.Context()); ended != nil {
			err = ended
		}
		return nil, d.markFatal(fmt.Errorf("jetstream: cannot connect to %s: %w", d.where(), d.hide(err)))
	}
	d.connects.Add(1)
	d.connected.Store(true)
	return s, nil
}

// ClientOptions returns the options of a connection to Servers with the credentials of c, for
// example for a consumer. The error lists every problem of c.
func (c Config) ClientOptions() ([]nats.Option, error) {
	r, _, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return r.options()
}

// options returns the options of each connection with the resolved Config c. It reads the file of
// NKey each time, so that a new key is used without a restart.
func (c *Config) options() ([]nats.Option, error) {
	o := []nats.Option{nats.Name("forebay"), nats.Timeout(c.DialTimeout)}
	if c.Credentials != "" {
		o = append(o, nats.UserCredentials(c.Credentials))
	}
	if c.NKey != "" {
		key, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("jetstream: cannot read NKey: %w", err)
		}
		o = append(o, key)
	}
	if c.Token != "" {
		o = append(o, nats.Token(c.Token))
	}
	if c.TLS != nil {
		o = append(o, nats.Secure(c.TLS))
	}
	return append(o, c.Options...), nil
}

// forceCallbacks is the last option of a connection. It reverts nats.NoCallbacksAfterClientClose,
// which Config.Options may contain, because Close waits for the callback about the closed
// connection.
func forceCallbacks(o *nats.Options) error {
	o.NoCallbacksAfterClientClose = false
	return nil
}

// markFatal returns err. It marks err as fatal if only a change of configuration helps: for wrong
// credentials, a TLS failure, a server without headers, or a missing file.
func (d *Driver) markFatal(err error) error {
	for _, fatal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrHeadersNotSupported, nats.ErrNkeysNotSupported, os.ErrNotExist, os.ErrPermission} {
		if errors.Is(err, fatal) {
			return batch.Fatal(err)
		}
	}
	return err
}

// where returns the hosts of Config.Servers for error messages, without users and passwords.
func (d *Driver) where() string {
	var where []string
	for s := range strings.SplitSeq(d.c.Servers, ",") {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil {
			where = append(where, u.Host)
		}
	}
	return strings.Join(where, ",")
}

// hide removes the secrets of the configuration from an error.
func (d *Driver) hide(err error) error { return secrets.HideIn(err, "***", d.c.secrets()...) }

// secrets returns the secrets of c: users, passwords and tokens.
func (c *Config) secrets() []string {
	var secrets []string
	if c.Token != "" {
		secrets = append(secrets, c.Token)
	}
	for s := range strings.SplitSeq(c.Servers, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil || u.User == nil {
			continue
		}
		secrets = append(secrets, u.User.String())
		if p, ok := u.User.Password(); ok && p != "" {
			secrets = append(secrets, p)
		} else if u.User.Username() != "" {
			// A user without a password is a token.
			secrets = append(secrets, u.User.Username())
		}
	}
	return secrets
}
