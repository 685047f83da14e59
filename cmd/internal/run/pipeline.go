package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/closetime"
)

// A Pipeline is one run of `forebay pipe`, or of a verb like it.
//
// Goroutines: each input has one or more that take its lines and put them into the
// outputs; each output's slab.Writer has a drain; one writes the live line, and one
// the summary; one for each file opens it anew when asked to; the one that called
// run waits for signals, and ends the others.
type Pipeline struct {
	*output.Env
	C    *config.Pipeline
	term *os.File // for the live line; nil: none

	Mu     sync.Mutex // a leaf; guards the lists below for goroutines that do not change them
	Inlets []*LiveInput
	Outs   []*output.Output
	past   intake.Tally // of inlets that are gone
	gone   []retired
	Live   int // inlets that read, and changes under way
	errs   []error
	waits  bool          // an input is missing; owned by who changes something
	over   chan struct{} // closed when live is 0

	changing turn // had while outputs, inlets or levels change

	Changes *changes // of the configuration, while it runs; nil: none

	Signals  chan os.Signal
	hungUp   func() bool // the terminal that it was started at is gone; nil: that ends nothing
	watchers *opsServer  // nil: none

	Fallbacks map[string]*dest.Fallback // by what --fallback says
	lastly    []string                  // what shutdown has to say, besides the summary
	unstored  bool                      // the positions of an input could not be stored
	early     sync.WaitGroup            // outputs that unstick ends
}

// RunPipe runs forebay pipe or tail.
func RunPipe(c *config.Pipeline, stdin, stderr *os.File) error {
	if err := c.Settle(); err != nil {
		return err
	}
	c.Inputs = []*input.Config{{Reading: c.Reading, Kind: input.NewStdin(stdin, c.Text)}}
	if c.Tail != nil {
		c.Tail.Text = c.Text
		c.Inputs[0].Kind = c.Tail
	}
	return Run(New(c, stderr), stdin, stderr)
}

func New(c *config.Pipeline, stderr io.Writer) *Pipeline {
	return &Pipeline{
		Env: &output.Env{
			Console: &console.Console{W: stderr, Name: c.Name}, MaxRecord: int(c.MaxRecord.Value), DrainTimeout: time.Duration(c.DrainTimeout),
			DryRun: c.DryRun, Named: c.Named,
		},
		C: c, Signals: make(chan os.Signal, 4),
		Fallbacks: map[string]*dest.Fallback{}, over: make(chan struct{}), Live: 1, // until run has begun all inlets
		changing: make(turn, 1),
	}
}

// Run opens everything, runs, and reports.
func Run(p *Pipeline, stdin, stderr *os.File) error {
	c := p.C
	// Opening can take long. A signal to reopen files must not end the program
	// meanwhile, as those that end it should.
	process.NotifyReopen(p.Signals)
	defer signal.Stop(p.Signals)
	if err := p.Open(stdin); err != nil {
		if c.Named { // a fault of the file
			return exit.Config(err)
		}
		return exit.OrConfig(err)
	}
	if err := p.OpenInputs(); err != nil {
		p.abandon()
		return err
	}
	defer p.CloseInputs()
	leftovers{p}.tellOfLeft()
	watchers, err := serveOps(&c.Ops, p)
	if err != nil {
		p.abandon()
		return exit.Config(err)
	}
	defer watchers.close()
	p.watchers = watchers
	isStdin := func(in *input.Config) bool { _, is := in.Kind.(input.Stdin); return is }
	if console.IsTerminal(stderr) && !slices.ContainsFunc(c.Inputs, isStdin) { // whose end is that of what writes to it
		p.hungUp = func() bool { return !console.IsTerminal(stderr) }
	}
	if console.IsTerminal(stderr) && !c.Quiet && os.Getenv("TERM") != "dumb" && !p.onTerminal() {
		p.term = stderr
	}
	if !c.Quiet && console.IsTerminal(stdin) && slices.ContainsFunc(c.Inputs, isStdin) {
		p.Console.Say("reading from the terminal; Ctrl-D ends the input, Ctrl-C the program")
	}
	return p.run()
}

