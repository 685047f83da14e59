package input

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tail"
)

// A Tail is the input that follows files.
type Tail struct {
	Files   []string
	State   string
	From    setting.Choice
	Once    bool
	Partial setting.Duration
	PathKey string // name of the field with the path of the file; "" for none
	Rotated setting.Count

	intake.Text
}

// NewMaxRotated returns the setting --max-rotated with its default and limits.
func NewMaxRotated() *setting.Count { return setting.CountBetween(64, 1, 0) }

// A TailSource passes the lines of followed files to the outputs.
type TailSource struct {
	in     *intake.Inlet
	t      *tail.Tailer
	intake *intake.Intake
	Dir    string // directory of stored positions; "" if they are not stored
	once   bool

	pathKey string

	source *tail.Source // file of the previous line, to which attrs belongs
	stream string
	attrs  []slog.Attr // fields for the path of source and the field stream
}

// Open opens the source. The outputs are already open.
func (f *Tail) Open(in *intake.Inlet) (Source, error) {
	s, err := f.follow(in)
	if err != nil {
		return nil, exit.Config(err)
	}
	return s, nil
}

// follow creates the source. It locks the directory of the positions.
func (f *Tail) follow(in *intake.Inlet) (*TailSource, error) {
	s := &TailSource{in: in, intake: in.NewIntake(), Dir: f.State, once: f.Once, pathKey: f.PathKey}
	if in.Env.DryRun {
		s.Dir = "" // do not store positions, because a dry run delivers nothing
	}
	var before *tail.Tailer
	if old, ok := in.Before.(*TailSource); ok && old.Dir == s.Dir && s.Dir != "" {
		before = old.t
	}
	var err error
	s.t, err = tail.New(tail.Options{
		Patterns: f.Files, Dir: s.Dir, Once: f.Once, Join: f.Join, Charset: f.Charset,
		From: f.from(), Before: before,
		MaxRecord: in.Env.MaxRecord, PartialWait: time.Duration(f.Partial), MaxGenerations: f.Rotated.Value,
		Say: func(text string) { in.Env.Console.Say("%s", text) },
		Lost: func(n int64) {
			in.Lost.Add(uint64(n))
			in.LostIn.Add(1)
		},
	}, s)
	if err != nil {
		if s.Dir != "" {
			err = in.Env.KeyError("inputs."+in.Name, "state", s.Dir, in.At, err.Error())
		}
		return nil, err
	}
	for _, to := range in.Host.Destinations() {
		if err := s.Loops(to); err != nil {
			s.t.Finish(false)
			return nil, err
		}
	}
	return s, nil
}

// from returns where to begin in files without a stored position.
func (f *Tail) from() tail.From {
	switch {
	case f.From.Value == "end":
		return tail.FromEnd
	case f.From.Value == "" && !f.Once:
		return tail.FromEndOnce
	}
	return tail.FromStart
}

// Loops returns an error if one of the followed files is the destination with the given address. In
// this case, each delivered line would be read again.
func (s *TailSource) Loops(to string) error {
	path, isFile := strings.CutPrefix(to, "file:")
	if abs, err := filepath.Abs(path); !isFile || err != nil || !s.t.Matches(abs) {
		return nil
	}
	return fmt.Errorf("%s: it is one of the followed files: its lines would be read again forever", to)
}

func (s *TailSource) Run() error {
	err := s.t.Run()
	switch n := s.t.Missed(); {
	case errors.Is(err, tail.ErrStopped):
		return nil
	case err == nil && s.once && n == 1:
		return errors.New("a file or directory was skipped or could not be read")
	case err == nil && s.once && n > 1:
		return fmt.Errorf("%d files or directories were skipped or could not be read", n)
	}
	return err
}

func (s *TailSource) Stop()  { s.t.Stop() }
func (s *TailSource) Close() { s.t.Finish(false) }

func (s *TailSource) Repeats() string {
	if s.Dir == "" {
		return ""
	}
	return nextRun(s.Dir)
}

// nextRun returns the end of a message about undelivered lines: the next run reads them again.
func nextRun(dir string) string { return "the next run reads them again, from the positions in " + dir }

func (s *TailSource) Finish(delivered bool) error { return s.t.Finish(delivered) }

// Begin locks the intake for the lines of one read.
func (s *TailSource) Begin() { s.intake.Begin() }

// End unlocks the intake.
func (s *TailSource) End() { s.intake.End() }

// Put passes a line to all outputs. If an output has not accepted the line at the drain timeout,
// Put returns an error, and the next run reads the line again.
func (s *TailSource) Put(l *tail.Line) error {
	k := intake.Hints{DefaultTime: l.Time}
	if l.TooLong == 0 {
		k.Attrs = s.attrsOf(l)
		if l.Cut {
			k.Attrs = append(slices.Clip(k.Attrs), intake.PartialLine...)
		}
	}
	if !s.intake.Add(l.Text, l.TooLong, &k) {
		return tail.ErrStopped
	}
	return nil
}

// attrsOf returns the fields for the path, the pod and the stream of the line.
func (s *TailSource) attrsOf(l *tail.Line) []slog.Attr {
	if l.Source.Pod == "" && s.pathKey == "" {
		return nil
	}
	if l.Source != s.source || l.Stream != s.stream {
		s.source, s.stream, s.attrs = l.Source, l.Stream, nil
		if s.pathKey != "" {
			s.attrs = append(s.attrs, slog.String(s.pathKey, l.Source.Path))
		}
		if l.Source.Pod == "" {
			return s.attrs
		}
		s.attrs = append(s.attrs,
			slog.String("namespace", l.Source.Namespace), slog.String("pod", l.Source.Pod), slog.String("container", l.Source.Container))
		if l.Stream != "" {
			s.attrs = append(s.attrs, slog.String("stream", l.Stream))
		}
	}
	return s.attrs
}

// Commit waits until all outputs have delivered the lines or written them to a spool.
func (s *TailSource) Commit(ctx context.Context) error {
	return s.in.Commit(ctx)
}
