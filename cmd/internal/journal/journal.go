// Package journal reads the journal of systemd and passes its entries to a sink.
//
// A [Journal] runs journalctl and reads its JSON output. The program therefore needs neither cgo
// nor code for the format of the journal files. If journalctl ends, it is started again and
// continues after the last entry that the sink has accepted.
//
// A cursor identifies an entry. The cursor of an entry is stored when the sink has reported that
// all entries up to it are delivered. If the process is killed, the next process continues at the
// stored cursor. No entry is lost, but entries delivered after the last store are delivered again.
// If the journal no longer contains the entry of the cursor, reading continues with the next entry
// that exists.
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

// An Entry is one entry of the journal. Its slices are valid until Sink.Put returns.
type Entry struct {
	// Text is the message and ends in '\n'. It may have several lines, and bytes that are not valid
	// UTF-8. If an entry has several messages, each becomes a line. Without a message, Text is an
	// empty line.
	Text []byte
	// Time is the time at which the journal received the entry.
	Time time.Time
	// Level is the level for the priority of the entry. It is valid if HasLevel is true.
	Level    slog.Level
	HasLevel bool
	// Attrs are unit, identifier, pid and host, if they are known. With Options.AllFields, all
	// other fields except the message and the priority follow, with their names in the journal.
	Attrs []slog.Attr

	// TooLong is 0 unless the message is longer than Options.MaxRecord. In that case it is the
	// length of the message, or of the JSON line that contains it, and the other fields of the
	// Entry may be zero.
	TooLong int64
}

// A Sink receives entries. Calls of Put are never concurrent, but Commit may be called during a
// Put.
type Sink interface {
	// Put accepts an entry. It may block until there is room for the entry. If Put returns an
	// error, it has not accepted the entry, and Run returns the error.
	Put(Entry) error
	// Commit returns nil if every entry that was passed to Put before the call is delivered or
	// stored in a spool. If Commit returns an error, the Journal calls it again later.
	Commit(context.Context) error
}

// Options select the entries to read.
type Options struct {
	// Command is the program to run, with its first arguments. Default: journalctl.
	Command []string
	// Dir is the directory in which the cursor is stored. Default (""): the cursor is not stored.
	Dir string
	// FromEnd skips entries that were written before the first run. It has no effect if a position
	// is stored in Dir. Default false.
	FromEnd bool
	// Since is a time. Entries before it are skipped, unless a position is stored in Dir. Default
	// (zero): no entry is skipped.
	Since time.Time
	// ThisBoot excludes entries of other boots. Default false.
	ThisBoot bool
	// Units and Identifiers select entries by unit and by identifier. A unit may contain *, ? and
	// []. Default: all entries.
	Units       []string
	Identifiers []string
	// Directory contains the files of the journal to read. Default: the local journal.
	Directory string
	// AllFields adds all fields of an entry to Entry.Attrs. Default false.
	AllFields bool
	// MaxRecord is the maximum length of a message in bytes. Default: 1 MiB.
	MaxRecord int
	// CommitEvery is the interval at which the cursor is stored. Default: 1 s.
	CommitEvery time.Duration
	// Say receives messages for the operator. Its calls are never concurrent. Default: no messages.
	Say func(text string)
}

// ErrStopped is returned by Run after Stop.
var ErrStopped = errors.New("journal: stopped")

// A Journal reads the systemd journal. Call New, Run and Finish in this order; Stop may be called
// at any time.
type Journal struct {
	o        Options
	sink     Sink
	ctx      context.Context // done after Stop
	stop     context.CancelFunc
	store    *state.Dir // nil if no cursor is stored
	firstRun bool       // no cursor was stored before this run
	parser   parser

	at struct {
		sync.Mutex
		position position // after the last entry that the sink has accepted
		changed  bool     // position has changed since the last commit began
	}
	wake chan struct{} // receives a value when position changes

	reported struct {
		sync.Mutex
		ended       string          // last reported reason why journalctl has ended; "" while journalctl works
		lines       map[string]bool // lines from its standard error that were reported
		storeFailed bool            // the cursor could not be stored, and this was reported
	}
	reporting sync.Mutex // held during calls of Options.Say
	damaged   uint64     // number of lines from journalctl that were not entries

	minWait, maxWait time.Duration // minimum and maximum pause before a restart of journalctl
}

