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

// moreInputs are the types of other modules.
var moreInputs []Extension

// AddExtension registers a type of another module, before the tables are read.
func AddExtension(in Extension) {
	moreInputs = append(moreInputs, in)
	Types = append(slices.Clip(Types), in.Name)
	for _, own := range in.Options {
		i := slices.IndexFunc(Options, func(o Option) bool { return o.Name == own.Name })
		if i < 0 {
			i = len(Options)
			Options = append(Options, Option{Name: own.Name, initial: own.Initial, OfFile: own.Secret})
		}
		Options[i].Of = append(slices.Clip(Options[i].Of), in.Name)
	}
}

// An Extension is a type of input of another module that takes records from servers.
type Extension struct {
	Name string

	// Options are its options, besides type, format, time and zone.
	Options []setting.Custom

	// Open returns what reads. Its errors name options with -- in front. to is nil when only
	// the options are to be looked at; no connection is made then.
	Open func(t *setting.Args, to *Sink) (Reader, error)
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

// An inputType is the type of an input.
type inputType struct{ setting.Choice }

func (t *inputType) Set(text string) error {
	err := t.Choice.Set(text)
	if why := setting.IsElsewhere(text); err != nil && why != "" {
		return fmt.Errorf("%s: %s", text, why)
	}
	return err
}

// A moreInput is a type of input that the core does not have.
type moreInput struct {
	Extension
	c *setting.Values
}

// told returns the settings of the input.
func (k *moreInput) told() (*setting.Args, error) {
	t := &setting.Args{User: k.c.Text("user"), Values: *k.c}
	return t, t.Secrets(k.c.Text("password-file"))
}

// check looks at the options.
func (k *moreInput) check() error {
	t, err := k.told()
	if err == nil {
		_, err = k.Extension.Open(t, nil)
	}
	return err
}

func (k *moreInput) Open(in *intake.Inlet) (Source, error) {
	t, err := k.told()
	if err != nil {
		return nil, exit.Config(err)
	}
	s := &moreSource{in: in}
	if s.reader, err = k.Extension.Open(t, &Sink{in: in, take: in.NewIntake()}); err != nil {
		return nil, exit.Config(err)
	}
	return s, nil
}

// A moreSource is the source of such an input.
type moreSource struct {
	reader Reader
	in     *intake.Inlet
	closed bool
}

func (s *moreSource) Run() error {
	if err := s.reader.Run(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

func (s *moreSource) Stop() { s.reader.Stop() }

func (s *moreSource) Finish(delivered bool) error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.reader.Close(delivered)
}

func (s *moreSource) Close() {
	if err := s.Finish(false); err != nil {
		s.in.Env.Console.Say("%s", s.in.Of(err))
	}
}

func (s *moreSource) Repeats() string {
	return "the servers of " + s.in.Name + " got no acknowledgement and send them again"
}

// A Sink takes the records of an input. Put is for one goroutine; Commit and Say are for
// any.
type Sink struct {
	in   *intake.Inlet
	take *intake.Intake
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
	k := intake.Hints{DefaultTime: r.Time, DefaultLevel: r.Level, Attrs: r.Attrs}
	var tooLong int64
	if len(r.Body) > s.in.Env.MaxRecord {
		tooLong = int64(len(r.Body))
	} else {
		s.text = append(append(s.text[:0], r.Body...), '\n')
	}
	open := s.take.Put(s.text, tooLong, k)
	if cap(s.text) > intake.KeptText {
		s.text = nil
	}
	if !open {
		return ErrClosed
	}
	return nil
}

// Commit waits until every output has delivered what was put before the call, or has it in
// its spool.
func (s *Sink) Commit(ctx context.Context) error { return s.in.Commit(ctx) }

// Say tells an operator.
func (s *Sink) Say(format string, args ...any) {
	s.in.Env.Console.Say("input %s: %s", s.in.Name, fmt.Sprintf(format, args...))
}