// Open opens the destinations. A failure closes those that are open already.
func (p *Pipeline) Open(stdin *os.File) (err error) {
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	seen := map[string]bool{}
	for _, c := range p.C.Outs {
		if seen[c.Name] {
			return fmt.Errorf("--to %s is given twice: it would receive every line twice", setting.Redact(c.Name))
		}
		seen[c.Name] = true
		out, err := p.openOutput(c, p.Outs, stdin)
		if err != nil {
			return err
		}
		p.Outs = append(p.Outs, out)
	}
	leftovers{p}.tellOfOrphans()
	return nil
}

// openOutput opens an output beside others.
func (p *Pipeline) openOutput(c *dest.Spec, others []*output.Output, stdin *os.File) (*output.Output, error) {
	if p.C.DryRun {
		if err := dest.MayDryRun(p.C.Dests, c); err != nil {
			return nil, err
		}
	}
	if to := c.Text("fallback"); to != "" && p.Fallbacks[to] == nil {
		f, err := OpenFallback(p.C, p.C.Fallbacks[to])
		if err != nil {
			return nil, err
		}
		p.Mu.Lock()
		p.Fallbacks[to] = f
		p.Mu.Unlock()
	}
	c.OnEvent = func(e batch.Event) { p.Console.Say("%s: %s", setting.Redact(c.Name), console.Plain(e.Err)) }
	t, err := dest.OpenAt(p.C.Dests, p.toFlag(), c)
	if err != nil {
		return nil, err
	}
	out := &output.Output{Env: p.Env, Spec: c, To: setting.Redact(c.Name), Dir: dest.SafeName(c.Name), Target: t, Fallback: p.Fallbacks[c.Text("fallback")]}
	for _, in := range p.Inlets { // those that open later look for themselves
		if s, ok := in.Src.(*input.TailSource); ok && err == nil {
			err = s.Loops(c.To)
		}
	}
	if err == nil {
		err = p.distinct(out, others, stdin)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return out, out.Connect()
}

// OpenFallback opens what --fallback says.
func OpenFallback(p *config.Pipeline, c *dest.Spec) (*dest.Fallback, error) {
	for _, out := range p.Outs {
		if out.Name == c.Name || p.Named && out.To == c.To {
			return nil, fmt.Errorf("--fallback %s: it is also given as --to: use another destination", setting.Redact(c.Name))
		}
	}
	t, err := dest.OpenAt(p.Dests, "--fallback", c)
	if err != nil {
		return nil, err
	}
	return dest.NewFallback(setting.Redact(c.Name), t, p.Parser()), nil
}

// toFlag returns the text before the name of an output.
func (p *Pipeline) toFlag() string {
	if p.C.Named {
		return "output"
	}
	return "--to"
}

// distinct returns an error if out writes to a file that is the input, which would
// never end, or that another output writes to.
func (p *Pipeline) distinct(out *output.Output, others []*output.Output, stdin *os.File) error {
	to := p.toFlag()
	if in, err := stdin.Stat(); err == nil && dest.SameFile(in, out.Target.File) {
		return fmt.Errorf("%s %s: it is the file that standard input reads: its lines would be read again forever", to, out.To)
	}
	for _, f := range p.Fallbacks {
		if dest.SameFile(f.Target.File, out.Target.File) {
			return fmt.Errorf("%s %s: it is the same file as --fallback %s", to, out.To, f.To)
		}
	}
	for _, other := range others {
		if dest.SameFile(other.Target.File, out.Target.File) {
			return fmt.Errorf("%s %s: it is the same file as %s %s: it would receive every line twice", to, out.To, to, other.To)
		}
	}
	return nil
}

// abandon closes outputs that nothing was written to.
func (p *Pipeline) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for _, out := range p.Outs {
		out.Delivery.Shutdown(ctx)
	}
	for _, f := range p.Fallbacks {
		f.CloseDest(ctx)
	}
}

