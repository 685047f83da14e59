// Package tail follows files and passes their lines to a sink.
//
//	directories ──► scanner ──► generations of each path ──► reader ──► Sink.Put
//	                                     │                      │
//	                     positions ◄── keeper ◄────────── Sink.Commit
//
// The scanner never waits for the sink. It opens each generation of a file when it detects it: a
// rename, a deletion and a truncation end a generation. The reader reads them in order. A file that
// does not change has no buffer and, above Options.MaxOpen, no descriptor.
//
// A position is stored once the sink has reported that everything before it is delivered. If the
// process is killed, the next one continues there: no line is lost or skipped, and lines delivered
// after the last store are delivered again.
package tail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
)

// A Line is a record: one line, or those that Options.Join has made one.
type Line struct {
	Text   []byte // with '\n' at its end; valid until Put returns
	Source *Source
	Stream string    // stdout or stderr, if the line has the format of a container runtime
	Time   time.Time // that a container runtime has noted; else zero

	// Cut reports that Text has no end in the file, and none was expected any more.
	Cut bool

	// TooLong is the length of a line above Options.MaxRecord, which has no Text.
	TooLong int64
}

// A Sink receives lines. The Tailer calls Put from one goroutine, and Commit concurrently from
// others.
type Sink interface {
	// Put accepts a line. It waits for room. An error ends the Tailer; the line was not accepted.
	Put(Line) error
	// Commit returns nil once everything that was put before the call is delivered,
	// or safe elsewhere. After an error it is called again later.
	Commit(context.Context) error
}

// Options select the files to follow and the way to read them.
type Options struct {
	// Patterns are the paths of files, with *, ? and [] as filepath.Match has them.
	Patterns []string
	// Dir is where positions are stored; "": nowhere.
	Dir string
	// FromEnd starts reading at the end of files that exist at the start and have no stored
	// position. Files that appear later are read from their start. Default false.
	FromEnd bool
	// Once ends the Tailer when the files that exist at the start are read. Default false.
	Once bool
	// MaxRecord is the longest line, without its end, in the file or in UTF-8. Default 1 MiB.
	MaxRecord int
	// Charset is the charset of files without a byte order mark. Lines are passed in UTF-8.
	// Default: UTF-8.
	Charset *charset.Charset
	// Join joins lines to records. Default: each line is a record.
	Join *join.Rules
	// JoinWait is how long a record waits for more lines. Default 1 s.
	JoinWait time.Duration
	// JoinLines is how many lines a record has at most. Default 1000.
	JoinLines int
	// PartialWait is how long a last line without a newline is waited for. Default: for
	// ever.
	PartialWait time.Duration
	// Poll is how often a busy file is looked at; one that is idle up to ten times more
	// rarely. Where the system reports changes, they are seen at once. Default 100 ms.
	Poll time.Duration
	// Rescan is the interval at which new files are looked for, in addition to those that the
	// system reports. Default 1 s.
	Rescan time.Duration
	// CommitEvery is how often positions are committed, unless 1 MiB is taken before.
	// Default 1 s.
	CommitEvery time.Duration
	// RotateWait is how long a file is followed that was renamed or deleted, counted
	// from its last line. Default 5 s.
	RotateWait time.Duration
	// MaxOpen is the number of files that are open, not counting files without a path. Default 512,
	// or half of the system's limit.
	MaxOpen int
	// MaxGenerations is the number of generations of a path that are kept until they are read.
	// Older ones are lost, and reported. Default 64.
	MaxGenerations int
	// Lost is called for each generation of which bytes could not be read in time, from any
	// goroutine. It must not block. Default: nothing is called.
	Lost func(bytes int64)
	// Say receives messages for the operator. Default: none.
	Say func(text string)
}

// ErrStopped is the error of Run after Stop.
var ErrStopped = errors.New("tail: stopped")

// A Tailer follows files. New, Run and Finish are called in this order, Stop at any time.
type Tailer struct {
	o          Options
	limits     join.Limits
	sink       Sink
	store      *store // nil: none
	fresh      bool   // no positions were there
	now        func() time.Time
	stopped    atomic.Bool
	ready      chan struct{} // has a token: the reader has something to do
	news       chan struct{} // has a token: the keeper has something to store
	urgent     chan struct{} // has a token: the keeper does not wait any longer
	background sync.WaitGroup

	mu           sync.Mutex
	initial      bool    // the first scan is under way
	saved        []entry // of the earlier run
	parked       []entry // files of earlier runs that no pattern names
	number       uint64  // of the last generation
	ids          map[id]*generation
	paths        map[string]*series
	list         []*series          // all of paths
	reals        map[string]*series // series of symbolic links, by the file they lead to
	skipped      map[string]id      // reported paths, and the file found there
	files        []*generation      // that are open
	active       []*series          // for the reader
	reading      *generation        // its reader holds its file
	missed       int
	scans        uint64
	unsaved      []*generation
	settledBytes int64     // bytes committed since the last save
	commits      int       // under way
	failed       []*series // to be committed again

	// Of the scanner.
	nextScan time.Time
	all      []*series // memory of look

	// Of the reader.
	buf         []byte
	decoded     []byte // a line in UTF-8
	ended       []byte // a line that was given its '\n'
	cutting     bool   // put is given a line without its end
	touched     []*series
	uncommitted int64 // bytes
	snapshots   uint64
	nextCommit  time.Time

	trouble bool // of the keeper: it was reported that positions cannot be stored
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
	def(&o.MaxGenerations, 64)
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Lost == nil {
		o.Lost = func(int64) {}
	}
	t := &Tailer{
		o: o, limits: join.Limits{MaxRecord: o.MaxRecord, MaxLines: o.JoinLines, Wait: o.JoinWait}, sink: sink, fresh: true, initial: true,
		ids: map[id]*generation{}, paths: map[string]*series{}, reals: map[string]*series{}, skipped: map[string]id{},
		ready: make(chan struct{}, 1), news: make(chan struct{}, 1), urgent: make(chan struct{}, 1), now: time.Now,
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
		t.report("%s; renamed to %s.bad; reading the files from their start", damaged, positionsName)
	}
	t.saved = entries
	return t, nil
}

