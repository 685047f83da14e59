// Package journal reads the journal of systemd and passes its entries to a sink.
//
// A [Journal] runs journalctl and reads its JSON, so that the program needs neither cgo nor the
// format of the journal's files. If journalctl ends, it is started again after the last entry that
// the sink accepted.
//
// A cursor identifies an entry. The cursor of an entry is stored once the sink has reported that
// everything up to it is delivered. If the process is killed, the next one continues there: no
// entry is lost or skipped, and entries delivered after the last store are delivered again. If the
// entry of the cursor is no longer in the journal, reading continues with the next entry that
// exists.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/state"
	"github.com/forebay-log/forebay/internal/vfs"
)

// An Entry is one entry of the journal. Its slices are valid until Put returns.
type Entry struct {
	// Text is the message with '\n' at its end. It may have several lines, and bytes that
	// are no UTF-8. Several messages of one entry are lines, and an entry without one has an
	// empty line.
	Text []byte
	// Time is when the journal has received the entry.
	Time time.Time
	// Level corresponds to the priority, as in package listen/syslog, if HasLevel is set.
	Level    slog.Level
	HasLevel bool
	// Attrs are unit, identifier, pid and host, if known. With Options.AllFields they are followed
	// by all other fields of the entry except message and priority, under their journal names.
	Attrs []slog.Attr

	// TooLong is the length of a message above Options.MaxRecord, or of its line of JSON. The
	// Entry has nothing else then.
	TooLong int64
}

// A Sink receives entries. The Journal calls Put from one goroutine, and Commit concurrently from
// another.
type Sink interface {
	// Put accepts an entry. It waits for room. An error ends the Journal; the entry was not
	// accepted.
	Put(Entry) error
	// Commit returns nil once everything that was put before the call is delivered, or
	// safe elsewhere. After an error it is called again later.
	Commit(context.Context) error
}

// Options select the entries to read.
type Options struct {
	// Command is the program, and arguments that come before all others. Default journalctl.
	Command []string
	// Dir is where the cursor is stored; "": nowhere.
	Dir string
	// FromEnd skips entries older than the first run. Default false. It has no effect once a cursor
	// is stored in Dir.
	FromEnd bool
	// Since, if set, skips older entries. Like FromEnd, it applies to the first run only.
	Since time.Time
	// ThisBoot leaves out the entries of other boots.
	ThisBoot bool
	// Units and Identifiers select entries of one of the units and with one of the identifiers.
	// Default: all. A unit may contain *, ? and [].
	Units       []string
	Identifiers []string
	// Directory contains the files of another journal. Default: the local journal.
	Directory string
	// AllFields puts all fields of an entry into its Attrs.
	AllFields bool
	// MaxRecord is the longest message. Default 1 MiB.
	MaxRecord int
	// CommitEvery is how often the cursor is stored. Default 1 s.
	CommitEvery time.Duration
	// Say receives messages for the operator, one call at a time. Default: none.
	Say func(text string)
}

// ErrStopped is the error of Run after Stop.
var ErrStopped = errors.New("journal: stopped")

// A Journal reads the journal. New, Run and Finish are called in this order, Stop at any time.
type Journal struct {
	o      Options
	sink   Sink
	ctx    context.Context // until Stop
	stop   context.CancelFunc
	store  *state.Dir // nil: none
	fresh  bool       // nothing was stored
	parser parser

	at struct {
		sync.Mutex
		position position // of the last entry that was put
		news     bool     // since the last commit began
	}
	wake chan struct{} // there are news

	reported struct {
		sync.Mutex
		ended   string          // the last report of the end of journalctl; "": it works
		words   map[string]bool // of journalctl
		trouble bool            // it was reported that the cursor cannot be stored
	}
	reporting sync.Mutex // held during a call of Options.Say
	damaged   uint64

	leastWait, mostWait time.Duration // before journalctl is started again
}

// commitTimeout is the maximum time of a commit of the sink.
const commitTimeout = 10 * time.Second

