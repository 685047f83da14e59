package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/outputhook"
)

// RunPipe runs forebay pipe or forebay tail.
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

// Run opens the outputs and inputs of p, runs the pipeline to its end and prints the summary.
func Run(p *Pipeline, stdin, stderr *os.File) error {
	c := p.C
	// Opening may take long. SIGINT and SIGTERM should end the program during this time, but SIGHUP
	// should not.
	process.NotifyReopen(p.Signals)
	defer signal.Stop(p.Signals)
	if err := p.Open(stdin); err != nil {
		if c.Named { // the error is about the configuration file
			return exit.Config(err)
		}
		return exit.OrConfig(err)
	}
	if !c.Named { // forebay validate has these warnings for a configuration file
		for _, text := range dest.VisibleSecrets(slices.Concat(c.Outs, slices.Collect(maps.Values(c.Fallbacks)))...) {
			p.Console.Say("%s", text)
		}
	}
	if err := p.OpenInputs(); err != nil {
		p.abandon()
		return err
	}
	defer p.CloseInputs()
	leftovers{p}.reportRemoved()
	ops, err := serveOps(&c.Ops, p)
	if err != nil {
		p.abandon()
		return exit.Config(err)
	}
	defer ops.close()
	p.ops = ops
	isStdin := func(in *input.Config) bool { _, is := in.Kind.(input.Stdin); return is }
	if console.IsTerminal(stderr) && !slices.ContainsFunc(c.Inputs, isStdin) { // with standard input as an input, the pipeline ends when the writer of standard input ends
		p.terminalClosed = func() bool { return !console.IsTerminal(stderr) }
	}
	if console.IsTerminal(stderr) && !c.Quiet && os.Getenv("TERM") != "dumb" && !p.onTerminal() {
		p.term = stderr
	}
	if !c.Quiet && console.IsTerminal(stdin) && slices.ContainsFunc(c.Inputs, isStdin) {
		p.Console.Say("reading from the terminal; Ctrl-D ends the input, Ctrl-C the program")
	}
	return p.run()
}

// run runs the pipeline until the inputs end or a signal ends it. It returns when everything is
// delivered or the drain timeout is over.
func (p *Pipeline) run() error {
	start := time.Now()
	signals := p.Signals
	process.Notify(signals)
	end := NewEnding(p, time.Duration(p.C.DrainTimeout))
	defer end.Release()
	end.onBegin = func(deadline time.Time) {
		p.ops.end()
		p.drain(deadline)
	}

	manager := process.NewSystemd()
	manager.Notify("READY=1")
	alive, stopWatchdog := manager.Watchdog()
	defer stopWatchdog()

	quit := make(chan struct{})
	var background sync.WaitGroup
	if p.term != nil {
		background.Go(func() { screen{p}.show(quit) })
	}
	allGone := p.watchGone(&background, quit)

	for _, in := range p.Inlets {
		p.begin(in)
	}
	p.releaseLive(nil)
	p.Changes.begin(p)
	failed := p.Changes.failed()
	readDone := false
	for blocked := false; !readDone && !blocked; {
		select {
		case <-p.inputsDone:
			readDone = true
		case <-failed:
			failed = nil
			end.Begin()
		case s := <-signals:
			p.signal(s, end)
		case <-allGone:
			allGone = nil
			p.reportAllGone()
			end.Begin()
		case <-end.nearDeadline:
			p.shutDownBlocked(end)
		case <-alive:
			manager.Notify("WATCHDOG=1")
		case <-end.Ctx.Done():
			blocked = true // a reader waits for room in an output, and Shutdown ends this wait
		}
	}
	end.Begin()
	manager.Notify("STOPPING=1")

	down := make(chan struct{})
	go func() { defer close(down); p.Shutdown(end.Ctx) }()
	for down != nil {
		select {
		case <-down:
			down = nil
		case <-alive:
			manager.Notify("WATCHDOG=1")
		case s := <-signals:
			p.signal(s, end)
		}
	}
	<-p.inputsDone
	for _, out := range p.Outs {
		out.Settle()
	}
	close(quit)
	p.finishInputs()
	took := time.Since(start)
	text, err := Account{p}.Conclude(took, errors.Join(p.errs...), context.Cause(end.Ctx))
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		background.Wait()
		p.Console.Clear()
		for _, line := range text {
			p.Console.Say("%s", line)
		}
		if p.C.Ops.Summary.Value == config.SummaryJSON {
			p.Console.Print(Account{p}.summaryJSON(took, err))
		}
	}()
	var giveUp <-chan time.Time
	if context.Cause(end.Ctx) == process.ErrForced {
		giveUp = time.After(summaryTimeout)
	}
	for {
		select {
		case <-printed:
			return err
		case <-giveUp:
			return err
		case s := <-signals:
			if !process.IsReopen(s) && giveUp == nil {
				giveUp = time.After(summaryTimeout)
			}
		}
	}
}

// summaryTimeout limits the time for printing the summary after a second signal, because standard
// error may be blocked.
const summaryTimeout = time.Second

// drain announces the deadline of Shutdown to the outputs. Before the deadline, the outputs move
// their records to the fallback or the spool. This frees memory for inputs that wait for room.
func (p *Pipeline) drain(deadline time.Time) {
	for _, out := range p.Outs {
		outputhook.Drain(out.Delivery, deadline)
	}
}

// shutDownBlocked is called shortly before the deadline. It shuts down the outputs that block a
// reader, so that the reader can write its remaining lines to the other outputs.
func (p *Pipeline) shutDownBlocked(end *Ending) {
	end.nearDeadline = time.After(max(end.reserve()/10, time.Millisecond)) // by then another output may block the reader
	if len(p.Outs) == 1 {
		return
	}
	for _, out := range p.Outs {
		if out.Early || out.Slabs().Waiting == 0 {
			continue
		}
		out.Early = true
		now, cancel := context.WithDeadlineCause(end.Ctx, time.Now(), ErrDeadline)
		p.earlyShutdowns.Go(func() {
			defer cancel()
			out.Shutdown(now)
		})
	}
}

// Shutdown shuts down all outputs concurrently. After that it closes the fallbacks, which several
// outputs may use.
func (p *Pipeline) Shutdown(ctx context.Context) {
	var wg sync.WaitGroup
	for _, out := range p.Outs {
		wg.Go(func() { out.Shutdown(ctx) })
	}
	wg.Wait()
	p.earlyShutdowns.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closetime.Disk)
	defer cancel()
	for _, f := range p.Fallbacks {
		if err := f.CloseDest(ctx); err != nil {
			p.finalMessages = append(p.finalMessages, fmt.Sprintf("--fallback %s: %s", f.To, console.Plain(err)))
		}
	}
}

// signal handles a signal. SIGHUP reopens files and applies the configuration file, unless the
// controlling terminal was closed. Every other signal begins or forces the end of the pipeline.
func (p *Pipeline) signal(s os.Signal, end *Ending) {
	if process.IsReopen(s) && (p.terminalClosed == nil || !p.terminalClosed()) {
		p.reopen()
		p.Changes.request()
		return
	}
	end.Signal(s)
}

// reopen reopens all files, each on a separate goroutine. If reopening a file blocks, this delays
// neither the other files nor the end of the program.
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
		if t.Reopen != nil && t.ReopenRequests.Add(1) == 1 {
			go p.ReopenOne(t)
		}
	}
}

// watchGone returns a channel that is closed when the readers of all outputs have exited. If an
// output has no reader that can exit, such as a file, it returns nil.
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

// reportAllGone reports that the readers of all outputs have exited, and where the remaining lines
// go.
func (p *Pipeline) reportAllGone() {
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
