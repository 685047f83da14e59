package program

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/journal"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// journalInput is the journal of systemd.
type journalInput struct{ o journal.Options }

// A journalSource is the sink of its entries.
type journalSource struct {
	in   *inlet
	j    *journal.Journal
	take *intake
	dir  string // of the cursor; "": none
}

func (k *journalInput) open(in *inlet) (source, error) {
	s := &journalSource{in: in, take: in.newIntake(), dir: k.o.Dir}
	o := k.o
	o.MaxRecord = int(in.p.c.maxRecord.Value)
	o.Say = func(text string) { in.p.con.Say("input %s: %s", in.name, text) }
	var err error
	if s.j, err = journal.New(o, s); err != nil {
		if s.dir != "" && !strings.HasPrefix(err.Error(), "cannot read the journal: ") {
			text := strings.ReplaceAll(err.Error(), "forebay tail", "process or input")
			err = in.p.keyError("inputs."+in.name, "state", s.dir, in.c.at, text)
		}
		return nil, exit.Config(err)
	}
	return s, nil
}

func (s *journalSource) read() error {
	err := s.j.Run()
	if errors.Is(err, journal.ErrStopped) {
		return nil
	}
	return err
}

func (s *journalSource) stop()                       { s.j.Stop() }
func (s *journalSource) finish(delivered bool) error { return s.j.Finish(delivered) }

func (s *journalSource) close() {
	if err := s.j.Finish(false); err != nil {
		s.in.p.con.Say("%s", s.in.of(err))
	}
}

func (s *journalSource) readsAgain() string {
	if s.dir == "" {
		return ""
	}
	return nextRun(s.dir)
}

// Put puts an entry into every output. The level of a message counts more than the priority
// of its entry: what a service prints has the same one, whatever it says.
func (s *journalSource) Put(e journal.Entry) error {
	k := known{noted: e.Time, attrs: e.Attrs}
	if e.HasLevel {
		k.likely = &e.Level
	}
	if !s.take.put(e.Text, e.TooLong, k) {
		return journal.ErrStopped
	}
	return nil
}

// Commit waits until the outputs have what was put.
func (s *journalSource) Commit(ctx context.Context) error { return s.in.commit(ctx) }

// journalOptions returns the options of an input of that type.
func journalOptions(c *setting.Values) journal.Options {
	return journal.Options{
		Dir: c.Text("state"), FromEnd: c.Text("from") != "start", Units: c.List("units"), Identifiers: c.List("identifiers"),
		Directory: c.Text("directory"), AllFields: c.On("all-fields"), CommitEvery: time.Second,
	}
}
