package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/record"
)

// forwardDest is forward://HOST:PORT, forward+tls://HOST:PORT or
// forward+unix:PATH. The three share their flags.
type forwardDest struct {
	scheme string
	f      *forwardFlags
}

// forwardFlags holds what the flags were defined on: destinations of other kinds
// may have flags of the same name, and then share them.
type forwardFlags struct{ cmd *cobra.Command }

func (f *forwardFlags) text(name string) string { return f.cmd.Flags().Lookup(name).Value.String() }
func (f *forwardFlags) on(name string) bool     { return f.text(name) == "true" }

// forwardDests returns the three kinds.
func forwardDests() []destination {
	f := new(forwardFlags)
	return []destination{forwardDest{"forward", f}, forwardDest{"forward+tls", f}, forwardDest{"forward+unix", f}}
}

func (d forwardDest) Scheme() string { return d.scheme }
func (d forwardDest) canDryRun()     {}

func (d forwardDest) Usage() (form, what string) {
	switch d.scheme {
	case "forward+tls":
		return "forward+tls://HOST:PORT", "the same over TLS; see --tls-ca, --tls-cert, --tls-key"
	case "forward+unix":
		return "forward+unix:PATH", "the same over a unix socket"
	}
	return "forward://HOST:PORT", "a Fluentd, Fluent Bit or OpenTelemetry receiver, port 24224"
}

// Flags defines the flags once for all three.
func (d forwardDest) Flags(cmd *cobra.Command) {
	if d.f.cmd == cmd {
		return
	}
	d.f.cmd = cmd
	addTLS(cmd)
	addText(cmd, "tag", "forebay", "forward: `TAG` of the events")
	addText(cmd, "shared-key-file", "", "forward: `FILE` with the shared key of the server")
	addLogin(cmd)
	addSwitch(cmd, "secured", "forward: the server begins with a handshake though its shared key is empty")
	addSwitch(cmd, "no-ack", "forward: do not wait for acknowledgements: what is under way when a connection ends is lost")
	addDryRun(cmd)
}

func (d forwardDest) Open(rest string) (*target, error) {
	c := fluent.Config{
		Tag: d.f.text("tag"), NoAck: d.f.on("no-ack"), SharedKeyFile: d.f.text("shared-key-file"),
		Secured: d.f.on("secured"), User: d.f.text("user"), PasswordFile: d.f.text("password-file"),
		Name: d.scheme + ":" + rest,
	}
	if d.f.text("tag") == "" {
		return nil, errors.New("--tag is empty: an event has a tag")
	}
	if d.scheme != "forward+tls" {
		for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
			if d.f.cmd.Flags().Lookup(name).Changed {
				return nil, fmt.Errorf("--%s is given, but %s is not encrypted: write forward+tls://HOST:PORT", name, d.scheme)
			}
		}
	}
	switch d.scheme {
	case "forward+unix":
		if rest == "" || rest == "//" {
			return nil, errors.New("it names no socket: write forward+unix:PATH")
		}
		c.Servers = []string{"unix:" + rest}
	default:
		host, ok := strings.CutPrefix(rest, "//")
		if !ok || host == "" {
			return nil, fmt.Errorf("it names no server: write %s://HOST:PORT", d.scheme)
		}
		if strings.Contains(host, "@") {
			return nil, errors.New("no user and password go into it: use --user and --password-file")
		}
		c.Servers = []string{host}
		if d.scheme == "forward+tls" {
			c.Servers[0] = "tls://" + host
			c.TLS = fluent.TLS{CAFile: d.f.text("tls-ca"), CertFile: d.f.text("tls-cert"), KeyFile: d.f.text("tls-key")}
		}
	}
	if f := d.f.cmd.Flags().Lookup("compress"); f != nil && f.Changed {
		switch v := f.Value.String(); v {
		case "none":
		default: // zstd: fluentd from 1.19 on, and Fluent Bit
			c.Compress = v
		}
	}
	t := &target{encode: newForwardEncoder(), codec: fluent.Codec()}
	dry := d.f.on("dry-run")
	if dry {
		c.DryRun = os.Stdout
	}
	client, err := fluent.NewClient(c)
	if err != nil {
		return nil, plainForward(err)
	}
	t.dest, t.engine = client, !dry
	return t, nil
}

// forwardFlagNames are the flags that set the fields of a Config, as its errors
// name them; longer names come before those that they begin with.
var forwardFlagNames = strings.NewReplacer(
	"fluent: ", "",
	"Config.TLS.CAFile", "--tls-ca", "Config.TLS.CertFile, KeyFile", "--tls-cert, --tls-key",
	"Config.TLS.CertFile", "--tls-cert", "Config.TLS.KeyFile", "--tls-key",
	"Config.SharedKeyFile", "--shared-key-file", "Config.SharedKey, or Secured", "--shared-key-file, or --secured",
	"Config.SharedKey", "--shared-key-file",
	"Config.PasswordFile", "--password-file", "Config.Password is set without User", "--password-file is given without --user",
	"Config.Password", "--password-file", "Config.Secured", "--secured", "Config.User", "--user",
	"Config.Hostname and ", "the name of this machine and ", "Config.Tag", "--tag", "Config.Compress", "--compress", "Config.", "",
)

// plainForward takes the name of the package out of an error, and names flags
// where it names fields.
func plainForward(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(forwardFlagNames.Replace(err.Error()))
}

// newForwardEncoder returns what makes an event of a line: a JSON object is the
// record as it is, logfmt and text become one.
func newForwardEncoder() func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
	enc := record.NewEncoder(record.AsJSON)
	var js, buf []byte
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		m := record.Meta(ev)
		var err error
		if js, err = enc.Append(js[:0], ev); err != nil {
			return dst, m, err
		}
		at := ev.Time
		if at.IsZero() {
			at = time.Now()
		}
		if dst == nil {
			dst = buf[:0]
		}
		dst, err = fluent.AppendJSONEvent(dst, at, js)
		buf = dst
		return dst, m, err
	}
}