// New looks for the program, locks Options.Dir and reads the cursor in it.
func New(o Options, sink Sink) (*Journal, error) {
	if len(o.Command) == 0 {
		o.Command = []string{"journalctl"}
	}
	if o.MaxRecord == 0 {
		o.MaxRecord = 1 << 20
	}
	if o.CommitEvery == 0 {
		o.CommitEvery = time.Second
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	path, err := exec.LookPath(o.Command[0])
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: cannot run %s: %w; install it (it is part of systemd), or give its path", o.Command[0], plain(err))
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	o.Command = append([]string{path}, o.Command[1:]...)
	j := &Journal{o: o, sink: sink, wake: make(chan struct{}, 1), leastWait: 200 * time.Millisecond, mostWait: 30 * time.Second}
	j.parser.all = o.AllFields
	if err := j.open(); err != nil {
		return nil, err
	}
	j.ctx, j.stop = context.WithCancel(context.Background())
	return j, nil
}

// plain is err without the name of the program, which the message has already.
func plain(err error) error {
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

func (j *Journal) report(format string, args ...any) {
	j.reporting.Lock()
	defer j.reporting.Unlock()
	j.o.Say(fmt.Sprintf(format, args...))
}

// Stop makes Run return ErrStopped once Put has returned.
func (j *Journal) Stop() { j.stop() }

// Run reads the journal until Stop. Its error is ErrStopped, or an error of the sink.
func (j *Journal) Run() error {
	if j.store != nil && j.fresh {
		// Whatever happens from here on, the next process knows where this one began.
		j.reportStore(j.save(j.position()))
	}
	ctx, cancel := context.WithCancel(j.ctx)
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		j.commits(ctx)
	}()
	err := j.follow(ctx)
	cancel()
	<-committed
	return err
}

// put gives an entry, which has that cursor, to the sink.
func (j *Journal) put(e Entry, cursor []byte) error {
	if err := j.sink.Put(e); err != nil {
		return err
	}
	if cursor != nil {
		j.at.Lock()
		j.at.position = position{cursor: append(j.at.position.cursor[:0], cursor...)}
		j.at.news = true
		j.at.Unlock()
		j.awaken()
	}
	return nil
}

func (j *Journal) awaken() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// position returns a copy of the position.
func (j *Journal) position() position {
	j.at.Lock()
	defer j.at.Unlock()
	return j.at.position.clone()
}

// commits stores the cursor, at most once in CommitEvery, until ctx is done.
func (j *Journal) commits(ctx context.Context) {
	if j.store == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		}
		j.at.Lock()
		p, news := j.at.position.clone(), j.at.news
		j.at.news = false
		j.at.Unlock()
		if news && !j.commit(ctx, p) {
			j.at.Lock()
			j.at.news = true
			j.at.Unlock()
			j.awaken()
		}
		rest := time.NewTimer(j.o.CommitEvery)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// commit stores p if everything up to it is delivered.
func (j *Journal) commit(ctx context.Context, p position) bool {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if j.sink.Commit(ctx) != nil {
		return false // the sink reports its errors
	}
	err := j.save(p)
	j.reportStore(err)
	return err == nil
}

// reportStore reports once that the cursor cannot be stored, and once that it can be stored again.
func (j *Journal) reportStore(err error) {
	j.reported.Lock()
	before := j.reported.trouble
	j.reported.trouble = err != nil
	j.reported.Unlock()
	switch {
	case err != nil && !before:
		j.report("cannot store the cursor in %s: %s; retrying; if killed now, the next run reads entries again", j.o.Dir, vfs.Cause(err))
	case err == nil && before:
		j.report("the cursor can be stored again in %s", j.o.Dir)
	}
}

// Damaged returns how many lines of journalctl were no entries, after Run.
func (j *Journal) Damaged() uint64 { return j.damaged }

// Finish ends the Journal after Run. If delivered, which means that all entries passed to the sink
// are delivered or in a spool, the cursor is stored.
func (j *Journal) Finish(delivered bool) (err error) {
	j.stop()
	if j.store == nil {
		return nil
	}
	if p := j.position(); delivered && p.cursor != nil {
		if err = j.save(p); err != nil {
			err = fmt.Errorf("cannot store the cursor in %s: %w", j.o.Dir, vfs.Cause(err))
		}
	}
	j.store.Close()
	return err
}
