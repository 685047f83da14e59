// Package tail follows files and hands their lines to a sink.
//
// A [Tailer] is one goroutine that looks at files from time to time: there is nothing to
// set up in the system, and it works on every file system. A file that does not change
// holds no buffer and, beyond Options.MaxOpen, no descriptor.
//
// Positions are stored once the sink has said that everything before them is delivered.
// If the process is killed, the next one goes on there: no line is lost or skipped, and
// those that were delivered after the last store come again.
package tail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

// A Line is a record: one line, or those that Options.Join has made one.
type Line struct {
	Text   []byte // with '\n' at its end; valid until Put returns
	Source *Source
	Stream string    // stdout or stderr, if a container runtime has said so
	Time   time.Time // that a container runtime has noted; else zero

	// TooLong is the length of a line above Options.MaxRecord, which has no Text.
	TooLong int64
}

// A Sink takes lines. The Tailer calls Put from one goroutine, and Commit beside it from
// another.
type Sink interface {
	// Put takes a line. It waits for room. An error ends the Tailer; the line counts as
	// not taken.
	Put(Line) error
	// Commit returns nil once everything that was put before the call is delivered,
	// or safe elsewhere. After an error it is called again later.
	Commit(context.Context) error
}

// Options say what to follow, and how.
type Options struct {
	// Patterns are the paths of files, with *, ? and [] as filepath.Match has them.
	Patterns []string
	// Dir is where positions are stored; "": nowhere.
	Dir string
	// FromEnd leaves out what is in the files when they are followed for the first
	// time. It is for those that are there at the start; others are read from their
	// start.
	FromEnd bool
	// Once ends when what is there at the start has been read.
	Once bool
	// MaxRecord is the longest line, without its end. Default 1 MiB.
	MaxRecord int
	// Join says which lines are one record. Default: each is one.
	Join *join.Rules
	// JoinWait is how long a record waits for more lines. Default 1 s.
	JoinWait time.Duration
	// JoinLines is how many lines a record has at most. Default 1000.
	JoinLines int
	// PartialWait is how long a last line without a newline is waited for. Default: for
	// ever.
	PartialWait time.Duration
	// Poll is how often a busy file is looked at; one that is idle up to ten times more
	// rarely. Default 100 ms.
	Poll time.Duration
	// Rescan is how often new files are looked for. Default 1 s.
	Rescan time.Duration
	// CommitEvery is how often positions are stored. Default 1 s.
	CommitEvery time.Duration
	// RotateWait is how long a file is followed that was renamed or deleted, counted
	// from its last line. Default 5 s.
	RotateWait time.Duration
	// MaxOpen is how many files are open at most. Default 512, or half of what the
	// system allows.
	MaxOpen int
	// Say tells of what an operator should know. Default: nothing is told.
	Say func(text string)
}

// ErrStopped is the error of Run after Stop.
var ErrStopped = errors.New("tail: stopped")

// A Tailer follows files. New, Run and Finish are called one after the other; Stop at any
// time.
type Tailer struct {
	o      Options
	limits join.Limits
	sink   Sink

	store   *store // nil: none
	fresh   bool   // no positions were there
	initial bool   // the first scan is under way
	saved   map[id]entry
	parked  []entry   // files of earlier runs that no pattern names
	left    []*follow // files that have ended, and whose end is not committed

	files   []*follow // all, in the order in which they are looked at
	ids     map[id]*follow
	paths   map[string]*follow // by the path that leads to them
	skipped map[string]id      // paths that were told of, and what was there then
	holding map[*follow]bool   // files that hold lines
	open    int

	buf   []byte
	ended []byte // a line that was given its '\n'

	nextScan   time.Time
	scans      uint64
	dirty      bool // positions have changed since the last commit began
	news       bool // the set of files has changed since it was stored
	stopped    atomic.Bool
	wake       chan struct{}
	nextCommit time.Time
	committing bool
	committed  chan outcome
	trouble    bool // it was said that positions cannot be stored
	missed     int
	now        func() time.Time
}

const (
	firstBuf  = 128 << 10
	turnBytes = 4 << 20 // that one file may have before it is another one's turn
)

