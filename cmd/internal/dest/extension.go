package dest

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/otlp"
)

// extensionDests contains the destinations that AddExtension and AddOTLPGRPC have added.
// MoreFamilies contains their schemes without the TLS variants.
var (
	extensionDests []Destination
	MoreFamilies   []string
)

// AddExtension adds a destination from another module. It must be called before the tables of
// options and destinations are used.
func AddExtension(d Extension) {
	kinds := []string{d.Name, d.Name + "+tls"}
	extensionDests = append(extensionDests, extensionDest{d, false}, extensionDest{d, true})
	MoreFamilies = append(MoreFamilies, d.Name)
	setting.Remote = append(setting.Remote, kinds...)
	setting.OptionCalled("fsync").NeedsOf = setting.Remote
	setting.OptionCalled("encode").IsAlsoFor(kinds...)
	for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
		setting.OptionCalled(name).IsAlsoFor(d.Name + "+tls")
	}
	for _, own := range d.Options {
		o := setting.OptionCalled(own.Name)
		if o == nil {
			o = &setting.Option{Name: own.Name, Usage: d.Name + ": " + own.Usage, OfFile: own.Secret, Initial: own.Initial}
			setting.Options = append(setting.Options, o)
		} else if families, rest, ok := strings.Cut(o.Usage, ": "); ok {
			o.Usage = families + ", " + d.Name + ": " + rest
		}
		o.IsAlsoFor(kinds...)
	}
}

// AddOTLPGRPC adds the destinations otlpgrpc:// and otlpgrpcs://. The function open returns their
// driver.
func AddOTLPGRPC(open func(otlp.Config) (OTLP, error)) {
	for _, d := range otlpDests() {
		over := otlpDest{strings.Replace(d.Scheme(), "otlp", "otlpgrpc", 1), open}
		extensionDests = append(extensionDests, over)
		setting.Remote = append(setting.Remote, over.scheme)
		for _, o := range setting.Options {
			if slices.Contains(o.Of, d.Scheme()) {
				o.IsAlsoFor(over.scheme)
			}
		}
	}
	setting.OptionCalled("fsync").NeedsOf = setting.Remote
}

// An Extension is a destination from another module. Its addresses are NAME://SERVERS/… and, with
// TLS, NAME+tls://SERVERS/…. It receives lines in the format of --encode.
type Extension struct {
	Name   string
	Form   string // text after NAME://, for --help; tests replace HOST and :PORT
	What   string // description for --help
	Memory int    // bytes of slabs that its batches require; 0: the flags and their defaults apply

	// Options contains the options of the destination, except for tls-ca, tls-cert and tls-key. If
	// this module has an option of the same name, that option is used.
	Options []setting.Custom

	// Open returns a driver without connecting. If the driver has a method Close, the method must
	// release everything. Errors contain the names of options with a leading --.
	Open func(*setting.Args) (deliver.Destination, error)
}

// OTLP is a driver for OpenTelemetry, over HTTP or gRPC. AppendLine appends the log record of a
// line and its attributes to dst.
type OTLP interface {
	deliver.Destination
	Encoder() encode.Encoder
	AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error)
}

// An extensionDest is a destination from another module, with or without TLS.
type extensionDest struct {
	Extension
	tls bool
}

func (d extensionDest) canDryRun() {}

func (d extensionDest) Scheme() string {
	if d.tls {
		return d.Name + "+tls"
	}
	return d.Name
}

func (d extensionDest) Usage() (form, what string) {
	form = d.Scheme() + "://" + d.Form
	if d.tls {
		return form, "the same over TLS; see --tls-ca, --tls-cert, --tls-key"
	}
	return form, d.What
}

func (d extensionDest) Open(rest string, c *Spec) (*Target, error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if form, _ := d.Usage(); !ok || rest == "" || rest[0] == '/' {
		return nil, fmt.Errorf("the server is missing: write %s", form)
	}
	if strings.Contains(rest, "@") {
		return nil, noUser(rest)
	}
	t := &setting.Args{Rest: rest, User: c.Text("user"), Values: c.Values}
	err := t.Secrets(c.Text("password-file"))
	if err == nil && d.tls {
		t.TLS, err = c.tlsConfig()
	}
	if err != nil {
		return nil, err
	}
	if c.DryRun {
		t.DryRun = os.Stdout
	}
	driver, err := d.Extension.Open(t)
	if err != nil {
		return nil, err
	}
	return &Target{Dest: driver, memory: d.Memory, SendsMeta: true, Remote: !c.DryRun}, nil
}
