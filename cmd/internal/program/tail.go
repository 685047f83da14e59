package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tail"
)

// tailFlags are what tail has beside the flags of pipe.
type tailFlags struct {
	files   []string
	state   string
	from    setting.Choice
	once    bool
	partial setting.Duration
	pathKey string // the field with the path of the file; "": none
	rotated setting.Count

	join *join.Rules
}

// newMaxRotated returns the default of --max-rotated.
func newMaxRotated() *setting.Count { return setting.CountBetween(64, 1, 0) }

func newTail(stdin, stderr *os.File) *cobra.Command {
	cmd, c := pipeCommand(stdin, stderr)
	f := &tailFlags{from: setting.Choice{Of: []string{"start", "end"}}, rotated: *newMaxRotated()}
	c.tail = f
	cmd.Use = "tail FILE..."
	cmd.Short = "Follow files and deliver their lines"
	cmd.Long = `Follow files and deliver their lines to every --to.

FILE is a path or a pattern with *, ? and []. Quote a pattern, because the shell would expand
it only once. New files are opened as soon as the system reports them, at most a second after
they appear, and are read from their start. A file that is renamed, deleted, or copied and
truncated, is read to its end before its successor, even while outputs are blocked; up to
--max-rotated such files are kept open. A record that is incomplete at the end of a file
continues in the next file. Compressed and binary files are reported and skipped.

Without --state, reading begins at the end of the files, as in tail -F, and nothing is kept on
disk. --state DIR stores the position of each file up to which all outputs have delivered the
lines or written them to --spool. The next start continues there. If the program is killed, no
line is lost. Lines in flight and lines delivered within the last second, at most about 1 MiB,
are delivered twice. Each process needs a separate DIR.

Every line is a record. Lines longer than --max-record are dropped and counted. NUL bytes
before a line are removed, because truncated files have holes. The last line waits for its
newline; see --partial-after. A line delivered without its newline has the field partial=true.

` + multilineHelp + `

Records of a file in /var/log/containers get the fields pod, namespace and container from its
path. They appear with --encode json and logfmt, at forward:, and with --metadata at loki:.

The other flags are described by forebay pipe --help.

` + strings.NewReplacer(
		"records were lost, or standard input could not be read", "records or bytes of a file were lost, or with --once a file was skipped or could not be read",
		"--spool or --crash-safe", "--spool or --crash-safe, or read again with --state",
		"a destination is wrong", "a destination or --state is wrong",
	).Replace(exitHelp)
	cmd.Example = `  forebay tail /var/log/syslog --to loki://logs:3100 --label host=web1 --state /var/lib/forebay/syslog
  forebay tail '/var/log/containers/*.log' --multiline auto --encode json --state /var/lib/forebay/pods --to tcp://logs:5170
  forebay tail --once --multiline java server.log --encode json > server.jsonl`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.files = args; len(args) == 0 {
			return exit.Usage(errors.New("no file is given: add a path or a pattern"))
		}
		return usageErrorOf(f.check(cmd))
	}
	// Its own flags first.
	rest := cmd.Flags()
	cmd.ResetFlags()
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.state, "state", "", "store the delivered position of each file in `DIR` (default: none)")
	f.from.Add(cmd, "from", "", "position to begin at in files that exist at the start and are not in --state (default end; start with --once)")
	fs.BoolVar(&f.once, "once", false, "read to the end of the files and exit")
	fs.StringVar(&f.pathKey, "path-key", "", "field `NAME` for the path of the file: with --encode json and logfmt, at forward:, and for --label-from and --metadata of loki: (default: none)")
	fs.Var(&f.partial, "partial-after", "time without growth after which a last line without a newline is delivered (default 0: wait for the newline)")
	fs.Var(&f.rotated, "max-rotated", "number `N` of rotated files of a path to keep open until they are read; older ones are lost and reported")
	fs.AddFlagSet(rest)
	return cmd
}