// def sets *v to d if it is zero.
func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// CheckPattern returns an error if p is not a valid pattern.
func CheckPattern(p string) error {
	if _, err := filepath.Match(p, ""); err != nil {
		return errors.New("a [ has no ]; write \\[ for a literal [")
	}
	if before, after, found := strings.Cut(p, "**"); found && IsPattern(p) {
		return fmt.Errorf("** is not supported; write a pattern for each depth, such as %s and %s", before+strings.TrimPrefix(after, "/"), before+"*"+after)
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

// IsPattern reports whether p can match several files. The name of an existing file is not a
// pattern, whatever characters it has.
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

func (t *Tailer) report(format string, args ...any) { t.o.Say(fmt.Sprintf(format, args...)) }

// Stop makes Run return ErrStopped once Put has returned.
func (t *Tailer) Stop() {
	t.stopped.Store(true)
	signal(t.ready)
}

// Run follows the files until Stop, or with Options.Once until they are read. Its error is
// ErrStopped, or that of the sink.
func (t *Tailer) Run() error {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWatcher()
	t.begin(w)
	t.background.Go(func() { t.watch(ctx, w) })
	if t.store != nil {
		t.background.Go(func() { t.keep(ctx) })
	}
	err := t.run(ctx)
	if err == ErrStopped && t.store == nil { // no next run continues the held line
		t.stopped.Store(false)
		for _, s := range t.every() {
			if t.release(s, t.now(), true) != nil {
				break
			}
		}
	}
	cancel()
	t.background.Wait()
	w.close()
	t.save()
	return err
}

// begin scans the files and stores their positions, so that the next process knows where this one
// began.
func (t *Tailer) begin(w *watcher) {
	t.mu.Lock()
	t.resume(t.now())
	t.mu.Unlock()
	t.look(t.now(), w)
	t.save()
}

func (t *Tailer) run(ctx context.Context) error {
	for {
		next, err := t.deliver(ctx, t.now())
		switch {
		case err != nil:
			return err
		case t.stopped.Load():
			return ErrStopped
		case t.o.Once && t.allRead():
			return t.finishAll()
		}
		wait := time.Until(next)
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.ready:
		}
		timer.Stop()
	}
}

// every returns all series.
func (t *Tailer) every() []*series {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// allRead reports whether every file was read as far as Options.Once wants it.
func (t *Tailer) allRead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		for _, g := range s.gens {
			if g.hasUnread() && !g.failed && (g.at.off < g.limit || g.state == gone) {
				return false
			}
		}
	}
	return true
}

// finishAll ends all files.
func (t *Tailer) finishAll() error {
	now := t.now()
	for _, s := range t.every() {
		for g := range t.readable(s) {
			t.mu.Lock()
			last, here := g == s.last(), g.state == current
			t.mu.Unlock()
			var err error
			switch {
			case !here:
				err = t.end(s, g, last, now)
			case t.openIn(s, g):
				err = t.takePartial(s, g, now)
			}
			if err != nil {
				return err
			}
		}
		if err := t.release(s, now, true); err != nil {
			return err
		}
	}
	return nil
}

// Missed returns how many paths could not be read, after Run.
func (t *Tailer) Missed() int { return t.missed }

// Finish ends the Tailer after Run. If delivered, which means that all lines passed to the sink are
// delivered or in a spool, the positions are stored.
func (t *Tailer) Finish(delivered bool) (err error) {
	for len(t.files) > 0 {
		t.shut(t.files[0])
	}
	if t.store == nil {
		return nil
	}
	if delivered && !t.initial { // else nothing has changed
		for _, s := range t.list {
			for _, g := range s.gens {
				g.settled = s.spot(g)
			}
			s.gens = slices.DeleteFunc(s.gens, func(g *generation) bool { return g.settled.ended })
		}
		if err = t.store.save(t.entriesLocked()); err != nil {
			err = fmt.Errorf("cannot store positions in %s: %w", t.o.Dir, plain(err))
		}
	}
	t.store.close()
	return err
}
