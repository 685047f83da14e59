// Package tail follows files and passes their lines to a sink.
//
//	directories ──► scanner ──► index: generations of each path ──► reader ──► output ──► Sink.Put
//	                              │                                   │
//	             positions ◄── keeper ◄─────────────────────────── commits ◄─────────── Sink.Commit
//
// A generation is the content of a file from its creation until a rename, a deletion or a
// truncation. The scanner opens each generation when it detects it, and never waits for the sink.
// The reader reads the generations of a path in order. A file that does not change needs no buffer
// and, if more than Options.MaxOpen files are followed, no descriptor.
//
// A position is stored after the sink has reported that all lines before it are delivered. If the
// process is killed, the next process continues at the stored positions. No line is lost, but lines
// delivered after the last store are delivered again.
package tail

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A Tailer follows files. Call New, Run and Finish in this order; Stop may be called at any time.
type Tailer struct {
	o       *Options
	index   *index
	scanner scanner
	reader  reader
	keeper  *keeper
}

// New returns a Tailer. It locks Options.Dir and reads the stored positions.
func New(o Options, sink Sink) (*Tailer, error) {
	setDefault(&o.MaxRecord, 1<<20)
	setDefault(&o.Poll, 100*time.Millisecond)
	setDefault(&o.Rescan, time.Second)
	setDefault(&o.CommitEvery, time.Second)
	setDefault(&o.RotateWait, 5*time.Second)
	setDefault(&o.MaxOpen, max(4, min(512, descriptors()/2)))
	setDefault(&o.MaxGenerations, 64)
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
		o: &o, initial: true, files: files{o: &o}, queue: queue{ready: make(chan struct{}, 1)},
		ids: map[id]*generation{}, paths: map[string]*series{}, reals: map[string]*series{}, skipped: map[string]skip{},
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
	k.store, x.saved = s, entries
	if damaged != nil || !firstRun && o.From == FromEndOnce {
		o.From = FromStart
	}
	if damaged != nil {
		o.report("%s; renamed to %s.bad; reading the files from their start", damaged, positionsName)
	}
	return t, nil
}

// Matches reports whether one of Options.Patterns matches path.
func (t *Tailer) Matches(path string) bool { return t.o.matches(path) }

// Stop makes Run return ErrStopped. If a call of Put is in progress, Run returns after that call.
func (t *Tailer) Stop() {
	t.reader.out.stopped.Store(true)
	signal(t.index.queue.ready)
}

// Run follows the files until Stop is called or, with Options.Once, until they are read. It returns
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
	if err == ErrStopped && t.keeper.store == nil { // pass on the held records, because no later process reads them again
		t.reader.out.stopped.Store(false)
		for _, s := range t.index.allSeries() {
			if t.reader.release(s, t.o.now(), true) != nil {
				break
			}
		}
		t.reader.out.end()
	}
	cancel()
	t.reader.commits.running.Wait()
	background.Wait()
	w.close()
	t.keeper.save()
	return err
}

// begin resumes the stored generations, scans once and stores the positions. The next process needs
// these positions if this one is killed.
func (t *Tailer) begin() {
	t.index.mu.Lock()
	t.index.resume(t.o.now())
	t.index.mu.Unlock()
	t.scanner.look(t.o.now())
	t.keeper.save()
}

// run passes lines to the sink until Stop is called, the sink returns an error or, with
// Options.Once, all files are read.
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

// Finish closes all files and unlocks Options.Dir. Call it after Run. If delivered is true, all
// lines that were passed to the sink are delivered or in a spool, and Finish stores the positions.
func (t *Tailer) Finish(delivered bool) (err error) {
	if t.keeper.store != nil && delivered && !t.index.initial { // before the first scan there are no new positions
		if err = t.keeper.store.save(t.index.settleAll()); err != nil {
			err = fmt.Errorf("cannot store positions in %s: %w", t.o.Dir, vfs.Cause(err))
		}
	}
	for len(t.index.files.open) > 0 {
		t.index.files.closeFile(t.index.files.open[0])
	}
	if t.keeper.store != nil {
		t.keeper.store.close()
	}
	return err
}
