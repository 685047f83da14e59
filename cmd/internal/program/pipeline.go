package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/slab"
)

// A pipeline is one run of `forebay pipe`, or of a verb like it.
//
// Goroutines: each input has one or more that take its lines and put them into the
// outputs; each output's slab.Writer has a drain; one writes the live line, and one
// the summary; one for each file opens it anew when asked to; the one that called
// run waits for signals, and ends the others.
type pipeline struct {
	c    *pipeConfig
	con  *console.Console
	term *os.File // for the live line; nil: none

	mu     sync.Mutex // a leaf; guards the lists below for whoever does not change them
	inlets []*inlet
	outs   []*output
	past   tally // of inlets that are gone
	gone   []retired
	live   int // inlets that read, and changes under way
	errs   []error
	waits  bool          // an input is missing; owned by who changes something
	over   chan struct{} // closed when live is 0

	changing turn // had while outputs, inlets or levels change

	changes *changes // of the configuration, while it runs; nil: none

	signals  chan os.Signal
	hungUp   func() bool // the terminal that it was started at is gone; nil: that ends nothing
	watchers *opsServer  // nil: none

	fallbacks map[string]*fallback // by what --fallback says
	lastly    []string             // what shutdown has to say, besides the summary
	unstored  bool                 // the positions of an input could not be stored
	early     sync.WaitGroup       // outputs that unstick ends
	saidDrops bool                 // that --when-full drops although there is a spool
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

	below     atomic.Uint64 // lines below its level, where that is not one for all
	elsewhere atomic.Uint64 // lines that its where is not about
	limited   atomic.Uint64 // records above the rate of a transform

	once    sync.Once    // for shutdown
	drained atomic.Bool  // it has nothing left, and nothing is written to it any more
	early   bool         // shutdown was begun while the reader was still at it
	report  batch.Report // of Shutdown
	err     error
	refused uint64 // records that came when the time was up; settle puts them into report
	kept    uint64 // as many of them are kept with the input that was read
}

// slabs returns the state of the memory.
func (out *output) slabs() slab.Stats { return out.d.Stats().Slab }

// runPipe runs forebay pipe or tail.
func runPipe(c *pipeConfig, stdin, stderr *os.File) error {
	if err := c.settle(); err != nil {
		return err
	}
	c.inputs = []*inputConfig{{reading: c.reading, kind: stdinInput{stdin, c.join}}}
	if c.tail != nil {
		c.tail.join = c.join
		c.inputs[0].kind = c.tail
	}
	return runPipeline(newPipeline(c, stderr), stdin, stderr)
}

func newPipeline(c *pipeConfig, stderr io.Writer) *pipeline {
	return &pipeline{
		c: c, con: &console.Console{W: stderr, Name: c.name}, signals: make(chan os.Signal, 4),
		fallbacks: map[string]*fallback{}, over: make(chan struct{}), live: 1, // until run has begun all inlets
		changing: make(turn, 1),
	}
}

