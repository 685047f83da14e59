package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/forebay/internal/lines"
	"github.com/forebay-log/forebay/cmd/forebay/internal/readahead"
	"github.com/forebay-log/forebay/cmd/forebay/internal/units"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// A pipeline is one run of `forebay pipe`.
//
// Goroutines: the reader takes lines from the input and puts them into every
// output; each output's slab.Writer has a drain; one writes the live line, and one
// the summary; one for each file opens it anew when asked to; the one that called
// run waits for signals, and ends the others.
type pipeline struct {
	c    *pipeConfig
	src  source
	in   *input // standard input; nil if the source is another one
	outs []*output
	con  *console
	term *os.File // for the live line; nil: none

	signals  chan os.Signal
	watchers *opsServer // nil: none

	fallbacks map[path]*fallback // by what --fallback says
	lastly    []string           // what shutdown has to say, besides the summary
	early     sync.WaitGroup     // outputs that unstick ends
	saidDrops bool               // that --when-full drops although there is a spool

	parser  record.Parser     // owned by the reader
	ahead   *readahead.File   // owned by the reader: keeps the input for the next run; nil: none
	earlier []*readahead.File // owned by the reader: what earlier runs have read

	// What the reader has done.
	records  atomic.Uint64 // lines read, those below included
	bytes    atomic.Uint64
	oversize atomic.Uint64
	filtered atomic.Uint64 // below --level, if that is one for all
	unparsed atomic.Uint64
	broken   atomic.Uint64 // could not be encoded
}

// An output is a destination behind its slabs.
type output struct {
	c        *outputConfig
	to       string // as it is shown: without secrets
	dir      string // name of its directories in --spool and --crash-safe
	t        *target
	d        *deliver.Output
	fallback *fallback // nil: none

	engine  bool        // options say how it delivers, or it is across a network
	failing atomic.Bool // it was said why
	full    atomic.Bool // it was said to be full, and to drop

	below atomic.Uint64 // lines below its level, where that is not one for all

	once    sync.Once    // for shutdown
	early   bool         // shutdown was begun while the reader was still at it
	report  batch.Report // of Shutdown
	err     error
	refused uint64 // records that came when the time was up; settle puts them into report
	kept    uint64 // as many of them are kept with the input that was read
}

// slabs returns the state of the memory.
func (out *output) slabs() slab.Stats { return out.d.Stats().Slab }

// runPipe opens everything, runs, and reports.
func runPipe(c *pipeConfig, stdin, stderr *os.File) error {
	if err := c.settle(); err != nil {
		return err
	}
	p := &pipeline{c: c, con: &console{w: stderr, name: c.name}, signals: make(chan os.Signal, 4), fallbacks: map[path]*fallback{}, parser: c.parser()}
	// Opening can take long. A signal to reopen files must not end the program
	// meanwhile, as those that end it should.
	notifyReopen(p.signals)
	defer signal.Stop(p.signals)
	if err := p.open(stdin); err != nil {
		return configError(err)
	}
	if err := p.openSource(stdin); err != nil {
		p.abandon()
		return err
	}
	defer p.src.close()
	watchers, err := serveOps(&c.ops, p)
	if err != nil {
		p.abandon()
		return configError(err)
	}
	defer watchers.close()
	p.watchers = watchers
	if isTerminal(stderr) && !c.quiet && os.Getenv("TERM") != "dumb" && !p.onTerminal() {
		p.term = stderr
	}
	if p.in != nil && isTerminal(stdin) && !c.quiet {
		p.con.say("reading from the terminal; Ctrl-D ends the input, Ctrl-C the program")
	}
	return p.run()
}

// open opens the destinations. A failure closes those that are open already.
func (p *pipeline) open(stdin *os.File) (err error) {
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	for to, c := range p.c.fallbacks {
		if p.fallbacks[to], err = openFallback(p.c, c); err != nil {
			delete(p.fallbacks, to)
			return err
		}
	}
	seen := map[string]bool{}
	for _, c := range p.c.outs {
		if seen[c.name] {
			return fmt.Errorf("--to %s is given twice: every line would be there twice", redact(c.name))
		}
		seen[c.name] = true
		if p.c.dryRun {
			if err := mayDryRun(p.c.dests, c); err != nil {
				return err
			}
		}
		c.onEvent = func(e batch.Event) { p.con.say("%s: %s", redact(c.name), plain(e.Err)) }
		t, err := openAt(p.c.dests, "--to", c)
		if err != nil {
			return err
		}
		out := &output{c: c, to: redact(c.name), dir: safeName(c.name), t: t, fallback: p.fallbacks[c.Fallback]}
		if err := p.distinct(out, stdin); err != nil {
			t.close()
			return err
		}
		if err := p.connect(out); err != nil {
			return err
		}
		p.outs = append(p.outs, out)
	}
	p.tellOfOrphans()
	return nil
}

