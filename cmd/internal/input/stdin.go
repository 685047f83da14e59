package input

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/internal/units"
)

// Stdin is the input that reads standard input.
type Stdin struct {
	F    *os.File
	text intake.Text
}

// NewStdin returns an input that reads f.
func NewStdin(f *os.File, text intake.Text) Stdin { return Stdin{f, text} }

// A stdinSource passes the lines of standard input to the outputs. It begins with the input that
// earlier runs have read but not delivered.
type stdinSource struct {
	*input
	intake    *intake.Intake
	readAhead *readahead.File   // stores input that is not delivered yet; nil if it is not stored
	earlier   []*readahead.File // input of earlier runs
}

func (k Stdin) Open(in *intake.Inlet) (Source, error) {
	f, err := NewInput(k.F, k.text)
	if err != nil {
		return nil, exit.Runtime(err)
	}
	s := &stdinSource{input: f, intake: in.NewIntake()}
	if err := s.openReadAhead(in.Env); err != nil {
		f.Close()
		return nil, exit.Config(err)
	}
	return s, nil
}

// Run delivers the input of earlier runs, and then reads standard input until it ends.
func (s *stdinSource) Run() error {
	for _, f := range s.earlier {
		err := s.intake.Consume(f, f, s.text, nil, true)
		f.Close()
		if err != nil {
			return fmt.Errorf("cannot read standard input: %w", err)
		}
	}
	var err error
	if s.readAhead == nil {
		err = s.intake.Consume(s.input, nil, s.text, s.wait, false)
	} else {
		defer s.readAhead.Close()
		err = s.intake.Consume(s.readAhead, s.readAhead, s.text, func(d time.Duration) bool {
			return !s.readAhead.Waits() || s.wait(d)
		}, false)
	}
	if err != nil {
		return fmt.Errorf("cannot read standard input: %w", err)
	}
	return nil
}

func (*stdinSource) Finish(bool) error { return nil }
func (*stdinSource) Repeats() string   { return "" }

// openReadAhead opens the files in the --crash-safe directories that store undelivered input of
// earlier runs. If this process reads from the same pipe as an earlier run, it continues the file
// of that run. If not, it creates a file in the first directory.
func (s *stdinSource) openReadAhead(e *output.Env) error {
	outs := s.intake.In.Host.Outputs()
	dirs := output.CrashDirs(outs)
	if dirs == nil {
		return nil
	}
	o := readahead.Options{Bytes: intake.BytesToKeep(e.MaxRecord, s.text.Join), Input: s.f}
	required := false
	for _, out := range outs {
		o.Outputs = append(o.Outputs, out.Dir)
		required = required || out.Spec.On("crash-safe-required")
	}
	var found []*readahead.File
	for _, dir := range dirs {
		files, damaged := readahead.Adopt(dir, o.Outputs)
		found = append(found, files...)
		for _, err := range damaged {
			e.Console.Say("--crash-safe: input of an earlier run: %s", err)
		}
	}
	slices.SortStableFunc(found, func(a, b *readahead.File) int { return strings.Compare(a.Name(), b.Name()) })
	dir := dirs[0]
	var pending uint64
	for _, f := range found {
		most := uint64(0)
		for _, name := range o.Outputs {
			if i := f.Output(name); i >= 0 {
				most = max(most, f.Pending(i))
			}
		}
		pending += most
		switch {
		case s.readAhead == nil && f.Continues(o):
			s.readAhead = f
		case most > 0:
			s.earlier = append(s.earlier, f)
		default: // nothing but the beginning of a line that is too long
			f.Close()
		}
	}
	if pending > 0 {
		e.Console.Say("%s of input of an earlier run is delivered first", units.Size(float64(pending)))
	}
	if s.readAhead == nil && output.AnySafe(outs) {
		f, err := readahead.Create(dir, o)
		switch {
		case err == nil:
			s.readAhead = f
		case required:
			for _, f := range s.earlier {
				f.Close()
			}
			return fmt.Errorf("--crash-safe: cannot keep input that was read ahead in %s: %w", dir, err)
		default:
			e.Console.Say("--crash-safe: cannot keep input that was read ahead in %s: %s; continuing without it: up to %s are lost if this program is killed", dir, err, units.Size(float64(o.Bytes)))
		}
	}
	if s.readAhead != nil {
		s.input.begin(s.readAhead.End())
		s.readAhead.From(s.input, func(err error) {
			e.Console.Say("--crash-safe: input that was read ahead is now lost if this program is killed: %s", err)
		})
	}
	return nil
}