// runPipeline opens everything, runs, and reports.
func runPipeline(p *pipeline, stdin, stderr *os.File) error {
	c := p.c
	// Opening can take long. A signal to reopen files must not end the program
	// meanwhile, as those that end it should.
	notifyReopen(p.signals)
	defer signal.Stop(p.signals)
	if err := p.open(stdin); err != nil {
		if c.named { // a fault of the file
			return exit.Config(err)
		}
		return exit.OrConfig(err)
	}
	if err := p.openInputs(); err != nil {
		p.abandon()
		return err
	}
	defer p.closeInputs()
	p.tellOfLeft()
	watchers, err := serveOps(&c.ops, p)
	if err != nil {
		p.abandon()
		return exit.Config(err)
	}
	defer watchers.close()
	p.watchers = watchers
	isStdin := func(in *inputConfig) bool { _, is := in.kind.(stdinInput); return is }
	if console.IsTerminal(stderr) && !slices.ContainsFunc(c.inputs, isStdin) { // whose end is that of what writes to it
		p.hungUp = func() bool { return !console.IsTerminal(stderr) }
	}
	if console.IsTerminal(stderr) && !c.quiet && os.Getenv("TERM") != "dumb" && !p.onTerminal() {
		p.term = stderr
	}
	if !c.quiet && console.IsTerminal(stdin) && slices.ContainsFunc(c.inputs, isStdin) {
		p.con.Say("reading from the terminal; Ctrl-D ends the input, Ctrl-C the program")
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
	seen := map[string]bool{}
	for _, c := range p.c.outs {
		if seen[c.name] {
			return fmt.Errorf("--to %s is given twice: it would receive every line twice", setting.Redact(c.name))
		}
		seen[c.name] = true
		out, err := p.openOutput(c, p.outs, stdin)
		if err != nil {
			return err
		}
		p.outs = append(p.outs, out)
	}
	p.tellOfOrphans()
	return nil
}

// openOutput opens an output beside others.
func (p *pipeline) openOutput(c *outputConfig, others []*output, stdin *os.File) (*output, error) {
	if p.c.dryRun {
		if err := mayDryRun(p.c.dests, c); err != nil {
			return nil, err
		}
	}
	if to := c.Text("fallback"); to != "" && p.fallbacks[to] == nil {
		f, err := openFallback(p.c, p.c.fallbacks[to])
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.fallbacks[to] = f
		p.mu.Unlock()
	}
	c.onEvent = func(e batch.Event) { p.con.Say("%s: %s", setting.Redact(c.name), console.Plain(e.Err)) }
	t, err := openAt(p.c.dests, p.toFlag(), c)
	if err != nil {
		return nil, err
	}
	out := &output{c: c, to: setting.Redact(c.name), dir: safeName(c.name), t: t, fallback: p.fallbacks[c.Text("fallback")]}
	for _, in := range p.inlets { // those that open later look for themselves
		if s, ok := in.src.(*tailSource); ok && err == nil {
			err = s.loops(c.To)
		}
	}
	if err == nil {
		err = p.distinct(out, others, stdin)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return out, p.connect(out)
}

// toFlag is what stands in front of the name of an output.
func (p *pipeline) toFlag() string {
	if p.c.named {
		return "output"
	}
	return "--to"
}

// distinct returns an error if out writes to a file that is the input, which would
// never end, or that another output writes to.
func (p *pipeline) distinct(out *output, others []*output, stdin *os.File) error {
	to := p.toFlag()
	if in, err := stdin.Stat(); err == nil && sameFile(in, out.t.file) {
		return fmt.Errorf("%s %s: it is the file that standard input reads: its lines would be read again forever", to, out.to)
	}
	for _, f := range p.fallbacks {
		if sameFile(f.t.file, out.t.file) {
			return fmt.Errorf("%s %s: it is the same file as --fallback %s", to, out.to, f.to)
		}
	}
	for _, other := range others {
		if sameFile(other.t.file, out.t.file) {
			return fmt.Errorf("%s %s: it is the same file as %s %s: it would receive every line twice", to, out.to, to, other.to)
		}
	}
	return nil
}

// connect puts an Output in front of the target of out.
func (p *pipeline) connect(out *output) (err error) {
	o := out.c.slabOptions(out.dir, out.t, int(p.c.maxRecord.Value))
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
	end := newEnding(p, time.Duration(p.c.drainTimeout))
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

	for _, in := range p.inlets {
		p.begin(in)
	}
	p.leave(nil)
	p.changes.begin(p)
	failed := p.changes.failed()
	readDone := false
	for stuck := false; !readDone && !stuck; {
		select {
		case <-p.over:
			readDone = true
		case <-failed:
			failed = nil
			end.begin()
		case s := <-signals:
			p.signal(s, end)
		case <-allGone:
			allGone = nil
			p.tellAllGone()
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
	<-p.over
	for _, out := range p.outs {
		out.settle()
	}
	close(quit)
	p.finishInputs()
	took := time.Since(start)
	text, err := p.conclude(took, errors.Join(p.errs...), context.Cause(end.ctx))
	said := make(chan struct{})
	go func() {
		defer close(said)
		beside.Wait()
		p.con.Clear()
		for _, line := range text {
			p.con.Say("%s", line)
		}
		if p.c.ops.summary.Value == summaryJSON {
			p.con.Print(p.summaryJSON(took, err))
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
			p.lastly = append(p.lastly, fmt.Sprintf("--fallback %s: %s", f.to, console.Plain(err)))
		}
	}
}

// shutdown delivers what the output holds, until end; once.
func (out *output) shutdown(end context.Context) {
	out.once.Do(func() {
		keeps := out.drained.Load() // the spool has what is not delivered
		if !keeps && out.isGone() && out.fallback == nil && out.c.Text("spool") != "" {
			keeps = out.d.Commit(end) == nil
		}
		if keeps {
			out.d.Drain(time.Now()) // no probes
		}
		out.report, out.err = out.d.Shutdown(end)
	})
}

// settle puts what the reader still held when the output was closed into the
// account: it had been read, and nobody else will deliver it, unless it is kept for the
// next run. The output must be shut down and the reader done.
func (out *output) settle() {
	out.refused = out.slabs().Refused - out.kept
	out.report.Accepted += out.refused + out.kept
	out.report.Dropped[batch.Shutdown] += out.refused
	out.report.Pending.Slab += out.kept
	out.limit(&out.report.Account)
}

// limit adds the records above the rate of a transform to the account: they do not reach the
// output's memory.
func (out *output) limit(a *batch.Account) {
	n := out.limited.Load()
	a.Accepted += n
	a.Dropped[batch.Limited] += n
}

// signal acts on a signal: files are opened anew, or the end comes nearer. SIGHUP from a
// terminal that was closed is of the second kind.
func (p *pipeline) signal(s os.Signal, end *ending) {
	if isReopen(s) && (p.hungUp == nil || !p.hungUp()) {
		p.reopen()
		p.changes.ask()
		return
	}
	end.signal(s)
}

// reopen opens all files anew, each on a goroutine of its own: one that waits for a
// write that hangs must hold up neither the others nor the end.
func (p *pipeline) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
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
			p.con.Say("%s", console.Plain(err))
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

// show writes the live line until quit.
func (p *pipeline) show(quit <-chan struct{}) {
	tick := time.NewTicker(console.LiveEvery)
	defer tick.Stop()
	before, at := p.progress(), time.Now()
	for {
		select {
		case <-quit:
			return
		case now := <-tick.C:
			cur := p.progress()
			p.con.Show(console.LiveLine(before, cur, now.Sub(at), console.LiveWidth(p.term)))
			before, at = cur, now
		}
	}
}

func (p *pipeline) progress() console.Progress {
	read := p.read()
	now := console.Progress{Records: read.records, Bytes: read.bytes, Dropped: read.oversize}
	for _, out := range p.outputs() {
		st := out.d.Stats()
		s := &st.Slab
		now.Dropped += s.Dropped.Total()
		now.Waiting = now.Waiting || s.Waiting > 0
		if s.SlabsInUse >= now.InUse {
			now.InUse, now.Slabs = s.SlabsInUse, s.SlabCount
		}
		if st.Deliver.LastError != "" {
			now.Failing = out.to
		}
	}
	return now
}
