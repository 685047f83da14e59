// Package tail follows files and passes their lines to a sink.
//
//	directories ──► scanner ──► index: generations of each path ──► reader ──► output ──► Sink.Put
//	                              │                                   │
//	             positions ◄── keeper ◄─────────────────────────── commits ◄─────────── Sink.Commit
//
// A generation is one content of a file; a rename, a deletion or a truncation ends it. The scanner
// never
// waits for the sink and opens each generation when it detects it. The reader reads the generations
// in
// order. A file that does not change has no buffer and, above Options.MaxOpen, no descriptor.
//
// A position is stored after the sink has reported that everything before it is delivered. If the
// process
// is killed, the next one continues there: no line is lost, and lines delivered after the last
// store are
// delivered again.
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
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A Line is one record: a line, or several lines combined by Options.Join.
type Line struct {
	Text   []byte // ends in '\n'; valid until Put returns
	Source *Source
	Stream string    // stdout or stderr if a container runtime wrote the line
	Time   time.Time // time recorded by a container runtime, otherwise zero

	// Cut reports that the line has no newline in the file and that none was expected any more.
	Cut bool

	// TooLong is the length of a line above Options.MaxRecord. Text is then empty.
	TooLong int64
}

// A Sink receives lines. One goroutine calls Put; other goroutines may call Commit at the same
// time.
type Sink interface {
	// Put accepts a line. It may block until there is room. After an error the line was not
	// accepted, and Run returns the error.
	Put(Line) error
	// Commit returns nil when every line that was Put before the call is delivered or stored in a
	// spool. After an error it is called again later.
	Commit(context.Context) error
}

// Options select the files to follow and the way to read them.
type Options struct {
	// Patterns are the paths of files. They may contain *, ? and [] as in filepath.Match.
	Patterns []string
	// Dir is the directory in which positions are stored. "" means that they are not stored.
	Dir string
	// FromEnd starts reading at the end of files that exist at the start and have no stored
	// position. Files that appear later are read from their start. Default false.
	FromEnd bool
	// Once ends the Tailer when the files that exist at the start are read. Default false.
	Once bool
	// MaxRecord is the maximum length of a line without its end, in the file and in UTF-8. Default
	// 1 MiB.
	MaxRecord int
	// Charset is the charset of files without a byte order mark. Lines are passed in UTF-8.
	// Default: UTF-8.
	Charset *charset.Charset
	// Join combines lines to records. Default: each line is a record.
	Join *join.Rules
	// JoinWait is the maximum time that a record waits for more lines. Default 1 s.
	JoinWait time.Duration
	// JoinLines is the maximum number of lines of a record. Default 1000.
	JoinLines int
	// PartialWait is how long to wait for the newline of the last line before it is delivered
	// without one. Default: forever.
	PartialWait time.Duration
	// Poll is the interval at which a busy file is examined. For an idle file it grows to ten times
	// this value. Changes that the system reports are detected at once. Default 100 ms.
	Poll time.Duration
	// Rescan is the interval at which new files are searched, in addition to those that the system
	// reports. Default 1 s.
	Rescan time.Duration
	// CommitEvery is the interval at which positions are committed. After 1 MiB they are committed
	// earlier. Default 1 s.
	CommitEvery time.Duration
	// RotateWait is how long to keep reading a file after it is renamed or deleted, counted from its
	// last change. Default 5 s.
	RotateWait time.Duration
	// MaxOpen is the maximum number of open files, not counting files without a path. Default 512,
	// or half of the system's limit if that is less.
	MaxOpen int
	// MaxGenerations is the maximum number of unread generations of a path. Older ones are lost and
	// reported. Default 64.
	MaxGenerations int
	// Lost is called, from any goroutine, for each generation of which bytes could not be read in
	// time. It must not block. Default: no call.
	Lost func(bytes int64)
	// Say receives messages for the operator. Default: no messages.
	Say func(text string)

	now func() time.Time // tests replace it
}

// ErrStopped is returned by Run after Stop.
var ErrStopped = errors.New("tail: stopped")

// A Tailer follows files. Call New, Run and Finish in this order; Stop may be called at any time.
type Tailer struct {
	o       *Options
	index   *index
	scanner scanner
	reader  reader
	keeper  *keeper
}