// New locks Options.Dir and reads the positions in it.
func New(o Options, sink Sink) (*Tailer, error) {
	def(&o.MaxRecord, 1<<20)
	def(&o.Poll, 100*time.Millisecond)
	def(&o.Rescan, time.Second)
	def(&o.CommitEvery, time.Second)
	def(&o.RotateWait, 5*time.Second)
	def(&o.MaxOpen, max(4, min(512, descriptors()/2)))
	if o.Say == nil {
		o.Say = func(string) {}
	}
	t := &Tailer{
		o: o, limits: join.Limits{MaxRecord: o.MaxRecord, MaxLines: o.JoinLines, Wait: o.JoinWait}, sink: sink, fresh: true, initial: true, saved: map[id]entry{},
		ids: map[id]*follow{}, paths: map[string]*follow{}, skipped: map[string]id{}, holding: map[*follow]bool{},
		wake: make(chan struct{}, 1), committed: make(chan outcome, 1), now: time.Now,
	}
	t.limits.Default()
	t.o.Patterns = nil
	for _, p := range o.Patterns {
		abs, err := absolute(p)
		if err != nil {
			return nil, err
		}
		t.o.Patterns = append(t.o.Patterns, abs)
	}
	if o.Dir == "" {
		return t, nil
	}
	s, entries, fresh, damaged, err := openStore(o.Dir)
	if err != nil {
		return nil, err
	}
	t.store, t.fresh = s, fresh
	if damaged != nil {
		t.say("%s; it is renamed to %s.bad, and the files are read from their start", damaged, positionsName)
	}
	for _, e := range entries {
		t.saved[e.id] = e
	}
	return t, nil
}

// def sets what is not set.
func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// CheckPattern returns what is wrong with a pattern.
func CheckPattern(p string) error {
	if _, err := filepath.Match(p, ""); err != nil {
		return errors.New("a [ has no ]; write \\[ for the character")
	}
	if before, after, found := strings.Cut(p, "**"); found && IsPattern(p) {
		return fmt.Errorf("** is not known; write a pattern for each depth, such as %s and %s", before+strings.TrimPrefix(after, "/"), before+"*"+after)
	}
	return nil
}

// absolute makes a pattern independent of the working directory.
func absolute(p string) (string, error) {
	if err := CheckPattern(p); err != nil {
		return "", fmt.Errorf("%s: %w", p, err)
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p), nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if IsPattern(p) && filepath.Separator == '/' {
		dir = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
	}
	return filepath.Join(dir, p), nil
}

