package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/forebay/internal/tail"
)

// tailFlags are what tail has beside the flags of pipe.
type tailFlags struct {
	files     []string
	state     string
	from      choice
	once      bool
	multiline []string
	partial   duration

	join *tail.Join
}

func newTail(stdin, stderr *os.File) *cobra.Command {
	cmd, c := pipeCommand(stdin, stderr)
	f := &tailFlags{from: choice{of: []string{"start", "end"}}}
	c.tail = f
	cmd.Use = "tail FILE..."
	cmd.Short = "Follow files and deliver their lines"
	cmd.Long = `Follow files and deliver their lines to every --to.

FILE is a path, or a pattern with *, ? and [] (in quotes, or the shell replaces it by
what is there now). New files are looked for once a second, and read from their start.
A file that is renamed, or copied and truncated, is read to its end before what comes
in its place. Files that are compressed or binary are left out, with a word.

Without --state it begins at the end of the files, as tail -F does, and keeps nothing
on disk. With --state DIR it keeps there how far the lines of each file are delivered
to all outputs, or safe in their --spool, and goes on there when it is started again.
If it is killed, lines come twice, at most those of about a second or of the time that
a destination was down, and none is lost. Each process needs a DIR of its own.

A line is a record. Lines longer than --max-record are dropped, and counted. NUL bytes
in front of a line are left out: truncated files have holes. The last line waits for its
newline (--partial-after).

--multiline makes several lines one record: go, java and python know stack traces; cri
and docker are what container runtimes write, whose lines are put together and taken
out of their wrapping; auto is all of them; everything else is a regular expression for
the first line of a record, such as '^\d{4}-'. It may be repeated: --multiline cri
--multiline java. A record ends a second after its last line, after 1000 lines, or at
--max-record.

A file of /var/log/containers gives its records pod, namespace and container, read off
its path: with --encode json and logfmt, forward:, and the --metadata of loki:.

For everything else, see forebay pipe --help: the flags are the same.

` + strings.NewReplacer(
		"standard input could not be read", "with --once a file could not be read",
		"--spool or --crash-safe", "--spool or --crash-safe, or read again with --state",
		"a destination is wrong", "a destination or --state is wrong",
	).Replace(exitHelp)
	cmd.Example = `  forebay tail /var/log/syslog --to loki://logs:3100 --label host=web1 --state /var/lib/forebay/syslog
  forebay tail '/var/log/containers/*.log' --multiline auto --encode json --state /var/lib/forebay/pods --to tcp://logs:5170
  forebay tail --once --multiline java server.log --encode json > server.jsonl`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.files = args; len(args) == 0 {
			return usageError(errors.New("forebay tail follows files, and none is given: add a path or a pattern"))
		}
		return usageErrorOf(f.check(cmd))
	}
	// Its own flags first.
	rest := cmd.Flags()
	cmd.ResetFlags()
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.state, "state", "", "keep in `DIR` how far each file is delivered (default: nothing is kept)")
	f.from.add(cmd, "from", "", "where to begin in files that are there at the start and not in --state (default end; start with --once)")
	fs.BoolVar(&f.once, "once", false, "read what is there, and stop")
	fs.StringArrayVar(&f.multiline, "multiline", nil, "which lines are one record: go, java, python, cri, docker, auto, or a `PATTERN`; may be repeated")
	fs.Var(&f.partial, "partial-after", "deliver a last line without a newline after it has not grown for that long (0: wait for the newline)")
	complete(cmd, "multiline", tail.Names...)
	fs.AddFlagSet(rest)
	return cmd
}

// usageErrorOf is usageError for an error that may be nil.
func usageErrorOf(err error) error {
	if err == nil {
		return nil
	}
	return usageError(err)
}

