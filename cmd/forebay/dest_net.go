package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/netsink"
)

// netDest is a destination of lines, or of syslog messages, over a stream socket.
type netDest struct{ scheme, form, what string }

// netDests returns the kinds.
func netDests() []destination {
	return []destination{
		netDest{"tcp", "tcp://HOST:PORT", "lines over TCP"},
		netDest{"unix", "unix:PATH", "lines over a unix socket"},
		netDest{"syslog+tcp", "syslog+tcp://HOST:PORT", "syslog over TCP (RFC 5424, octet-counted); ?facility=local0&app=NAME may follow"},
		netDest{"syslog+unix", "syslog+unix:PATH", "the same over a unix socket"},
	}
}

func (d netDest) Scheme() string             { return d.scheme }
func (d netDest) Usage() (form, what string) { return d.form, d.what }
func (netDest) Flags(*cobra.Command)         {}
func (d netDest) Open(rest string) (*target, error) {
	s, err := netsink.New(d.scheme+":"+rest, nil)
	if err != nil {
		why := err.Error()
		for _, prefix := range []string{"netsink: ", "cannot read the destination: "} {
			why = strings.TrimPrefix(why, prefix)
		}
		return nil, errors.New(why)
	}
	return &target{sink: s, engine: true, header: strings.HasPrefix(d.scheme, "syslog")}, nil
}
