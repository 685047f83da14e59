package input

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// extensionInputs contains the inputs that other modules have registered.
var extensionInputs []Extension

// AddExtension registers an input from another module. It must be called before [Options] and
// [Types] are read.
func AddExtension(in Extension) {
	extensionInputs = append(extensionInputs, in)
	Types = append(slices.Clip(Types), in.Name)
	for _, option := range in.Options {
		i := slices.IndexFunc(Options, func(o Option) bool { return o.Name == option.Name })
		if i < 0 {
			i = len(Options)
			Options = append(Options, Option{Name: option.Name, initial: option.Initial, OfFile: option.Secret})
		}
		Options[i].Of = append(slices.Clip(Options[i].Of), in.Name)
	}
}

// An Extension is an input from another module. It receives records from servers.
type Extension struct {
	Name string

	// Options are the options of the input, in addition to type, format, time and zone.
	Options []setting.Custom

	// Open returns a Reader that passes records to sink. If sink is nil, Open only checks the
	// options and does not connect. Errors contain the names of options with a leading --.
	Open func(t *setting.Args, sink *Sink) (Reader, error)
}

// A Reader receives records and passes them to a [Sink].
type Reader interface {
	// Run reads until Stop is called or Sink.Put returns ErrClosed. It is called once.
	Run() error
	// Stop makes Run return soon. It may be called at any time, also more than once.
	Stop()
	// Close releases the resources. It is called once, after Run has returned and the outputs are
	// closed. If delivered is true, the outputs have delivered or stored all records that were
	// passed to Put.
	Close(delivered bool) error
}

// An inputType is the value of the option type of an input.
type inputType struct{ setting.Choice }

func (t *inputType) Set(text string) error {
	err := t.Choice.Set(text)
	if why := setting.UnsupportedHint(text); err != nil && why != "" {
		return fmt.Errorf("%s: %s", text, why)
	}
	return err
}

// An extensionInput is a configured input from another module.
type extensionInput struct {
	Extension
	c *setting.Values
}

// settings returns the options for the function Open of the extension.
func (k *extensionInput) settings() (*setting.Args, error) {
	t := &setting.Args{User: k.c.Text("user"), Values: *k.c}
	return t, t.Secrets(k.c.Text("password-file"))
}

// check returns an error if an option is invalid.
func (k *extensionInput) check() error {
	t, err := k.settings()
	if err == nil {
		_, err = k.Extension.Open(t, nil)
	}
	return err
}

func (k *extensionInput) Open(in *intake.Inlet) (Source, error) {
	t, err := k.settings()
	if err != nil {
		return nil, exit.Config(err)
	}
	s := &extensionSource{in: in}
	if s.reader, err = k.Extension.Open(t, &Sink{in: in, intake: in.NewIntake()}); err != nil {
		return nil, exit.Config(err)
	}
	return s, nil
}

// An extensionSource is the source of an input from another module.
type extensionSource struct {
	reader Reader
	in     *intake.Inlet
	closed bool
}

func (s *extensionSource) Run() error {
	if err := s.reader.Run(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

func (s *extensionSource) Stop() { s.reader.Stop() }

func (s *extensionSource) Finish(delivered bool) error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.reader.Close(delivered)
}

func (s *extensionSource) Close() {
	if err := s.Finish(false); err != nil {
		s.in.Env.Console.Say("%s", s.in.WithName(err))
	}
}

func (s *extensionSource) Repeats() string {
	return "the servers of " + s.in.Name + " got no acknowledgement and send them again"
}

// A Sink passes the records of a Reader to the outputs. Calls of Put must not be concurrent. Commit
// and Say may be called at any time.
type Sink struct {
	in     *intake.Inlet
	intake *intake.Intake
	text   []byte
}

// A Record is a record that an input from another module has received.
type Record struct {
	Body  []byte      // may be reused after Put
	Time  time.Time   // used if Body contains no time; zero if unknown
	Level *slog.Level // used if Body contains no level; nil if unknown
	Attrs []slog.Attr // additional fields
}

// ErrClosed is returned by [Sink.Put] if no output accepts records any more.
var ErrClosed = errors.New("the outputs are closed")

// Put passes a record to all outputs of the input. It blocks while an output is full.
func (s *Sink) Put(r *Record) error {
	k := intake.Hints{DefaultTime: r.Time, DefaultLevel: r.Level, Attrs: r.Attrs}
	var tooLong int64
	if len(r.Body) > s.in.Env.MaxRecord {
		tooLong = int64(len(r.Body))
	} else {
		s.text = append(append(s.text[:0], r.Body...), '\n')
	}
	open := s.intake.Put(s.text, tooLong, &k)
	if cap(s.text) > intake.KeptText {
		s.text = nil
	}
	if !open {
		return ErrClosed
	}
	return nil
}

// Commit waits until all outputs have delivered the records that were passed to Put before the
// call, or have written them to a spool.
func (s *Sink) Commit(ctx context.Context) error { return s.in.Commit(ctx) }

// Say prints a message for the operator.
func (s *Sink) Say(format string, args ...any) {
	s.in.Env.Console.Say("input %s: %s", s.in.Name, fmt.Sprintf(format, args...))
}