// usageErrorOf is usageError for an error that may be nil.
func usageErrorOf(err error) error {
	if err == nil {
		return nil
	}
	return exit.Usage(err)
}

// check looks at the flags of cmd.
func (f *tailFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("state") && f.state == "" {
		return errors.New("--state is empty")
	}
	for _, path := range f.files {
		if path == "" || path == "-" {
			return fmt.Errorf("%q is not a file; for standard input, use forebay pipe", path)
		}
	}
	return nil
}

// A tailSource is the files of forebay tail. It is the sink of their lines.
type tailSource struct {
	in   *inlet
	t    *tail.Tailer
	take *intake
	dir  string // of positions; "": none
	once bool

	pathKey string

	source *tail.Source // of attrs
	stream string
	attrs  []slog.Attr // of a pod
}

// open opens the files. The outputs are open.
func (f *tailFlags) open(in *inlet) (source, error) {
	s, err := f.follow(in)
	if err != nil {
		return nil, exit.Config(err)
	}
	return s, nil
}

func (f *tailFlags) follow(in *inlet) (*tailSource, error) {
	p := in.p
	s := &tailSource{in: in, take: in.newIntake(), dir: f.state, once: f.once, pathKey: f.pathKey}
	if p.c.dryRun {
		s.dir = "" // nothing is delivered
	}
	var err error
	s.t, err = tail.New(tail.Options{
		Patterns: f.files, Dir: s.dir, Once: f.once, Join: f.join,
		FromEnd:   f.from.Value == "end" || f.from.Value == "" && !f.once,
		MaxRecord: int(p.c.maxRecord.Value), PartialWait: time.Duration(f.partial), MaxGenerations: f.rotated.Value,
		Say: func(text string) { p.con.Say("%s", text) },
		Lost: func(n int64) {
			in.lost.Add(uint64(n))
			in.lostIn.Add(1)
		},
	}, s)
	if err != nil {
		if s.dir != "" {
			if p.c.named {
				err = errors.New(strings.ReplaceAll(err.Error(), "forebay tail", "process or input"))
			}
			err = p.keyError("inputs."+in.name, "state", s.dir, in.c.at, err.Error())
		}
		return nil, err
	}
	for _, to := range p.destinationNames() {
		if err := s.loops(to); err != nil {
			s.t.Finish(false)
			return nil, err
		}
	}
	return s, nil
}

// loops returns an error if a destination is one of the files that are followed.
func (s *tailSource) loops(to string) error {
	path, isFile := strings.CutPrefix(to, "file:")
	if abs, err := filepath.Abs(path); !isFile || err != nil || !s.t.Matches(abs) {
		return nil
	}
	return fmt.Errorf("%s: it is one of the followed files: its lines would be read again forever", to)
}

func (s *tailSource) read() error {
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

func (s *tailSource) stop()  { s.t.Stop() }
func (s *tailSource) close() { s.t.Finish(false) }

func (s *tailSource) readsAgain() string {
	if s.dir == "" {
		return ""
	}
	return nextRun(s.dir)
}

// nextRun says that the positions in a directory let the next run read lines again.
func nextRun(dir string) string { return "the next run reads them again, from the positions in " + dir }

func (s *tailSource) finish(delivered bool) error { return s.t.Finish(delivered) }

// Put puts a line into every output. One that an output takes no more, because the time
// is up, is left for the next run.
func (s *tailSource) Put(l tail.Line) error {
	k := known{noted: l.Time}
	if l.TooLong == 0 {
		k.attrs = s.about(&l)
		if l.Cut {
			k.attrs = append(slices.Clip(k.attrs), partialLine...)
		}
	}
	if !s.take.put(l.Text, l.TooLong, k) {
		return tail.ErrStopped
	}
	return nil
}

// about returns what the path and the container runtime say of a line.
func (s *tailSource) about(l *tail.Line) []slog.Attr {
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

// Commit waits until every output has delivered what it took, or put it into its spool.
func (s *tailSource) Commit(ctx context.Context) error {
	return s.in.commit(ctx)
}