// onTerminal reports whether an output is a terminal.
func (p *Pipeline) onTerminal() bool {
	for _, out := range p.Outs {
		if out.Target.Tty {
			return true
		}
	}
	return false
}

// run reads until the input ends or a signal says so, then waits until
// everything is delivered or the time is up.
func (p *Pipeline) run() error {
	start := time.Now()
	signals := p.Signals
	process.Notify(signals)
	end := NewEnding(p, time.Duration(p.C.DrainTimeout))
	defer end.Release()
	end.onBegin = func(deadline time.Time) {
		p.watchers.end()
		p.drain(deadline)
	}

	manager := process.NewSystemd()
	manager.Tell("READY=1")
	alive, calm := manager.Watchdog()
	defer calm()

	quit := make(chan struct{})
	var beside sync.WaitGroup
	if p.term != nil {
		beside.Go(func() { screen{p}.show(quit) })
	}
	allGone := p.watchGone(&beside, quit)

	for _, in := range p.Inlets {
		p.begin(in)
	}
	p.leave(nil)
	p.Changes.begin(p)
	failed := p.Changes.failed()
	readDone := false
	for stuck := false; !readDone && !stuck; {
		select {
		case <-p.over:
			readDone = true
		case <-failed:
			failed = nil
			end.Begin()
		case s := <-signals:
			p.signal(s, end)
		case <-allGone:
			allGone = nil
			p.tellAllGone()
			end.Begin()
		case <-end.late:
			p.unstick(end)
		case <-alive:
			manager.Tell("WATCHDOG=1")
		case <-end.Ctx.Done():
			stuck = true // in a write that waits for room: Shutdown ends it
		}
	}
	end.Begin()
	manager.Tell("STOPPING=1")

	down := make(chan struct{})
	go func() { defer close(down); p.Shutdown(end.Ctx) }()
	for down != nil {
		select {
		case <-down:
			down = nil
		case <-alive:
			manager.Tell("WATCHDOG=1")
		case s := <-signals:
			p.signal(s, end)
		}
	}
	<-p.over
	for _, out := range p.Outs {
		out.Settle()
	}
	close(quit)
	p.finishInputs()
	took := time.Since(start)
	text, err := Account{p}.Conclude(took, errors.Join(p.errs...), context.Cause(end.Ctx))
	said := make(chan struct{})
	go func() {
		defer close(said)
		beside.Wait()
		p.Console.Clear()
		for _, line := range text {
			p.Console.Say("%s", line)
		}
		if p.C.Ops.Summary.Value == config.SummaryJSON {
			p.Console.Print(Account{p}.summaryJSON(took, err))
		}
	}()
	var enough <-chan time.Time
	if context.Cause(end.Ctx) == process.ErrForced {
		enough = time.After(lastWord)
	}
	for {
		select {
		case <-said:
			return err
		case <-enough:
			return err
		case s := <-signals:
			if !process.IsReopen(s) && enough == nil {
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
func (p *Pipeline) drain(deadline time.Time) {
	for _, out := range p.Outs {
		out.Delivery.Drain(deadline)
	}
}

// unstick ends the outputs that the reader waits for, a little before the time is
// up: what it still holds can then go to the others.
func (p *Pipeline) unstick(end *Ending) {
	end.late = time.After(max(end.reserve()/10, time.Millisecond)) // the reader may meet another one
	if len(p.Outs) == 1 {
		return
	}
	for _, out := range p.Outs {
		if out.Early || out.Slabs().Waiting == 0 {
			continue
		}
		out.Early = true
		now, cancel := context.WithDeadlineCause(end.Ctx, time.Now(), ErrDeadline)
		p.early.Go(func() {
			defer cancel()
			out.Shutdown(now)
		})
	}
}

// Shutdown delivers what the outputs hold, all at the same time, then closes
// what they share.
func (p *Pipeline) Shutdown(ctx context.Context) {
	var wg sync.WaitGroup
	for _, out := range p.Outs {
		wg.Go(func() { out.Shutdown(ctx) })
	}
	wg.Wait()
	p.early.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closetime.Disk)
	defer cancel()
	for _, f := range p.Fallbacks {
		if err := f.CloseDest(ctx); err != nil {
			p.lastly = append(p.lastly, fmt.Sprintf("--fallback %s: %s", f.To, console.Plain(err)))
		}
	}
}

// signal acts on a signal: files are opened anew, or the end comes nearer. SIGHUP from a
// terminal that was closed is of the second kind.
func (p *Pipeline) signal(s os.Signal, end *Ending) {
	if process.IsReopen(s) && (p.hungUp == nil || !p.hungUp()) {
		p.reopen()
		p.Changes.ask()
		return
	}
	end.Signal(s)
}

// reopen opens all files anew, each on a goroutine of its own: one that waits for a
// write that hangs must hold up neither the others nor the end.
func (p *Pipeline) reopen() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	targets := make([]*dest.Target, 0, len(p.Outs)+len(p.Fallbacks))
	for _, out := range p.Outs {
		targets = append(targets, out.Target)
	}
	for _, f := range p.Fallbacks {
		targets = append(targets, f.Target)
	}
	for _, t := range targets {
		if t.Reopen != nil && t.Asked.Add(1) == 1 {
			go p.ReopenOne(t)
		}
	}
}

// watchGone returns a channel that is closed when every output has lost its
// reader.
func (p *Pipeline) watchGone(wg *sync.WaitGroup, quit <-chan struct{}) <-chan struct{} {
	for _, out := range p.Outs {
		if out.Target.Gone == nil {
			return nil
		}
	}
	all := make(chan struct{})
	wg.Go(func() {
		for _, out := range p.Outs {
			select {
			case <-out.Target.Gone:
			case <-quit:
				return
			}
		}
		close(all)
	})
	return all
}

// A screen writes the live line of a pipeline.
type screen struct{ p *Pipeline }

// show writes the live line until quit.
func (s screen) show(quit <-chan struct{}) {
	p := s.p
	tick := time.NewTicker(console.LiveEvery)
	defer tick.Stop()
	before, at := s.progress(), time.Now()
	for {
		select {
		case <-quit:
			return
		case now := <-tick.C:
			cur := s.progress()
			p.Console.Show(console.LiveLine(before, cur, now.Sub(at), console.LiveWidth(p.term)))
			before, at = cur, now
		}
	}
}

func (s screen) progress() console.Progress {
	p := s.p
	read := p.Read()
	now := console.Progress{Records: read.Records, Bytes: read.Bytes, Dropped: read.Oversize}
	for _, out := range p.Outputs() {
		st := out.Delivery.Stats()
		s := &st.Slab
		now.Dropped += s.Dropped.Total()
		now.Waiting = now.Waiting || s.Waiting > 0
		if s.SlabsInUse >= now.InUse {
			now.InUse, now.Slabs = s.SlabsInUse, s.SlabCount
		}
		if st.Deliver.LastError != "" {
			now.Failing = out.To
		}
	}
	return now
}

// tellAllGone says that reading ends because no output has a reader, where something else
// was said of an output.
func (p *Pipeline) tellAllGone() {
	var places []string
	for _, out := range p.Outs {
		if to := out.OtherPlace(); to != "" && !slices.Contains(places, to) {
			places = append(places, to)
		}
	}
	if places != nil {
		p.Console.Say("no output has a reader: reading stops; lines already read go to %s", strings.Join(places, " and "))
	}
}
