package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/netsink"
)

// netDest is a destination of lines, or of syslog messages, over a stream socket.
type netDest struct {
	scheme, form, what string
	flags              *netFlags
}

// netFlags holds what the flags were defined on.
type netFlags struct{ cmd *cobra.Command }

// netDests returns the kinds.
func netDests() []destination {
	f := new(netFlags)
	return []destination{
		netDest{"tcp", "tcp://HOST:PORT", "lines over TCP", f},
		netDest{"tls", "tls://HOST:PORT", "the same over TLS; see --tls-ca, --tls-cert, --tls-key", f},
		netDest{"unix", "unix:PATH", "lines over a unix socket", f},
		netDest{"syslog+tcp", "syslog+tcp://HOST:PORT", "syslog over TCP (RFC 5424, octet-counted); ?facility=local0&app=NAME may follow", f},
		netDest{"syslog+tls", "syslog+tls://HOST:PORT", "the same over TLS (RFC 5425)", f},
		netDest{"syslog+unix", "syslog+unix:PATH", "the same over a unix socket", f},
	}
}

func (d netDest) Scheme() string             { return d.scheme }
func (d netDest) Usage() (form, what string) { return d.form, d.what }

// Flags defines those for TLS.
func (d netDest) Flags(cmd *cobra.Command) {
	d.flags.cmd = cmd
	addTLS(cmd)
}

func (d netDest) Open(rest string) (*target, error) {
	o := new(netsink.Options)
	if strings.HasSuffix(d.scheme, "tls") {
		var err error
		if o.TLS, err = tlsConfig(d.flags.cmd); err != nil {
			return nil, err
		}
	}
	to, err := netsink.New(d.scheme+":"+rest, o)
	if err != nil {
		why := err.Error()
		for _, prefix := range []string{"netsink: ", "cannot read the destination: "} {
			why = strings.TrimPrefix(why, prefix)
		}
		return nil, errors.New(why)
	}
	return &target{dest: to, engine: true, header: strings.HasPrefix(d.scheme, "syslog")}, nil
}
