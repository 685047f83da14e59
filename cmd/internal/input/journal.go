package input

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/journal"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// Journal is the input that reads the systemd journal.
type Journal struct{ o journal.Options }

// A journalSource passes the entries of the journal to the outputs.
type journalSource struct {
	in     *intake.Inlet
	j      *journal.Journal
	intake *intake.Intake
	dir    string // directory in which the cursor is stored; "" if it is not stored
}

func (k *Journal) Open(in *intake.Inlet) (Source, error) {
	s := &journalSource{in: in, intake: in.NewIntake(), dir: k.o.Dir}
	o := k.o
	o.MaxRecord = in.Env.MaxRecord
	o.Say = func(text string) { in.Env.Console.Say("input %s: %s", in.Name, text) }
	var err error
	if s.j, err = journal.New(o, s); err != nil {
		if s.dir != "" && !strings.HasPrefix(err.Error(), "cannot read the journal: ") {
			err = in.Env.KeyError("inputs."+in.Name, "state", s.dir, in.At, err.Error())
		}
		return nil, exit.Config(err)
	}
	return s, nil
}

func (s *journalSource) Run() error {
	err := s.j.Run()
	if errors.Is(err, journal.ErrStopped) {
		return nil
	}
	return err
}

func (s *journalSource) Stop()                       { s.j.Stop() }
func (s *journalSource) Finish(delivered bool) error { return s.j.Finish(delivered) }

func (s *journalSource) Close() {
	if err := s.j.Finish(false); err != nil {
		s.in.Env.Console.Say("%s", s.in.WithName(err))
	}
}

func (s *journalSource) Repeats() string {
	if s.dir == "" {
		return ""
	}
	return nextRun(s.dir)
}

// Put passes an entry to all outputs. A level in the message has precedence over the priority of
// the entry, because systemd assigns the same priority to all output of a service.
func (s *journalSource) Put(e journal.Entry) error {
	k := intake.Hints{DefaultTime: e.Time, Attrs: e.Attrs}
	if e.HasLevel {
		k.DefaultLevel = &e.Level
	}
	if !s.intake.Put(e.Text, e.TooLong, &k) {
		return journal.ErrStopped
	}
	return nil
}

// Commit waits until all outputs have delivered the entries or written them to a spool.
func (s *journalSource) Commit(ctx context.Context) error { return s.in.Commit(ctx) }

// journalOptions converts the settings of the input to options of package journal.
func journalOptions(c *setting.Values) journal.Options {
	return journal.Options{
		Dir: c.Text("state"), FromEnd: c.Text("from") != "start", Units: c.List("units"), Identifiers: c.List("identifiers"),
		Directory: c.Text("directory"), AllFields: c.On("all-fields"), CommitEvery: time.Second,
	}
}
