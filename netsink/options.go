package netsink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Defaults of [Options].
const (
	defaultDialTimeout  = 10 * time.Second
	defaultWriteTimeout = 10 * time.Second
	defaultKeepAlive    = 15 * time.Second
)

// Options configures a [Destination]. The zero value is useful: each field states its
// default and unit.
type Options struct {
	// TLS configures the TLS of tls:// and syslog+tls://. ServerName defaults to
	// the host. Default nil: the system's roots.
	TLS *tls.Config
	// DialTimeout bounds making a connection, handshake included. Default 10 s.
	DialTimeout time.Duration
	// WriteTimeout is how long the peer may take no byte of a write of up to 64
	// KiB before it counts as dead. On Linux it also bounds, for TCP, how long
	// bytes may stay unacknowledged by the peer's kernel. Default 10 s.
	WriteTimeout time.Duration
	// KeepAlive is the idle time after which TCP asks whether the peer is still
	// there, and the time between questions; after three without an answer it is
	// not. Default 15 s; negative: never.
	KeepAlive time.Duration
	// Dial makes connections. Default nil: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// The rest is the header of syslog messages. Parameters of the destination
	// (facility, hostname, app, procid, msgid) win over these fields.

	// Facility is a name such as "user", "daemon" or "local0", or a number from
	// 0 to 23. Default "user".
	Facility string
	// Hostname, AppName, ProcID and MsgID are cut at the length that the RFC allows
	// (255, 48, 128, 32); characters other than printable ASCII become "_". Defaults:
	// the system's hostname, the name of the program, its process id, and "-".
	Hostname, AppName, ProcID, MsgID string

	facility int // the number of Facility
}

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
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
	if r.KeepAlive == 0 {
		r.KeepAlive = defaultKeepAlive
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