// distinct returns an error if out writes to a file that is the input, which would
// never end, or that another output writes to.
func (p *pipeline) distinct(out *output, stdin *os.File) error {
	if in, err := stdin.Stat(); err == nil && sameFile(in, out.t.file) {
		return fmt.Errorf("--to %s: it is the file that standard input reads: what is written there would be read again, without end", out.to)
	}
	for _, f := range p.fallbacks {
		if sameFile(f.t.file, out.t.file) {
			return fmt.Errorf("--to %s: it is the same file as --fallback %s", out.to, f.to)
		}
	}
	for _, other := range p.outs {
		if sameFile(other.t.file, out.t.file) {
			return fmt.Errorf("--to %s: it is the same file as --to %s: every line would be there twice", out.to, other.to)
		}
	}
	return nil
}

// connect puts an Output in front of the target of out.
func (p *pipeline) connect(out *output) (err error) {
	o := out.c.slabOptions(out.dir, out.t, int(p.c.maxRecord.value))
	o.Name, o.OnError = out.to, func(e batch.Event) { p.event(out, e, memory(o)) }
	out.engine = out.c.delivers() || out.t.engine
	out.d, err = p.newOutput(out, o)
	return err
}

// abandon closes outputs that nothing was written to.
func (p *pipeline) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for _, out := range p.outs {
		out.d.Shutdown(ctx)
	}
	for _, f := range p.fallbacks {
		f.closeDest(ctx)
	}
}

// onTerminal reports whether an output is a terminal.
func (p *pipeline) onTerminal() bool {
	for _, out := range p.outs {
		if out.t.tty {
			return true
		}
	}
	return false
}

// run reads until the input ends or a signal says so, then waits until
// everything is delivered or the time is up.
func (p *pipeline) run() error {
	start := time.Now()
	signals := p.signals
	notify(signals)
	end := newEnding(p.src, time.Duration(p.c.drainTimeout))
	defer end.release()
	end.onBegin = func(deadline time.Time) {
		p.watchers.end()
		p.drain(deadline)
	}

	manager := newSystemd()
	manager.tell("READY=1")
	alive, calm := manager.watchdog()
	defer calm()

	quit := make(chan struct{})
	var beside sync.WaitGroup
	if p.term != nil {
		beside.Go(func() { p.show(quit) })
	}
	allGone := p.watchGone(&beside, quit)

	read := make(chan error, 1)
	go func() { read <- p.src.read() }()
	var readErr error
	readDone := false
	for stuck := false; !readDone && !stuck; {
		select {
		case readErr = <-read:
			readDone = true
		case s := <-signals:
			p.signal(s, end)
		case <-allGone:
			allGone = nil
			end.begin()
		case <-end.late:
			p.unstick(end)
		case <-alive:
			manager.tell("WATCHDOG=1")
		case <-end.ctx.Done():
			stuck = true // in a write that waits for room: Shutdown ends it
		}
	}
	end.begin()
	manager.tell("STOPPING=1")

	down := make(chan struct{})
	go func() { defer close(down); p.shutdown(end.ctx) }()
	for down != nil {
		select {
		case <-down:
			down = nil
		case <-alive:
			manager.tell("WATCHDOG=1")
		case s := <-signals:
			p.signal(s, end)
		}
	}
	if !readDone {
		readErr = <-read
	}
	for _, out := range p.outs {
		out.settle()
	}
	close(quit)
	p.finishSource()
	took := time.Since(start)
	text, err := p.conclude(took, readErr, context.Cause(end.ctx))
	said := make(chan struct{})
	go func() {
		defer close(said)
		beside.Wait()
		p.con.clear()
		for _, line := range text {
			p.con.say("%s", line)
		}
		if p.c.ops.summary.value == summaryJSON {
			p.con.print(p.summaryJSON(took, err))
		}
	}()
	var enough <-chan time.Time
	if context.Cause(end.ctx) == errForced {
		enough = time.After(lastWord)
	}
	for {
		select {
		case <-said:
			return err
		case <-enough:
			return err
		case s := <-signals:
			if !isReopen(s) && enough == nil {
				enough = time.After(lastWord)
			}
		}
	}
}

