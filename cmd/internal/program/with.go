package program

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/otlp"
)

// With is what a program has besides the core: destinations and inputs that need modules
// of their own (ADR 51).
type With struct {
	Destinations []Destination
	Inputs       []Input

	// OTLPGRPC makes the driver of otlpgrpc:// and otlpgrpcs://, whose options are those of
	// otlp://. Its errors are those of packages otlp and otlpgrpc. Nil: there is none.
	OTLPGRPC func(otlp.Config) (OTLP, error)
}

// OTLP is a driver that has the records of an [otlp.Exporter].
type OTLP interface {
	deliver.Destination
	Encoder() encode.Encoder
	AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error)
}

// A Destination is a kind of place that --to can name: NAME://SERVERS/… and, over TLS,
// NAME+tls://SERVERS/…. It takes lines, as --encode says.
type Destination struct {
	Name   string
	Form   string // what follows NAME://, for --help: HOST and :PORT are replaced to try it
	What   string // what it is, for --help
	Memory int    // bytes of slabs that its batches want; 0: what the flags' defaults say will do

	// Options are what it can be told, besides tls-ca, tls-cert and tls-key. One whose name
	// a kind of the core has is the same option.
	Options []Option

	// Open returns the driver. It makes no connection, and leaves nothing behind once the
	// driver is closed, if that has a method Close. Its errors name options with -- in front.
	Open func(*Told) (deliver.Destination, error)
}

// An Input is a type of input of forebay run that takes records from servers.
type Input struct {
	Name string

	// Options are what it can be told, besides type, format, time and zone.
	Options []Option

	// Open returns what reads. Its errors name options with -- in front. to is nil when only
	// the options are to be looked at; no connection is made then.
	Open func(t *Told, to *Sink) (Reader, error)
}

// A Reader reads an input, and puts what it reads into a [Sink].
type Reader interface {
	// Run reads until Stop, or until the sink takes no more. It is called once, if at all.
	Run() error
	// Stop makes Run return soon. It may be called at any time, more than once.
	Stop()
	// Close releases what is held: after Run, and when the outputs are closed. delivered
	// says that they have everything that was put. It is called once.
	Close(delivered bool) error
}

// An Option is something that a destination or an input can be told. It holds no secret.
type Option struct {
	Name    string
	Usage   string   // for --help, and docs/CONFIG.md: what stands in backquotes is the value
	Choices []string // the values that there are, the default first; nil: any text
	Switch  bool     // it is on or off
	List    bool     // it may be repeated
	Secret  bool     // it names a file with a secret
}

// setting returns what holds the value of the option.
func (o *Option) setting() setting.Value {
	switch {
	case o.Switch:
		return new(setting.Toggle)
	case o.List:
		return new(setting.List)
	case o.Choices != nil:
		return &setting.Choice{Value: o.Choices[0], Of: o.Choices}
	}
	return new(setting.Text)
}

// Told is what a destination or an input is told.
type Told struct {
	Rest     string // of a destination: what follows NAME://
	User     string
	Password string
	TLS      *tls.Config // nil: no TLS
	DryRun   io.Writer   // of a destination: where to show what would be sent; nil: it is sent

	Values setting.Values
}

// Text returns the value of an option.
func (t *Told) Text(name string) string { return t.Values.Text(name) }

// On reports whether a switch is on.
func (t *Told) On(name string) bool { return t.Values.On(name) }

// List returns the values of an option that may be repeated.
func (t *Told) List(name string) []string { return t.Values.List(name) }

// elsewhere are the kinds of the programs in other modules, and which has them: the core
// says so of an address, or of a type of input, that it does not know.
var elsewhere = map[string]string{
	"kafka": "forebay-all", "kafka+tls": "forebay-all", "nats": "forebay-all", "nats+tls": "forebay-all",
	"otlpgrpc": "forebay-all", "otlpgrpcs": "forebay-all",
}

