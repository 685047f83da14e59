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
	// Text is the message and ends in '\n'. It may have several lines, and bytes that are not valid
	// UTF-8. If an entry has several messages, each is a line; without a message, Text is an empty
	// line.
	Text []byte
	// Time is the time at which the journal received the entry.
	Time time.Time
	// Level is the level that corresponds to the priority. It is valid if HasLevel is set.
	Level    slog.Level
	HasLevel bool
	// Attrs are unit, identifier, pid and host, as far as they are known. With Options.AllFields,
	// all other fields except message and priority follow under their names in the journal.
	Attrs []slog.Attr

	// TooLong is the length of a message above Options.MaxRecord, or of its line of JSON. All other
	// fields of the Entry are then zero.
	TooLong int64
}

// A Sink receives entries. One goroutine calls Put; another one may call Commit at the same time.
type Sink interface {
	// Put accepts an entry. It may block until there is room. After an error the entry was not
	// accepted, and Run returns the error.
	Put(Entry) error
	// Commit returns nil when every entry that was Put before the call is delivered or stored in a
	// spool. After an error it is called again later.
	Commit(context.Context) error
}

// Options select the entries to read.
type Options struct {
	// Command is the program, followed by arguments that precede all others. Default: journalctl.
	Command []string
	// Dir is the directory in which the cursor is stored. "" means that it is not stored.
	Dir string
	// FromEnd skips entries older than the first run. Default false. It has no effect once a cursor
	// is stored in Dir.
	FromEnd bool
	// Since, if set, skips older entries. Like FromEnd, it applies to the first run only.
	Since time.Time
	// ThisBoot excludes entries of other boots. Default: false.
	ThisBoot bool
	// Units and Identifiers select the entries of these units and with these identifiers. A unit
	// may contain *, ? and []. Default: all.
	Units       []string
	Identifiers []string
	// Directory is a directory with the files of another journal. Default: the local journal.
	Directory string
	// AllFields adds all fields of an entry to its Attrs. Default: false.
	AllFields bool
	// MaxRecord is the maximum length of a message in bytes. Default: 1 MiB.
	MaxRecord int
	// CommitEvery is the interval at which the cursor is stored. Default: 1 s.
	CommitEvery time.Duration
	// Say receives messages for the operator, one call at a time. Default: no messages.
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
	store    *state.Dir // nil if the cursor is not stored
	firstRun bool       // no earlier run has stored a cursor
	parser   parser

	at struct {
		sync.Mutex
		position position // after the last entry passed to the sink
		changed  bool     // position was changed after the last commit began
	}
	wake chan struct{} // position was changed

	reported struct {
		sync.Mutex
		ended      string          // reported reason for the end of journalctl; "" while it works
		lines      map[string]bool // reported lines of its standard error
		storeFails bool            // reported that the cursor cannot be stored
	}
	reporting sync.Mutex // held during a call of Options.Say
	damaged   uint64

	minWait, maxWait time.Duration // limits of the pause before journalctl is restarted
}

// commitTimeout limits one call of Sink.Commit.
const commitTimeout = 10 * time.Second

// New finds the program, locks Options.Dir and reads the stored cursor.
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
	j := &Journal{o: o, sink: sink, wake: make(chan struct{}, 1), minWait: 200 * time.Millisecond, maxWait: 30 * time.Second}
	j.parser.all = o.AllFields
	if err := j.open(); err != nil {
		return nil, err
	}
	j.ctx, j.stop = context.WithCancel(context.Background())
	return j, nil
}

// plain removes the name of the program from err, because the message contains it already.
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
	if j.store != nil && j.firstRun {
		// If this process is killed before its first commit, the next one starts at the same
		// position.
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

// put passes an entry to the sink and advances the position to cursor.
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

// commits stores the cursor at most once per CommitEvery, until ctx is done.
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
		p, news := j.at.position.clone(), j.at.changed
		j.at.changed = false
		j.at.Unlock()
		if news && !j.commit(ctx, p) {
			j.at.Lock()
			j.at.changed = true
			j.at.Unlock()
			j.wakeCommits()
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

// commit stores p once the sink has committed everything up to it. It reports whether p was stored.
func (j *Journal) commit(ctx context.Context, p position) bool {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if j.sink.Commit(ctx) != nil {
		return false // the sink reports the error
	}
	err := j.save(p)
	j.reportStore(err)
	return err == nil
}

// reportStore reports that the cursor cannot be stored, or can be stored again. Each change is
// reported once.
func (j *Journal) reportStore(err error) {
	j.reported.Lock()
	before := j.reported.storeFails
	j.reported.storeFails = err != nil
	j.reported.Unlock()
	switch {
	case err != nil && !before:
		j.report("cannot store the cursor in %s: %s; retrying; if killed now, the next run reads entries again", j.o.Dir, vfs.Cause(err))
	case err == nil && before:
		j.report("the cursor can be stored again in %s", j.o.Dir)
	}
}

// Damaged returns the number of lines of journalctl that were not entries. Call it after Run.
func (j *Journal) Damaged() uint64 { return j.damaged }

// Finish releases the resources after Run. delivered means that all entries passed to the sink are
// delivered or in a spool; the cursor is then stored.
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
