package dest

import (
	"errors"
	"strings"

	"github.com/forebay-log/forebay/netsink"
)

// netDest is a destination that receives lines or syslog messages over a stream socket.
type netDest struct{ scheme, form, what string }

// netDests returns the destinations for lines and syslog messages.
func netDests() []Destination {
	return []Destination{
		netDest{"tcp", "tcp://HOST:PORT", "lines over TCP"},
		netDest{"tls", "tls://HOST:PORT", "the same over TLS; see --tls-ca, --tls-cert, --tls-key"},
		netDest{"unix", "unix:PATH", "lines over a unix socket"},
		netDest{"syslog+tcp", "syslog+tcp://HOST:PORT", "syslog over TCP (RFC 5424, octet counting); options such as ?facility=local0&app=NAME"},
		netDest{"syslog+tls", "syslog+tls://HOST:PORT", "the same over TLS (RFC 5425)"},
		netDest{"syslog+unix", "syslog+unix:PATH", "the same over a unix socket"},
	}
}

func (d netDest) Scheme() string             { return d.scheme }
func (d netDest) Usage() (form, what string) { return d.form, d.what }

func (d netDest) Open(rest string, c *Spec) (*Target, error) {
	o := netsink.Config{
		Address:  d.scheme + ":" + rest,
		Facility: c.Text("facility"), Hostname: c.Text("hostname"), AppName: c.Text("app"),
		ProcID: c.Text("procid"), MsgID: c.Text("msgid"),
	}
	if strings.HasSuffix(d.scheme, "tls") {
		var err error
		if o.TLS.Config, err = c.tlsConfig(); err != nil {
			return nil, err
		}
	}
	to, err := netsink.New(o)
	if err != nil {
		why := err.Error()
		for _, prefix := range []string{"netsink: ", "cannot read the destination: "} {
			why = strings.TrimPrefix(why, prefix)
		}
		return nil, errors.New(why)
	}
	return &Target{Dest: to, Remote: true, SendsMeta: strings.HasPrefix(d.scheme, "syslog")}, nil
}