// isElsewhere says which program has a kind of destination or input; "": none is known.
func isElsewhere(kind string) string {
	if where := elsewhere[kind]; where != "" {
		return fmt.Sprintf("this program does not support it; use %s (GOWORK=off go -C cmd/%s build, or the image of deploy)", where, where)
	}
	return ""
}

// An inputType is the type of an input.
type inputType struct{ setting.Choice }

func (t *inputType) Set(text string) error {
	err := t.Choice.Set(text)
	if why := isElsewhere(text); err != nil && why != "" {
		return fmt.Errorf("%s: %s", text, why)
	}
	return err
}

// What [With.add] has added to the kinds and options of the core.
var (
	moreDests    []destination
	moreFamilies []string // the names of the kinds of moreDests
	moreInputs   []Input
)

// add makes the kinds known. It is called by Main, before anything looks at them.
func (w With) add() {
	for _, d := range w.Destinations {
		kinds := []string{d.Name, d.Name + "+tls"}
		moreDests = append(moreDests, moreDest{d, false}, moreDest{d, true})
		moreFamilies = append(moreFamilies, d.Name)
		setting.Remote = append(setting.Remote, kinds...)
		setting.OptionCalled("fsync").NeedsOf = setting.Remote
		setting.OptionCalled("encode").IsAlsoFor(kinds...)
		for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
			setting.OptionCalled(name).IsAlsoFor(d.Name + "+tls")
		}
		for _, own := range d.Options {
			o := setting.OptionCalled(own.Name)
			if o == nil {
				o = &setting.Option{Name: own.Name, Usage: d.Name + ": " + own.Usage, OfFile: own.Secret, Initial: own.setting}
				setting.Options = append(setting.Options, o)
			} else if families, rest, ok := strings.Cut(o.Usage, ": "); ok {
				o.Usage = families + ", " + d.Name + ": " + rest
			}
			o.IsAlsoFor(kinds...)
		}
	}
	if w.OTLPGRPC != nil {
		for _, d := range otlpDests() {
			over := otlpDest{strings.Replace(d.Scheme(), "otlp", "otlpgrpc", 1), w.OTLPGRPC}
			moreDests = append(moreDests, over)
			setting.Remote = append(setting.Remote, over.scheme)
			for _, o := range setting.Options {
				if slices.Contains(o.Of, d.Scheme()) {
					o.IsAlsoFor(over.scheme)
				}
			}
		}
		setting.OptionCalled("fsync").NeedsOf = setting.Remote
	}
	for _, in := range w.Inputs {
		moreInputs = append(moreInputs, in)
		inputTypes = append(slices.Clip(inputTypes), in.Name)
		for _, own := range in.Options {
			i := slices.IndexFunc(inputOptions, func(o inputOption) bool { return o.name == own.Name })
			if i < 0 {
				i = len(inputOptions)
				inputOptions = append(inputOptions, inputOption{name: own.Name, initial: own.setting, ofFile: own.Secret})
			}
			inputOptions[i].of = append(slices.Clip(inputOptions[i].of), in.Name)
		}
	}
}

// A moreDest is a kind of destination that the core does not have.
type moreDest struct {
	Destination
	tls bool
}

func (d moreDest) canDryRun() {}

func (d moreDest) Scheme() string {
	if d.tls {
		return d.Name + "+tls"
	}
	return d.Name
}

func (d moreDest) Usage() (form, what string) {
	form = d.Scheme() + "://" + d.Form
	if d.tls {
		return form, "the same over TLS; see --tls-ca, --tls-cert, --tls-key"
	}
	return form, d.What
}