// commitTimeout is the time limit for a call of Sink.Commit.
const commitTimeout = 10 * time.Second

// New returns a Journal. It looks up the program, locks Options.Dir and reads the stored cursor.
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
		return nil, fmt.Errorf("cannot read the journal: cannot run %s: %w; install it (it is part of systemd), or give its path", o.Command[0], withoutProgram(err))
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	o.Command = append([]string{path}, o.Command[1:]...)
	j := &Journal{o: o, sink: sink, wake: make(chan struct{}, 1), minWait: 200 * time.Millisecond, maxWait: 30 * time.Second}
	j.parser.all = o.AllFields
	if err := j.open(); err != nil {
		return nil, err
	}
	j.ctx, j.stop = context.WithCancel(context.Background())
	return j, nil
}

// withoutProgram returns err without the name of the program, for messages that already contain it.
func withoutProgram(err error) error {
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// report formats a message and passes it to Options.Say.
func (j *Journal) report(format string, args ...any) {
	j.reporting.Lock()
	defer j.reporting.Unlock()
	j.o.Say(fmt.Sprintf(format, args...))
}

// Stop makes Run return ErrStopped. If a call of Put is in progress, Run returns after that call.
func (j *Journal) Stop() { j.stop() }

// Run reads the journal until Stop is called. It returns ErrStopped or an error of the sink.
func (j *Journal) Run() error {
	if j.store != nil && j.firstRun {
		// Store the beginning of this run. If the process is killed before its first commit, the
		// next run begins there.
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

// put passes an entry to the sink, and sets the position to the cursor of the entry.
func (j *Journal) put(e Entry, cursor []byte) error {
	if err := j.sink.Put(e); err != nil {
		return err
	}
	if cursor != nil {
		j.at.Lock()
		j.at.position = position{cursor: append(j.at.position.cursor[:0], cursor...)}
		j.at.changed = true
		j.at.Unlock()
		j.wakeCommits()
	}
	return nil
}

// wakeCommits wakes the goroutine that runs commits.
func (j *Journal) wakeCommits() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// position returns a copy of the current position.
func (j *Journal) position() position {
	j.at.Lock()
	defer j.at.Unlock()
	return j.at.position.clone()
}

// commits runs commit until ctx is done, at most once per Options.CommitEvery. If no cursor is
// stored, it returns immediately.
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
		p, changed := j.at.position.clone(), j.at.changed
		j.at.changed = false
		j.at.Unlock()
		if changed && !j.commit(ctx, p) {
			j.at.Lock()
			j.at.changed = true
			j.at.Unlock()
			j.wakeCommits()
		}
		pause := time.NewTimer(j.o.CommitEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// commit calls Sink.Commit and stores p, the current position. It returns false if either of these
// steps fails.
func (j *Journal) commit(ctx context.Context, p position) bool {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if j.sink.Commit(ctx) != nil {
		return false // the sink itself reports the error
	}
	err := j.save(p)
	j.reportStore(err)
	return err == nil
}

// reportStore reports the result of storing the cursor, unless the previous result was the same.
// err is nil after a success.
func (j *Journal) reportStore(err error) {
	j.reported.Lock()
	before := j.reported.storeFailed
	j.reported.storeFailed = err != nil
	j.reported.Unlock()
	switch {
	case err != nil && !before:
		j.report("cannot store the cursor in %s: %s; retrying; if killed now, the next run reads entries again", j.o.Dir, vfs.Cause(err))
	case err == nil && before:
		j.report("the cursor can be stored again in %s", j.o.Dir)
	}
}

// Damaged returns the number of lines from journalctl that were not entries. Call it after Run.
func (j *Journal) Damaged() uint64 { return j.damaged }

// Finish unlocks Options.Dir. Call it after Run. If delivered is true, all entries that were passed
// to the sink are delivered or in a spool, and Finish stores the cursor.
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