// lastWord is how long the summary waits for a standard error that takes nothing,
// once a signal has said not to wait.
const lastWord = time.Second

// drain tells the engines that the end has begun: the reader may be waiting for
// room that only a spool can make.
func (p *pipeline) drain(deadline time.Time) {
	for _, out := range p.outs {
		out.d.Drain(deadline)
	}
}

// unstick ends the outputs that the reader waits for, a little before the time is
// up: what it still holds can then go to the others.
func (p *pipeline) unstick(end *ending) {
	end.late = time.After(max(end.reserve()/10, time.Millisecond)) // the reader may meet another one
	if len(p.outs) == 1 {
		return
	}
	for _, out := range p.outs {
		if out.early || out.slabs().Waiting == 0 {
			continue
		}
		out.early = true
		now, cancel := context.WithDeadlineCause(end.ctx, time.Now(), errDeadline)
		p.early.Go(func() {
			defer cancel()
			out.shutdown(now)
		})
	}
}

// shutdown delivers what the outputs hold, all at the same time, then closes
// what they share.
func (p *pipeline) shutdown(ctx context.Context) {
	var wg sync.WaitGroup
	for _, out := range p.outs {
		wg.Go(func() { out.shutdown(ctx) })
	}
	wg.Wait()
	p.early.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closetime.Disk)
	defer cancel()
	for _, f := range p.fallbacks {
		if err := f.closeDest(ctx); err != nil {
			p.lastly = append(p.lastly, fmt.Sprintf("--fallback %s: %s", f.to, plain(err)))
		}
	}
}

// shutdown delivers what the output holds, until end; once.
func (out *output) shutdown(end context.Context) {
	out.once.Do(func() { out.report, out.err = out.d.Shutdown(end) })
}

// settle puts what the reader still held when the output was closed into the
// account: it had been read, and nobody else will deliver it, unless it is kept for the
// next run. The output must be shut down and the reader done.
func (out *output) settle() {
	out.refused = out.slabs().Refused - out.kept
	out.report.Accepted += out.refused + out.kept
	out.report.Dropped[batch.Shutdown] += out.refused
	out.report.Pending.Slab += out.kept
}

// signal acts on a signal: files are opened anew, or the end comes nearer.
func (p *pipeline) signal(s os.Signal, end *ending) {
	if isReopen(s) {
		p.reopen()
		return
	}
	end.signal(s)
}

// reopen opens all files anew, each on a goroutine of its own: one that waits for a
// write that hangs must hold up neither the others nor the end.
func (p *pipeline) reopen() {
	targets := make([]*target, 0, len(p.outs)+len(p.fallbacks))
	for _, out := range p.outs {
		targets = append(targets, out.t)
	}
	for _, f := range p.fallbacks {
		targets = append(targets, f.t)
	}
	for _, t := range targets {
		if t.reopen != nil && t.asked.Add(1) == 1 {
			go p.reopenOne(t)
		}
	}
}

// reopenOne opens a file anew until nobody has asked since it began to.
func (p *pipeline) reopenOne(t *target) {
	for {
		n := t.asked.Load()
		if err := t.reopen(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: this is the end
			p.con.say("%s", plain(err))
		}
		if t.asked.CompareAndSwap(n, 0) {
			return
		}
	}
}

// watchGone returns a channel that is closed when every output has lost its
// reader.
func (p *pipeline) watchGone(wg *sync.WaitGroup, quit <-chan struct{}) <-chan struct{} {
	for _, out := range p.outs {
		if out.t.gone == nil {
			return nil
		}
	}
	all := make(chan struct{})
	wg.Go(func() {
		for _, out := range p.outs {
			select {
			case <-out.t.gone:
			case <-quit:
				return
			}
		}
		close(all)
	})
	return all
}

