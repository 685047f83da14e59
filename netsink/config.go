package netsink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/transport"
)

// Defaults of [Config].
const (
	defaultDialTimeout  = 10 * time.Second
	defaultWriteTimeout = 10 * time.Second
	defaultKeepAlive    = 15 * time.Second
)

// Config is the protocol of a [Driver]. Only Address is required. Each field states its default and
// unit.
type Config struct {
	// Address is the destination, such as "tcp://localhost:5170" or
	// "syslog+tcp://localhost:514?facility=local0&app=shop". In the path of a unix socket, %3F
	// is a question mark and %25 a percent sign. Required.
	Address string

	// TLS configures tls:// and syslog+tls://. Default: TLS 1.2 or newer, the certificate
	// authorities of the system, and the host as ServerName.
	TLS transport.TLS
	// DialTimeout limits the time to open a connection, including the TLS handshake. Default 10 s.
	DialTimeout time.Duration
	// WriteTimeout is the time after which the peer is considered dead if it accepts no byte
	// of a write of up to 64 KiB. On Linux it also limits, for TCP, how long bytes may stay
	// unacknowledged by the peer's kernel. Default 10 s.
	WriteTimeout time.Duration
	// KeepAlive is the idle time after which TCP probes the peer, and the interval between
	// probes; after three unanswered probes the connection ends. Default 15 s; negative:
	// never.
	KeepAlive time.Duration
	// Dial opens connections. Default nil: the Dialer of package net is used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// The remaining fields are the header of syslog messages. Parameters of the
	// destination (facility, hostname, app, procid, msgid) override them.

	// Facility is a name such as "user", "daemon" or "local0", or a number from
	// 0 to 23. Default "user".
	Facility string
	// Hostname, AppName, ProcID and MsgID are truncated to the lengths of the RFC (255, 48, 128,
	// 32). Characters other than printable ASCII are replaced with "_". Defaults: the host name of
	// the system, the name of the program, its process id, and "-".
	Hostname, AppName, ProcID, MsgID string

	facility int         // the number of Facility
	tls      *tls.Config // made from TLS
}

// resolve returns r with defaults applied.
func (r Config) resolve() (Config, error) {
	for _, f := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{
		{"DialTimeout", &r.DialTimeout, defaultDialTimeout},
		{"WriteTimeout", &r.WriteTimeout, defaultWriteTimeout},
	} {
		if *f.field < 0 {
			return r, fmt.Errorf("netsink: %s is %s: want more than 0", f.name, *f.field)
		}
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	// A negative value disables keep-alive probes, so only zero selects the default.
	if r.KeepAlive == 0 {
		r.KeepAlive = defaultKeepAlive
	}
	var err error
	if r.tls, err = tlsfiles.ClientConfig(r.TLS); err != nil {
		return r, fmt.Errorf("netsink: %w", err)
	}
	if err := r.resolveSyslog(); err != nil {
		return r, err
	}
	if r.Dial == nil {
		d := &net.Dialer{Control: r.control, KeepAliveConfig: net.KeepAliveConfig{
			Enable: r.KeepAlive > 0, Idle: r.KeepAlive, Interval: r.KeepAlive, Count: 3,
		}}
		if r.KeepAlive < 0 {
			d.KeepAlive = -1
		}
		r.Dial = d.DialContext
	}
	return r, nil
}
