package dest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/transport"
)

// forwardDest is the destination forward://HOST:PORT, forward+tls://HOST:PORT or forward+unix:PATH.
type forwardDest struct{ scheme string }

// forwardDests returns the destinations of the Forward protocol over TCP, TLS and Unix sockets.
func forwardDests() []Destination {
	return []Destination{forwardDest{"forward"}, forwardDest{"forward+tls"}, forwardDest{"forward+unix"}}
}

func (d forwardDest) Scheme() string { return d.scheme }
func (d forwardDest) canDryRun()     {}

func (d forwardDest) Usage() (form, what string) {
	switch d.scheme {
	case "forward+tls":
		return "forward+tls://HOST:PORT", "the same over TLS; see --tls-ca, --tls-cert, --tls-key"
	case "forward+unix":
		return "forward+unix:PATH", "the same over a unix socket; fluentd needs --no-ack there"
	}
	return "forward://HOST:PORT", "a Fluentd, Fluent Bit or OpenTelemetry receiver, default port 24224"
}

func (d forwardDest) Open(rest string, o *Spec) (*Target, error) {
	c := fluent.Config{
		Tag: o.Text("tag"), NoAck: o.On("no-ack"),
		Auth: fluent.Auth{
			SharedKeyFile: o.Text("shared-key-file"), Secured: o.On("secured"), User: o.Text("user"), PasswordFile: o.Text("password-file"),
		},
	}
	if o.Text("tag") == "" {
		return nil, errors.New("--tag is empty: every event needs a tag")
	}
	switch d.scheme {
	case "forward+unix":
		if rest == "" || rest == "//" {
			return nil, errors.New("the socket is missing: write forward+unix:PATH")
		}
		c.Servers = []string{"unix:" + setting.PathIn(rest)}
	default:
		host, ok := strings.CutPrefix(rest, "//")
		if !ok || host == "" {
			return nil, fmt.Errorf("the server is missing: write %s://HOST:PORT", d.scheme)
		}
		if strings.Contains(host, "@") {
			return nil, noUser(rest)
		}
		c.Servers = []string{host}
		if d.scheme == "forward+tls" {
			c.Servers[0] = "tls://" + host
			c.TLS = transport.TLS{CAFile: o.Text("tls-ca"), CertFile: o.Text("tls-cert"), KeyFile: o.Text("tls-key")}
		}
	}
	var err error
	if c.Compress, err = o.compression(); err != nil {
		return nil, err
	}
	t := &Target{NewEncoder: func() EncodeFunc { return NewForwardEncoder(o.Text("tag-from")) }, Codec: fluent.Codec()}
	if o.DryRun {
		c.DryRun = os.Stdout
	}
	client, err := fluent.New(c)
	if err != nil {
		return nil, plainForward(err)
	}
	t.Dest, t.Remote = client, !o.DryRun
	return t, nil
}

// forwardFlagNames replaces the field names of fluent.Config in errors by names of flags. A name
// must precede all its prefixes.
var forwardFlagNames = strings.NewReplacer(
	"fluent: ", "",
	"tls.ca_file", "--tls-ca", "tls.cert_file and key_file", "--tls-cert and --tls-key",
	"Config.Auth.SharedKeyFile", "--shared-key-file", "Config.Auth.SharedKey, or Secured", "--shared-key-file, or --secured",
	"Config.Auth.SharedKey", "--shared-key-file",
	"Config.Auth.PasswordFile", "--password-file", "Config.Auth.Password is set without User", "--password-file is given without --user",
	"Config.Auth.Password", "--password-file", "Config.Auth.Secured", "--secured", "Config.Auth.User", "--user",
	"Config.Auth.Hostname and ", "the name of this machine and ", "Config.Tag", "--tag", "Config.Compress", "--compress", "Config.", "",
)

// plainForward adapts an error of package fluent to the command line.
func plainForward(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(forwardFlagNames.Replace(err.Error()))
}

// NewForwardEncoder returns a function that encodes a line as a Forward event. The fields of the
// line become the record of the event, and a line without fields becomes its message. The tag is
// the value of the field named tagFrom. If this is not a valid tag, the event has the tag of the
// driver.
func NewForwardEncoder(tagFrom string) EncodeFunc {
	enc := record.NewEncoder(record.AsJSON)
	var fields record.Namer
	var js, buf, text []byte
	var lastTag string
	var more []slog.Attr
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		m := record.Meta(ev)
		known, tag := ev.More, ""
		if tagFrom != "" {
			field, _ := transform.Field(ev, tagFrom, text[:0])
			text = append(text[:0], field[:min(len(field), maxTag)]...) // a text of maxTag bytes is too long to be a valid tag
			if lastTag != string(text) {
				lastTag = string(text)
			}
			tag = lastTag
			// If the input has added the field with the tag, omit the field from the record.
			more = append(more[:0], ev.More...)
			ev.More = slices.DeleteFunc(more, func(a slog.Attr) bool { return a.Key == tagFrom })
		}
		var err error
		var attrs []slog.Attr
		if ev.Format == record.Text {
			attrs = fields.TextAttrs(ev)
		} else {
			js, err = enc.Append(js[:0], ev)
		}
		ev.More = known
		if err != nil {
			return dst, m, err
		}
		at := ev.Time
		if at.IsZero() {
			at = time.Now()
		}
		if dst == nil {
			dst = buf[:0]
		}
		n := len(dst)
		write := func(tag string) (err error) {
			if ev.Format == record.Text {
				dst, m.Stream, err = fluent.AppendAttrsEvent(dst[:n], tag, at, attrs)
			} else {
				dst, m.Stream, err = fluent.AppendJSONEvent(dst[:n], tag, at, js)
			}
			return err
		}
		err = write(tag)
		if errors.Is(err, fluent.ErrTag) {
			tag = ""
			err = write(tag)
		}
		if errors.Is(err, fluent.ErrValue) {
			// The protocol does not support times before 1970 or after 2105. Use the current time
			// instead; the record still contains the time of the line.
			at = time.Now()
			err = write(tag)
		}
		buf = dst
		return dst, m, err
	}
}

// maxTag is the maximum number of bytes that are copied from a field with a tag.
const maxTag = 64 << 10
