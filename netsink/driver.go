package netsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/neterr"
)

// A Driver is a [deliver.Destination] over a stream socket. Its methods are safe for concurrent
// use.
type Driver struct {
	t       target // parsed Config.Address
	o       Config // resolved, immutable
	ownDial bool   // the caller has set Config.Dial

	connects, lost atomic.Uint64

	mu       sync.Mutex // guards the fields below; no other lock is acquired while it is held
	last     *session   // nil if there is none or it is closed
	closeErr error      // close error of the last session that was closed
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery. [To] makes the
// Driver and the output in one call. The error names the invalid parts of c. New opens no
// connection.
func New(c Config) (*Driver, error) {
	t, err := parse(c.Address)
	if err == nil && len(t.query) > 0 && !t.syslog {
		err = errors.New("only syslog destinations take parameters")
	}
	if err == nil {
		err = c.override(t.query)
	}
	if err != nil {
		return nil, fmt.Errorf("netsink: cannot read the destination: %w", err)
	}
	d := &Driver{t: t, ownDial: c.Dial != nil}
	if d.o, err = c.resolve(); err != nil {
		return nil, err
	}
	return d, nil
}

// Traits requests one batch in flight at a time. A destination of lines accepts only text; a
// syslog message may contain records of any form.
func (d *Driver) Traits() deliver.Traits {
	return deliver.Traits{
		Accepts: func(contentType string) bool { return d.t.syslog || textualType(contentType) },
		Defaults: func(o *deliver.OutputOptions) {
			if o.Name == "" {
				o.Name = d.t.String()
			}
		},
	}
}

// Stats is a snapshot of the counters of a [Driver].
type Stats struct {
	Connected bool   // a connection is open
	Connects  uint64 // connections made, including the TLS handshake
	Lost      uint64 // connections that ended before they were closed
}

// Stats returns a snapshot. It may be called from any goroutine.
func (d *Driver) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Stats{Connected: d.last != nil && d.last.lostErr() == nil, Connects: d.connects.Load(), Lost: d.lost.Load()}
}

// Open connects and, with TLS, performs the handshake, see [deliver.Destination].
func (d *Driver) Open(l deliver.Life) (deliver.Session, error) {
	ctx, cancel := context.WithTimeout(l.Context(), d.o.DialTimeout)
	defer cancel()
	conn, err := d.o.Dial(ctx, d.t.network, d.t.address)
	if err == nil && d.t.tls {
		return d.openTLS(ctx, l, conn)
	}
	if err != nil {
		return nil, d.cannotConnect(l, err)
	}
	return d.begin(l, conn, conn), nil
}

// openTLS performs the TLS handshake over conn, limited by ctx, and begins a session.
func (d *Driver) openTLS(ctx context.Context, l deliver.Life, conn net.Conn) (deliver.Session, error) {
	// The certificate must be valid for the host of the destination, unless Config.TLS sets another
	// name.
	cfg := d.o.tls.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(d.t.address)
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, markFatalTLS(d.cannotConnect(l, fmt.Errorf("TLS handshake: %w", neterr.Cause(err))))
	}
	return d.begin(l, secure, conn), nil
}

// markFatalTLS marks err as fatal if one side of TLS rejects the other, because only a change of
// configuration helps. A TLS 1.3 server rejects a client certificate only after the handshake.
func markFatalTLS(err error) error {
	var (
		certificate *tls.CertificateVerificationError
		header      tls.RecordHeaderError // no TLS
		alert       *net.OpError
	)
	if errors.As(err, &certificate) || errors.As(err, &header) ||
		errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error") {
		return batch.Fatal(err)
	}
	return err
}

// cannotConnect returns the error of Open for err. If the context of l has ended, the error wraps
// the cause of its end instead of err.
func (d *Driver) cannotConnect(l deliver.Life, err error) error {
	if ended := context.Cause(l.Context()); ended != nil {
		err = ended
	}
	return fmt.Errorf("netsink: cannot connect to %s: %w", &d.t, neterr.Cause(err))
}

// Close returns an error if the last connection broke after its last record was written, because
// some records may not have arrived. The output calls Close after its last session has ended.
func (d *Driver) Close(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closeErr
}