// check looks at the flags of cmd.
func (f *tailFlags) check(cmd *cobra.Command) (err error) {
	if cmd.Flags().Changed("state") && f.state == "" {
		return errors.New("--state is empty")
	}
	if f.join, err = tail.ParseJoin(f.multiline); err != nil {
		return fmt.Errorf("--multiline: %w", err)
	}
	for _, path := range f.files {
		if path == "" || path == "-" {
			return fmt.Errorf("%q is no file; for standard input, use forebay pipe", path)
		}
	}
	return nil
}

// A tailSource is the files of forebay tail. It is the sink of their lines.
type tailSource struct {
	p    *pipeline
	t    *tail.Tailer
	in   *intake
	dir  string // of positions; "": none
	once bool

	source *tail.Source // of attrs
	stream string
	attrs  []slog.Attr // of a pod
}

// openTail opens the source of forebay tail. The outputs are open.
func (p *pipeline) openTail() (*tailSource, error) {
	f := p.c.tail
	s := &tailSource{p: p, dir: f.state, once: f.once}
	if p.c.dryRun {
		s.dir = "" // nothing is delivered
	}
	var err error
	s.t, err = tail.New(tail.Options{
		Patterns: f.files, Dir: s.dir, Once: f.once, Join: f.join,
		FromEnd:   f.from.value == "end" || f.from.value == "" && !f.once,
		MaxRecord: int(p.c.maxRecord.value), PartialWait: time.Duration(f.partial),
		Say: func(text string) { p.con.say("%s", text) },
	}, s)
	if err != nil {
		if s.dir != "" {
			err = fmt.Errorf("--state %s: %w", s.dir, err)
		}
		return nil, err
	}
	for _, to := range p.destinationNames() {
		path, isFile := strings.CutPrefix(to, "file:")
		if !isFile {
			continue
		}
		if abs, err := filepath.Abs(path); err == nil && s.t.Matches(abs) {
			s.t.Finish(false)
			return nil, fmt.Errorf("%s: it is one of the files that are followed: what is written there would be read again, without end", to)
		}
	}
	return s, nil
}

func (s *tailSource) read() error {
	s.in = s.p.newIntake(nil)
	err := s.t.Run()
	switch n := s.t.Missed(); {
	case errors.Is(err, tail.ErrStopped):
		return nil
	case err == nil && s.once && n == 1:
		return errors.New("a file could not be read")
	case err == nil && s.once && n > 1:
		return fmt.Errorf("%d files could not be read", n)
	}
	return err
}

func (s *tailSource) stop()  { s.t.Stop() }
func (s *tailSource) close() { s.t.Finish(false) }

func (s *tailSource) readsAgain() string { return s.dir }

func (s *tailSource) finish(delivered bool) error { return s.t.Finish(delivered) }

// Put puts a line into every output. One that an output takes no more, because the time
// is up, is left for the next run.
func (s *tailSource) Put(l tail.Line) error {
	s.p.records.Add(1)
	if l.TooLong > 0 {
		s.p.bytes.Add(uint64(l.TooLong))
		s.in.tooLong(0)
		return nil
	}
	s.p.bytes.Add(uint64(len(l.Text)))
	if !s.in.line(l.Text, 0, l.Time, s.about(&l)) {
		return tail.ErrStopped
	}
	return nil
}

// about returns what the path and the container runtime say of a line.
func (s *tailSource) about(l *tail.Line) []slog.Attr {
	if l.Source.Pod == "" {
		return nil
	}
	if l.Source != s.source || l.Stream != s.stream {
		s.source, s.stream = l.Source, l.Stream
		s.attrs = []slog.Attr{
			slog.String("namespace", l.Source.Namespace), slog.String("pod", l.Source.Pod), slog.String("container", l.Source.Container),
		}
		if l.Stream != "" {
			s.attrs = append(s.attrs, slog.String("stream", l.Stream))
		}
	}
	return s.attrs
}

// Commit waits until every output has delivered what it took, or put it into its spool.
func (s *tailSource) Commit(ctx context.Context) error {
	errs := make([]error, len(s.p.outs))
	var wg sync.WaitGroup
	for i, out := range s.p.outs {
		wg.Go(func() { errs[i] = out.d.Commit(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