// read takes lines from what earlier runs have read, then from the input until it ends.
func (p *pipeline) read() error {
	for _, f := range p.earlier {
		err := p.readFrom(f, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if p.ahead == nil {
		return p.readFrom(p.in, nil)
	}
	defer p.ahead.Close()
	return p.readFrom(p.ahead, p.ahead)
}

// readFrom takes lines from in until it ends. kept is the same, if it keeps what the
// outputs have not accepted.
func (p *pipeline) readFrom(in io.Reader, kept *readahead.File) error {
	src := lines.New(in, int(p.c.maxRecord.value))
	take := p.newIntake(kept)
	var records, before int64
	publish := func() { // for each line, it would take longer than to find its end
		p.records.Add(uint64(records))
		p.bytes.Add(uint64(src.Offset() - before))
		p.unparsed.Store(p.parser.Unparsed)
		records, before = 0, src.Offset()
	}
	src.BeforeRead = publish
	defer publish()
	for {
		line, err := src.Next()
		at := src.Offset()
		if err != nil {
			switch {
			case lines.IsTooLong(err):
				records++
				take.tooLong(at)
				continue
			case kept != nil:
				kept.Settle(at, false) // lines below --level, for instance
			}
			if err == io.EOF || errors.Is(err, errStopped) {
				return nil
			}
			return fmt.Errorf("cannot read standard input: %w", err)
		}
		records++
		take.line(line, at, time.Time{}, nil)
	}
}

// An intake puts lines into the outputs. It belongs to the reader.
type intake struct {
	p      *pipeline
	outs   []feed
	forms  []*form
	common *level // of all outputs; nil: each has its own
	marks  []mark // of the outputs

	parse   bool // lines are looked into
	engines bool // an output has to know when lines came
	ev      record.Event
	ended   []byte // a line that was given its end
}

// newIntake returns an intake for lines of kept, which may be nil.
func (p *pipeline) newIntake(kept *readahead.File) *intake {
	in := &intake{p: p, common: p.commonLevel(), marks: p.marks(kept)}
	in.outs, in.forms = p.feeds()
	for i := range in.outs {
		out := &in.outs[i]
		in.parse = in.parse || out.c.Level.set || out.form != nil || out.t.encode != nil || out.t.header
		in.engines = in.engines || out.engine
	}
	return in
}

// tooLong counts a line above --max-record, which ends at offset at.
func (in *intake) tooLong(at int64) {
	in.p.oversize.Add(1)
	for i, out := range in.p.outs {
		if in.marks[i].wants(at) {
			out.noteOversize(in.marks[i], out.d.RefuseOversize())
		}
	}
}

// line takes a line that ends at offset at. noted is when it was written, for a line that
// does not say so itself, and more what is known of it besides. It reports whether the
// outputs still take lines.
func (in *intake) line(line []byte, at int64, noted time.Time, more []slog.Attr) (open bool) {
	p, ev := in.p, &in.ev
	var meta batch.Meta
	var now int64
	if in.parse {
		p.parser.Parse(line, ev)
		if in.common != nil && !in.common.admits(ev) {
			p.filtered.Add(1)
			return true
		}
		ev.More = more
		if p.c.arrival {
			ev.Time = time.Now()
		} else if ev.Time.IsZero() {
			ev.Time = noted
		}
		meta = record.Meta(ev)
		for _, f := range in.forms {
			f.ready = false
		}
	}
	if in.engines {
		// --retry-age counts from here, not from the time in a line, unless the
		// destination shows that time.
		now = time.Now().UnixNano()
	}
	open = true
	for i := range in.outs {
		out := &in.outs[i]
		if !in.marks[i].wants(at) {
			continue
		}
		if in.common == nil && !out.c.Level.admits(ev) {
			out.below.Add(1)
			continue
		}
		rec, m, err := line, meta, error(nil)
		switch {
		case out.t.encode != nil:
			rec, m, err = out.t.encode(nil, ev)
		case out.form != nil:
			rec, err = out.form.encode(ev)
		case out.keeps && line[len(line)-1] != '\n':
			// What the next run reads comes behind it.
			in.ended = append(append(in.ended[:0], line...), '\n')
			rec = in.ended
		}
		if err != nil {
			p.broken.Add(1)
			continue
		}
		if out.t.encode == nil && out.engine && (!out.t.header || m.Time == 0) {
			m.Time = now
		}
		err = out.d.WriteRecord(rec, m) // what is dropped is counted there
		open = open && !errors.Is(err, batch.ErrClosed)
		out.note(in.marks[i], at, err)
	}
	return open
}

// A feed is an output, as the reader sees it.
type feed struct {
	*output
	form  *form // nil: lines as they came, or a form of its own
	keeps bool  // lines may be left for the next run
}

// A form is one way to write lines. Outputs that want the same share what is written.
type form struct {
	enc   *record.Encoder
	ready bool // rec and err are those of the current line
	rec   []byte
	err   error
}

func (f *form) encode(ev *record.Event) ([]byte, error) {
	if !f.ready {
		f.rec, f.err = f.enc.Encode(ev)
		f.ready = true
	}
	return f.rec, f.err
}

// feeds returns the outputs for a reader, and the forms that they share.
func (p *pipeline) feeds() (outs []feed, forms []*form) {
	by := map[record.Encoding]*form{}
	for _, out := range p.outs {
		in := feed{output: out, keeps: out.c.keepsLines()}
		if as := out.c.encoding(); as != record.AsRaw && out.t.encode == nil {
			if by[as] == nil {
				by[as] = &form{enc: record.NewEncoder(as)}
				forms = append(forms, by[as])
			}
			in.form = by[as]
		}
		outs = append(outs, in)
	}
	return outs, forms
}

// commonLevel returns the level of all outputs, nil if they have several.
func (p *pipeline) commonLevel() *level {
	l := new(level)
	for i, out := range p.outs {
		if i == 0 {
			l = &out.c.Level
		} else if out.c.Level != *l {
			return nil
		}
	}
	return l
}

// show writes the live line until quit.
func (p *pipeline) show(quit <-chan struct{}) {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	before, at := p.progress(), time.Now()
	for {
		select {
		case <-quit:
			return
		case now := <-tick.C:
			cur := p.progress()
			p.con.show(liveLine(before, cur, now.Sub(at), liveWidth(p.term)))
			before, at = cur, now
		}
	}
}

func (p *pipeline) progress() progress {
	now := progress{records: p.records.Load(), bytes: p.bytes.Load(), dropped: p.oversize.Load() + p.broken.Load()}
	for _, out := range p.outs {
		st := out.d.Stats()
		s := &st.Slab
		now.dropped += s.Dropped.Total()
		now.waiting = now.waiting || s.Waiting > 0
		if s.SlabsInUse >= now.inUse {
			now.inUse, now.slabs = s.SlabsInUse, s.SlabCount
		}
		if st.Deliver.LastError != "" {
			now.failing = out.to
		}
	}
	return now
}

// event tells of what happens to an output with that much memory, as it happens.
func (p *pipeline) event(out *output, e batch.Event, memory string) {
	switch e.Op {
	case "send", "write":
		if errors.Is(e.Err, context.Canceled) {
			return // the time was up, as the summary says
		}
		p.con.say("%s: %s; trying again, up to %s of lines wait", e.Output, plain(e.Err), memory)
	case "gone":
		p.con.say("%s: %s; this output ends here", e.Output, plain(e.Err))
	case "poison":
		if p.c.dryRun {
			p.con.say("%s: %s; it would be refused", e.Output, plain(e.Err))
		} else {
			p.con.say("%s: refuses records for good: %s; dropping them", e.Output, plain(e.Err))
		}
	case "recovered":
		p.con.say("%s: works again", e.Output)
	case "drop":
		if strings.HasSuffix(e.Err.Error(), batch.Full.String()) { // others have been said, or are in the summary
			out.full.Store(true)
			p.con.say("%s: full, dropping records (--when-full %s)", e.Output, out.c.WhenFull.String())
		}
	case "drop-end":
		if out.full.Swap(false) {
			p.con.say("%s: no longer dropping, %s so far", e.Output, plural.Records(e.Count))
		}
	case "panic":
		p.con.say("%s: %v", e.Output, e.Err)
	case "recovered-from-disk":
		p.con.say("%s: delivering %s of an earlier run first", e.Output, plural.Records(e.Count))
	case "crash-safe", "recover":
		p.con.say("%s: --crash-safe: %s", e.Output, plain(e.Err))
	default:
		p.con.say("%s: %s: %s", e.Output, e.Op, plain(e.Err))
	}
}

// plain is an error without the name of the package it comes from, and without
// that the destination is left alone because of it.
func plain(err error) string {
	if err == nil {
		return "unknown"
	}
	s := strings.TrimPrefix(err.Error(), deliver.ErrOpen.Error()+": ")
	for _, prefix := range []string{"file: ", "slab: ", "spool: ", "deliver: ", "netsink: ", "fluent: ", "loki: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.Replace(s, "it is older than max_age (", "it is older than --max-age (", 1)
}

// conclude returns what is to be said at the end, and how the program ends.
func (p *pipeline) conclude(took time.Duration, readErr, cause error) (text []string, err error) {
	say := func(format string, args ...any) { text = append(text, fmt.Sprintf(format, args...)) }
	text = append(text, p.lastly...)
	if !p.c.quiet && p.c.ops.summary.value != summaryJSON {
		say("%s", p.summary(took))
	}
	dropped := p.broken.Load() // the oversize ones are in every account
	var lost, late, kept uint64
	faults := uint64(0) // that are said, and name no lost record
	for _, out := range p.outs {
		dropped += out.report.Dropped.Total()
		// What a policy drops was asked for. What the destination did not take,
		// or not in time, is lost.
		late += out.report.Dropped[batch.Shutdown]
		left := out.report.Kept()
		missing := out.report.Undelivered() - left - out.report.Dropped[batch.Full] - out.report.Dropped[batch.Oversize]
		again := false
		if n := out.report.Dropped[batch.Shutdown]; n > 0 && p.src.readsAgain() != "" {
			again = true
			say("%s: %s not delivered in time; the next run reads them again, as %s says", out.to, plural.Records(n), p.src.readsAgain())
			missing -= n
			kept += n
		}
		lost += missing
		left -= min(left, out.d.Stats().Spool.Parked) // they wait for another destination
		kept += left
		if out.refused > 0 && p.src.readsAgain() == "" {
			say("%s: %s, read but not in memory when the time was up, count as dropped{shutdown}", out.to, plural.Records(out.refused))
		}
		if left > 0 {
			say("%s: %s kept for the next run, in %s", out.to, plural.Records(left), out.c.keptIn(out.report.Pending))
		}
		if out.err != nil && missing == 0 && !again {
			say("%s: %s", out.to, plain(out.err))
			faults++
		}
		if err := out.report.Check(); err != nil {
			say("%s: %v; please report this", out.to, err)
			faults++
		}
	}
	if readErr != nil {
		say("%s", readErr)
	}
	if lost > 0 {
		why := ""
		if cause == nil && late > 0 {
			cause = errDeadline // Shutdown keeps a moment of it to settle the account
		}
		if cause != nil && cause != context.Canceled {
			why = ": " + cause.Error()
		}
		done := "delivered"
		if p.c.dryRun {
			done = "shown, or would be refused"
		}
		say("%s not %s%s", plural.Records(lost), done, why)
	}
	switch {
	case p.c.failOnDrop && dropped+lost+faults > 0:
		return text, &codeError{code: exitDrops}
	case lost+faults > 0 || readErr != nil:
		return text, &codeError{code: exitRuntime}
	case kept > 0:
		return text, &codeError{code: exitKept}
	}
	return text, nil
}

// summary is one line: what was read, what became of it, and the account of each
// output.
func (p *pipeline) summary(took time.Duration) string {
	var sb strings.Builder
	if p.c.dryRun {
		sb.WriteString("dry run, nothing was sent: ")
	}
	fmt.Fprintf(&sb, "read %d records, %s in %s", p.records.Load(), units.Size(float64(p.bytes.Load())), units.Duration(took))
	for _, part := range []struct {
		name string
		n    uint64
	}{
		{"below --level", p.filtered.Load()},
		{"longer than --max-record (dropped)", p.oversize.Load()},
		{"could not be encoded (dropped)", p.broken.Load()},
		{"not in --format, taken as text", p.unparsed.Load()},
	} {
		if part.n > 0 {
			fmt.Fprintf(&sb, ", %d %s", part.n, part.name)
		}
	}
	for _, out := range p.outs {
		account := out.report.Account.String()
		if p.c.dryRun {
			account = strings.Replace(account, " delivered=", " shown=", 1)
		}
		fmt.Fprintf(&sb, "; %s %s", out.to, account)
		if n := out.below.Load(); n > 0 {
			fmt.Fprintf(&sb, " (%d below level %s)", n, out.c.Level.String())
		}
		if out.t.isGone() {
			sb.WriteString(" (its reader is gone)")
		}
		if out.report.Unknown > 0 {
			fmt.Fprintf(&sb, " unknown=%d", out.report.Unknown)
		}
	}
	return sb.String()
}