func (d moreDest) Open(rest string, c *outputConfig) (*target, error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if form, _ := d.Usage(); !ok || rest == "" || rest[0] == '/' {
		return nil, fmt.Errorf("the server is missing: write %s", form)
	}
	if strings.Contains(rest, "@") {
		return nil, noUser(rest)
	}
	t := &Told{Rest: rest, User: c.Text("user"), Values: c.Values}
	err := t.secrets(c.Text("password-file"))
	if err == nil && d.tls {
		t.TLS, err = c.tlsConfig()
	}
	if err != nil {
		return nil, err
	}
	if c.dryRun {
		t.DryRun = os.Stdout
	}
	driver, err := d.Destination.Open(t)
	if err != nil {
		return nil, err
	}
	return &target{dest: driver, memory: d.Memory, header: true, engine: !c.dryRun}, nil
}

// secrets reads the password of the user.
func (t *Told) secrets(passwordFile string) error {
	if (t.User == "") != (passwordFile == "") {
		return errors.New("--user and --password-file belong together: one is missing")
	}
	var err error
	if t.Password, err = readPassword(passwordFile); err == nil && passwordFile != "" && t.Password == "" {
		err = fmt.Errorf("--password-file %s is empty", passwordFile)
	}
	return err
}

// A moreInput is a type of input that the core does not have.
type moreInput struct {
	Input
	c *setting.Values
}

// told returns what the input is told.
func (k *moreInput) told() (*Told, error) {
	t := &Told{User: k.c.Text("user"), Values: *k.c}
	return t, t.secrets(k.c.Text("password-file"))
}

// check looks at the options.
func (k *moreInput) check() error {
	t, err := k.told()
	if err == nil {
		_, err = k.Open(t, nil)
	}
	return err
}

func (k *moreInput) open(in *inlet) (source, error) {
	t, err := k.told()
	if err != nil {
		return nil, exit.Config(err)
	}
	s := &moreSource{in: in}
	if s.Reader, err = k.Open(t, &Sink{in: in, take: in.newIntake()}); err != nil {
		return nil, exit.Config(err)
	}
	return s, nil
}

// A moreSource is the source of such an input.
type moreSource struct {
	Reader
	in     *inlet
	closed bool
}

func (s *moreSource) read() error {
	if err := s.Run(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

func (s *moreSource) stop() { s.Stop() }

func (s *moreSource) finish(delivered bool) error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.Close(delivered)
}

func (s *moreSource) close() {
	if err := s.finish(false); err != nil {
		s.in.p.con.Say("%s", s.in.of(err))
	}
}

func (s *moreSource) readsAgain() string {
	return "the servers of " + s.in.name + " got no acknowledgement and send them again"
}

// A Sink takes the records of an input. Put is for one goroutine; Commit and Say are for
// any.
type Sink struct {
	in   *inlet
	take *intake
	text []byte
}

// A Record is a record of an [Input].
type Record struct {
	Body  []byte      // belongs to the caller again when Put returns
	Time  time.Time   // when it was written, unless Body says so; zero: not known
	Level *slog.Level // unless Body says so; nil: not known
	Attrs []slog.Attr // fields behind those of Body
}

// ErrClosed is the error of [Sink.Put] when no output takes records any more.
var ErrClosed = errors.New("the outputs are closed")

// Put puts a record into every output of the input. It waits while one of them is full.
func (s *Sink) Put(r *Record) error {
	k := known{noted: r.Time, likely: r.Level, attrs: r.Attrs}
	var tooLong int64
	if len(r.Body) > int(s.in.p.c.maxRecord.Value) {
		tooLong = int64(len(r.Body))
	} else {
		s.text = append(append(s.text[:0], r.Body...), '\n')
	}
	open := s.take.put(s.text, tooLong, k)
	if cap(s.text) > keptText {
		s.text = nil
	}
	if !open {
		return ErrClosed
	}
	return nil
}

// Commit waits until every output has delivered what was put before the call, or has it in
// its spool.
func (s *Sink) Commit(ctx context.Context) error { return s.in.commit(ctx) }

// Say tells an operator.
func (s *Sink) Say(format string, args ...any) {
	s.in.p.con.Say("input %s: %s", s.in.name, fmt.Sprintf(format, args...))
}