// New locks Options.Dir and reads the stored positions.
func New(o Options, sink Sink) (*Tailer, error) {
	def(&o.MaxRecord, 1<<20)
	def(&o.Poll, 100*time.Millisecond)
	def(&o.Rescan, time.Second)
	def(&o.CommitEvery, time.Second)
	def(&o.RotateWait, 5*time.Second)
	def(&o.MaxOpen, max(4, min(512, descriptors()/2)))
	def(&o.MaxGenerations, 64)
	o.now = time.Now
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Lost == nil {
		o.Lost = func(int64) {}
	}
	patterns := o.Patterns
	o.Patterns = nil
	for _, p := range patterns {
		abs, err := absolute(p)
		if err != nil {
			return nil, err
		}
		o.Patterns = append(o.Patterns, abs)
	}
	x := &index{
		o: &o, initial: true, firstRun: true, files: files{o: &o}, queue: queue{ready: make(chan struct{}, 1)},
		ids: map[id]*generation{}, paths: map[string]*series{}, reals: map[string]*series{}, skipped: map[string]id{},
	}
	k := &keeper{o: &o, index: x, urgent: make(chan struct{}, 1)}
	out := &output{o: &o, sink: sink, limits: join.Limits{MaxRecord: o.MaxRecord, MaxLines: o.JoinLines, Wait: o.JoinWait}}
	out.limits.Default()
	t := &Tailer{
		o: &o, index: x, keeper: k,
		scanner: scanner{o: &o, index: x},
		reader:  reader{o: &o, index: x, out: out, commits: &commits{o: &o, index: x, keeper: k, sink: sink}},
	}
	if o.Dir == "" {
		return t, nil
	}
	s, entries, firstRun, damaged, err := openStore(o.Dir)
	if err != nil {
		return nil, err
	}
	x.unsavedReady = make(chan struct{}, 1)
	k.store, x.firstRun, x.saved = s, firstRun, entries
	if damaged != nil {
		o.report("%s; renamed to %s.bad; reading the files from their start", damaged, positionsName)
	}
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

// absolute returns the pattern p, made independent of the working directory.
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
// pattern, even if it contains such characters.
func IsPattern(p string) bool {
	if !strings.ContainsAny(p, `*?[\`) {
		return false
	}
	_, err := os.Lstat(p)
	return err != nil
}

// Matches reports whether a pattern matches path.
func (t *Tailer) Matches(path string) bool { return t.o.matches(path) }

// matches reports whether a pattern matches path.
func (o *Options) matches(path string) bool {
	return slices.ContainsFunc(o.Patterns, func(p string) bool {
		ok, _ := filepath.Match(p, path)
		return ok || p == path
	})
}

func (o *Options) report(format string, args ...any) { o.Say(fmt.Sprintf(format, args...)) }

func (o *Options) waiting() string {
	if o.Once {
		return ""
	}
	return " yet; waiting for one"
}

// lose reports and counts n bytes of a generation that can no longer be read.
func (o *Options) lose(s *series, n int64) {
	if n > 0 {
		o.Lost(n)
		o.report("%s: %d bytes of it are lost: they were not read, and no copy of them exists", s.path, n)
	}
}

// Stop makes Run return ErrStopped once Put has returned.
func (t *Tailer) Stop() {
	t.reader.out.stopped.Store(true)
	signal(t.index.queue.ready)
}

// Run follows the files until Stop or, with Options.Once, until they are read. It returns
// ErrStopped or an error of the sink.
func (t *Tailer) Run() error {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWatcher()
	t.scanner.watcher = w
	t.begin()
	var background sync.WaitGroup
	background.Go(func() { t.scanner.watch(ctx) })
	if t.keeper.store != nil {
		background.Go(func() { t.keeper.keep(ctx) })
	}
	err := t.run(ctx)
	if err == ErrStopped && t.keeper.store == nil { // no next run would read the held lines
		t.reader.out.stopped.Store(false)
		for _, s := range t.index.allSeries() {
			if t.reader.release(s, t.o.now(), true) != nil {
				break
			}
		}
	}
	cancel()
	t.reader.commits.running.Wait()
	background.Wait()
	w.close()
	t.keeper.save()
	return err
}

// begin scans once and stores the positions, so that a later process knows where this one began.
func (t *Tailer) begin() {
	t.index.mu.Lock()
	t.index.resume(t.o.now())
	t.index.mu.Unlock()
	t.scanner.look(t.o.now())
	t.keeper.save()
}

func (t *Tailer) run(ctx context.Context) error {
	for {
		next, err := t.reader.deliver(ctx, t.o.now())
		switch {
		case err != nil:
			return err
		case t.reader.out.stopped.Load():
			return ErrStopped
		case t.o.Once && t.index.allRead():
			return t.reader.finishAll()
		}
		wait := time.Until(next)
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.index.queue.ready:
		}
		timer.Stop()
	}
}

// Missed returns the number of paths that could not be read. Call it after Run.
func (t *Tailer) Missed() int { return t.index.missed }

// Finish releases the resources after Run. delivered means that all lines passed to the sink are
// delivered or in a spool; the positions are then stored.
func (t *Tailer) Finish(delivered bool) (err error) {
	for len(t.index.files.open) > 0 {
		t.index.files.closeFile(t.index.files.open[0])
	}
	if t.keeper.store == nil {
		return nil
	}
	if delivered && !t.index.initial { // before the first scan nothing has changed
		if err = t.keeper.store.save(t.index.settleAll()); err != nil {
			err = fmt.Errorf("cannot store positions in %s: %w", t.o.Dir, vfs.Cause(err))
		}
	}
	t.keeper.store.close()
	return err
}