// IsPattern reports whether p may stand for several files. The name of a file that is
// there is none, whatever it holds.
func IsPattern(p string) bool {
	if !strings.ContainsAny(p, `*?[\`) {
		return false
	}
	_, err := os.Lstat(p)
	return err != nil
}

// Matches reports whether path is one that the patterns name.
func (t *Tailer) Matches(path string) bool {
	return slices.ContainsFunc(t.o.Patterns, func(p string) bool {
		ok, _ := filepath.Match(p, path)
		return ok || p == path
	})
}

func (t *Tailer) say(format string, args ...any) { t.o.Say(fmt.Sprintf(format, args...)) }

// Stop makes Run return ErrStopped once Put has returned.
func (t *Tailer) Stop() {
	t.stopped.Store(true)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run follows the files until Stop, or with Options.Once until all is read. Its error is
// ErrStopped, or what the sink returned.
func (t *Tailer) Run() error {
	ctx, cancel := context.WithCancel(context.Background())
	err := t.run(ctx)
	if err == ErrStopped && t.store == nil { // no next run reads what is held
		t.stopped.Store(false)
		for f := range t.holding {
			if t.release(f, t.now(), true) != nil {
				break
			}
		}
	}
	cancel()
	if t.committing {
		t.settle(<-t.committed)
	}
	return err
}

func (t *Tailer) run(ctx context.Context) error {
	for {
		next, err := t.pass(ctx, t.now())
		if err != nil {
			return err
		}
		if t.o.Once && t.allRead() {
			return t.finishAll()
		}
		wait := time.Until(next)
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case o := <-t.committed:
			t.settle(o)
		case <-t.wake:
		}
		timer.Stop()
		if t.stopped.Load() {
			return ErrStopped
		}
	}
}

// allRead reports whether every file was read as far as Options.Once wants it.
func (t *Tailer) allRead() bool {
	return !slices.ContainsFunc(t.files, func(f *follow) bool { return f.at.off < f.limit && !f.stuck && !f.skip && !f.done })
}

// finishAll ends all files.
func (t *Tailer) finishAll() error {
	now := t.now()
	for _, f := range t.files {
		if err := t.end(f, now); err != nil {
			return err
		}
	}
	return nil
}

// pass looks at everything that is due, and returns when something is due again.
func (t *Tailer) pass(ctx context.Context, now time.Time) (next time.Time, err error) {
	if !now.Before(t.nextScan) {
		t.scan(now)
		t.nextScan = now.Add(t.o.Rescan)
	}
	if t.initial {
		t.initial = false
		if t.store != nil {
			// Whatever happens from here on, the next process knows where this one began.
			if err := t.store.save(t.entries((*follow).stored)); err != nil {
				t.tell(err)
			} else {
				t.news = false
			}
		}
	}
	next = t.nextScan
	known := slices.Clone(t.files)
	for _, f := range known {
		if f.done {
			continue
		}
		if a := f.after; a != nil && !a.failed && (a.behind() || a.copied && !a.done) {
			next = soonest(next, a.due)
			continue
		}
		f.after = nil
		if now.Before(f.due) {
			next = soonest(next, f.due)
			continue
		}
		if err := t.look(f, now); err != nil {
			return next, err
		}
		next = soonest(next, f.due)
		t.commit(ctx, t.now())
		if t.stopped.Load() {
			return next, ErrStopped
		}
	}
	if len(t.files) > len(known) { // those that have come are looked at at once
		next = now
	}
	for f := range t.holding {
		if err := t.release(f, now, false); err != nil {
			return next, err
		}
	}
	if len(t.holding) > 0 {
		next = soonest(next, now.Add(t.limits.Wait/4))
	}
	t.files = slices.DeleteFunc(t.files, func(f *follow) bool {
		if f.done && t.store != nil {
			t.left = append(t.left, f)
		}
		return f.done
	})
	t.commit(ctx, t.now())
	if (t.dirty || t.news) && t.store != nil && !t.committing {
		next = soonest(next, t.nextCommit)
	}
	return next, nil
}

func soonest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// entries returns what is to be stored, with the position that at returns.
func (t *Tailer) entries(at func(*follow) mark) []entry {
	entries := slices.Clone(t.parked)
	add := func(files []*follow, done bool) {
		for _, f := range files {
			if m := at(f); m.off >= 0 && f.done == done && !f.skip {
				entries = append(entries, f.entry(m))
			}
		}
	}
	add(t.left, true)
	add(t.files, true) // before the others: a file that came later may have the id of one
	add(t.files, false)
	return entries
}

// commit stores positions, at most once in CommitEvery, while reading goes on.
func (t *Tailer) commit(ctx context.Context, now time.Time) {
	select {
	case o := <-t.committed:
		t.settle(o)
	default:
	}
	if t.store == nil || t.committing || !t.news && !t.dirty {
		return
	}
	if urgent := t.news && !t.trouble; !urgent && now.Before(t.nextCommit) {
		return
	}
	var o outcome
	var before []entry
	if t.news {
		// Files that have come, or were renamed, are found again even if nothing is
		// delivered until the process ends.
		before = t.entries((*follow).stored)
	}
	o.ended = slices.Clone(t.left)
	for _, f := range t.files {
		if f.done {
			o.ended = append(o.ended, f)
		} else {
			o.safe = append(o.safe, at{f, f.safe()})
		}
	}
	after := t.entries((*follow).safe)
	t.dirty, t.news, t.committing = false, false, true
	t.nextCommit = now.Add(t.o.CommitEvery)
	go func() {
		if before != nil {
			o.failed = t.store.save(before)
		}
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		if t.sink.Commit(ctx) == nil {
			o.failed = t.store.save(after)
			o.delivered = o.failed == nil
		}
		t.committed <- o
	}()
}

// commitTimeout is how long a sink may take to commit. The files that have come in the
// meantime are not stored before it is over.
const commitTimeout = 10 * time.Second

// An outcome is that of a commit.
type outcome struct {
	ended     []*follow // whose end is committed
	safe      []at
	delivered bool
	failed    error // of the store; the sink tells of its errors itself
}

type at struct {
	f *follow
	m mark
}

// settle takes the outcome of a commit.
func (t *Tailer) settle(o outcome) {
	t.committing = false
	if o.delivered {
		for _, s := range o.safe {
			s.f.committed = s.m
		}
		t.left = slices.DeleteFunc(t.left, func(f *follow) bool { return slices.Contains(o.ended, f) })
	} else {
		t.dirty = true
	}
	t.tell(o.failed)
}

// tell tells of positions that cannot be stored, once, and that they can be again.
func (t *Tailer) tell(err error) {
	if err == nil {
		if t.trouble {
			t.say("positions can be stored again in %s", t.o.Dir)
		}
		t.trouble = false
		return
	}
	t.news = true
	if !t.trouble {
		t.trouble = true
		t.say("cannot store positions in %s: %s; trying again; a program that is killed now reads lines again", t.o.Dir, plain(err))
	}
}

// Missed returns how many paths could not be read, after Run.
func (t *Tailer) Missed() int { return t.missed }

// Finish ends the Tailer after Run. If all that was put is delivered or safe, the
// positions are stored.
func (t *Tailer) Finish(delivered bool) (err error) {
	for _, f := range t.files {
		t.shut(f)
	}
	if t.store == nil {
		return nil
	}
	if delivered && !t.initial { // else nothing has changed
		t.left = nil
		if err = t.store.save(t.entries((*follow).safe)); err != nil {
			err = fmt.Errorf("cannot store positions in %s: %w", t.o.Dir, plain(err))
		}
	}
	t.store.close()
	return err
}

// plain is err without a path, which the message has already.
func plain(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	if le := (*os.LinkError)(nil); errors.As(err, &le) {
		return le.Err
	}
	return err
}
