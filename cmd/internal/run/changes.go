package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// pollEvery is the interval between two checks of the file.
const pollEvery = time.Second

// changePatience limits how long a change waits for an input. During this wait, other inputs may be
// paused.
const changePatience = 5 * time.Second

// NewReloader returns a reloader for file. data is the content of the file that is already applied.
// If poll is true, the reloader also checks the file for changes.
func NewReloader(file string, data []byte, stdin *os.File, poll bool) *reloader {
	c := &reloader{file: file, stdin: stdin, poll: poll, data: data, requests: make(chan struct{}, 1), fatal: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// failed returns a channel that is closed when a failed change must end the pipeline.
func (c *reloader) failed() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.fatal
}

// request asks the goroutine to apply the file.
func (c *reloader) request() {
	if c != nil {
		select {
		case c.requests <- struct{}{}:
		default:
		}
	}
}

// begin starts the goroutine that applies changes of the file to p. The goroutine runs until end is
// called.
func (c *reloader) begin(p *Pipeline) {
	if c == nil {
		return
	}
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		var tick <-chan time.Time
		if c.poll {
			t := time.NewTicker(pollEvery)
			defer t.Stop()
			tick = t.C
		}
		seen, last := c.data, c.data
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-tick:
				data, err := config.ReadLimited(c.file)
				unchanged := err == nil && bytes.Equal(data, last)
				if last = data; !unchanged || bytes.Equal(data, seen) {
					continue // the file is already applied, or still changing
				}
				seen = data
			case <-c.requests:
			}
			if !c.apply(p) {
				close(c.fatal)
				return
			}
		}
	}()
}

// end stops the goroutine after the change in progress.
func (c *reloader) end() {
	if c == nil {
		return
	}
	c.cancel()
	if c.done != nil {
		<-c.done
	}
}

// apply changes the pipeline p to the configuration in the file, and prints the result. It returns
// false if the pipeline must end.
func (c *reloader) apply(p *Pipeline) bool {
	next, _, err := config.Load(c.file, c.stdin)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			p.Console.Say("%s", strings.TrimSpace(line))
		}
		p.Console.Say("%s: not applied; the running configuration is unchanged", c.file)
		return true
	}
	changed, err := p.Change(c.ctx, next, c.stdin)
	switch {
	case c.ctx.Err() != nil: // print nothing, because the pipeline is ending
	case errors.Is(err, ErrStranded):
		p.Mu.Lock()
		p.errs = append(p.errs, err)
		p.Mu.Unlock()
		return false
	case err != nil:
		text := err.Error()
		if !strings.HasPrefix(text, c.file+":") { // an error about a key already contains the position in the file
			text = c.file + ": " + text
		}
		p.Console.Say("%s", text)
	case len(changed) == 0:
		p.Console.Say("%s: nothing has changed", c.file)
	default:
		p.Console.Say("%s: applied: %s", c.file, strings.Join(changed, ", "))
	}
	return true
}

// ErrStranded is returned if a change has closed an output and cannot open it again. The pipeline
// must then end.
var ErrStranded = errors.New("forebay stops; the next run reads the records again")

// A change replaces the inputs and outputs of a pipeline by the inputs and outputs of a new
// configuration.
type change struct {
	p    *Pipeline
	next *config.Pipeline

	stopped []*LiveInput     // removed and changed inputs, which the change closes
	ending  []*output.Output // removed and changed outputs, which the change closes
	kept    []*LiveInput
	done    []string // descriptions of the changes

	outs map[string]*output.Output // unchanged and new outputs, and those opened again, by name
}

// Change applies the configuration next: it replaces the inputs and outputs of p. It returns a
// description of each change. If the error is not ErrStranded, nothing was changed.
func (p *Pipeline) Change(ctx context.Context, next *config.Pipeline, stdin *os.File) ([]string, error) {
	if err := p.changing.lock(ctx); err != nil {
		return nil, err
	}
	defer p.changing.unlock()
	if !p.retainLive() {
		return nil, errors.New("the input ended before the change was applied")
	}
	defer p.releaseLive(nil)
	ch := &change{p: p, next: next, outs: map[string]*output.Output{}}
	if err := ch.checkFixed(); err != nil {
		return nil, err
	}
	ch.compare()
	if len(ch.done) == 0 {
		return nil, nil
	}
	if err := ch.make(ctx, stdin); err != nil {
		return ch.done, err
	}
	leftovers{p}.rememberDirs()
	return ch.done, nil
}

// checkFixed returns an error if the new configuration changes a setting that cannot change while
// the program runs.
func (ch *change) checkFixed() error {
	a, b := ch.p.C, ch.next
	var names []string
	for name, same := range map[string]bool{
		"name": a.Name == b.Name, "max-record": a.MaxRecord == b.MaxRecord, "drain-timeout": a.DrainTimeout == b.DrainTimeout,
		"fail-on-drop": a.FailOnDrop == b.FailOnDrop, "metrics": a.Ops.Metrics == b.Ops.Metrics, "control": a.Ops.Control == b.Ops.Control,
		"pprof": a.Ops.Pprof == b.Ops.Pprof, "summary": a.Ops.Summary.Value == b.Ops.Summary.Value,
	} {
		if !same {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return fmt.Errorf("%s can change only at a start: restart, or undo the change; the running configuration is unchanged", console.InWords(names, "and"))
	}
	return nil
}

// named returns the part with the given name, or nil.
func named[T any](parts []*T, name string, nameOf func(*T) string) *T {
	for _, p := range parts {
		if nameOf(p) == name {
			return p
		}
	}
	return nil
}

func inputName(c *input.Config) string { return c.Name }

func inletName(in *LiveInput) string { return in.Name }

func specName(c *dest.Spec) string { return c.Name }

func outputName(o *output.Output) string { return o.Spec.Name }

// compare compares the running configuration with the new one. It sets ch.stopped, ch.ending,
// ch.kept, ch.done and ch.outs.
func (ch *change) compare() {
	say := func(format string, args ...any) { ch.done = append(ch.done, fmt.Sprintf(format, args...)) }
	for _, in := range ch.p.Inlets {
		switch c := named(ch.next.Inputs, in.Name, inputName); {
		case c == nil:
			ch.stopped = append(ch.stopped, in)
			say("input %s was removed", in.Name)
		case !config.SameInput(in.c, c):
			ch.stopped = append(ch.stopped, in)
			say("input %s has changed", in.Name)
		default:
			ch.kept = append(ch.kept, in)
			if !config.SameReading(in.c, c) {
				say("input %s has a new format, time or zone", in.Name)
			}
		}
	}
	for _, c := range ch.next.Inputs {
		if named(ch.p.Inlets, c.Name, inletName) == nil {
			say("input %s was added", c.Name)
		}
	}
	for _, out := range ch.p.Outs {
		switch c := named(ch.next.Outs, out.Spec.Name, specName); {
		case c == nil:
			ch.ending = append(ch.ending, out)
			say("output %s was removed", out.To)
		case !config.SameOutput(out.Spec, c):
			ch.ending = append(ch.ending, out)
			say("output %s has changed", out.To)
		default:
			ch.outs[c.Name] = out
			if *out.Spec.Level() != *c.Level() {
				say("output %s: level %s, not %s", out.To, c.Level().Words(), out.Spec.Level().Words())
			}
			if !config.SameRoute(out.Spec, c) {
				say("output %s has a new from, where or level", out.To)
			}
		}
	}
	for _, c := range ch.next.Outs {
		if named(ch.p.Outs, c.Name, outputName) == nil {
			say("output %s was added", c.Name)
		}
	}
	if !config.SameRules(ch.p.C, ch.next) {
		say("transforms have changed")
	}
}

// make makes the changes that compare has found.
func (ch *change) make(ctx context.Context, stdin *os.File) (err error) {
	p := ch.p
	if err := ch.openNew(stdin); err != nil {
		return fmt.Errorf("%w; the running configuration is unchanged", err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, time.Duration(p.C.DrainTimeout))
	defer cancel()
	if err := ch.drained(waitCtx); err != nil {
		ch.abandonNew()
		return err
	}
	if err := ch.endInputs(ctx); err != nil {
		ch.abandonNew()
		return err
	}
	err = ch.swap(ctx, stdin)
	c := ch.next
	if err != nil {
		ch.abandonNew()
		c = p.C
	}
	return errors.Join(append([]error{err}, ch.openInputs(c)...)...)
}

// endInputs stops the inputs in ch.stopped, stores their positions and closes them. If one of them
// waits for room in an output, endInputs returns an error, because the input has a line that the
// output has not accepted.
func (ch *change) endInputs(ctx context.Context) error {
	if err := ch.checkFlow(ctx); err != nil {
		return err
	}
	for _, in := range ch.stopped {
		in.Src.Stop()
	}
	for _, in := range ch.stopped {
		select {
		case <-in.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		waitCtx, cancel := context.WithTimeout(ctx, changePatience)
		delivered := in.Commit(waitCtx) == nil // if false, the next reader reads the last lines again
		cancel()
		if err := in.Src.Finish(delivered); err != nil {
			ch.p.Console.Say("%s", in.WithName(err))
		}
		in.Src.Close()
	}
	return nil
}

// checkFlow returns an error if an input in ch.stopped waits for room in an output.
func (ch *change) checkFlow(ctx context.Context) error {
	waitCtx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for _, in := range ch.stopped {
		for _, take := range in.Intakes {
			release, err := take.Hold(waitCtx)
			if err != nil {
				return waitsError(in)
			}
			release()
		}
	}
	return nil
}

// waitsError returns the error for a change that is rejected because an input waits for room in an
// output.
func waitsError(in *LiveInput) error {
	return fmt.Errorf("input %s is waiting for room in an output; the running configuration is unchanged; try again later", in.Name)
}

// openNew opens the outputs that are only in the new configuration.
func (ch *change) openNew(stdin *os.File) error {
	p := ch.p
	maps.Copy(p.C.Fallbacks, ch.next.Fallbacks)
	var continuing []*output.Output
	for _, out := range p.Outs {
		if !slices.Contains(ch.ending, out) {
			continuing = append(continuing, out)
		}
	}
	for _, c := range ch.next.Outs {
		if ch.outs[c.Name] != nil || named(ch.ending, c.Name, outputName) != nil {
			continue
		}
		out, err := p.openOutput(c, continuing, stdin)
		if err != nil {
			ch.abandonNew()
			return err
		}
		ch.outs[c.Name] = out
		continuing = append(continuing, out)
	}
	return nil
}

// abandonNew closes the outputs that this change has opened.
func (ch *change) abandonNew() {
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for _, out := range ch.outs {
		if !slices.Contains(ch.p.Outs, out) {
			out.Shutdown(ctx)
		}
	}
}

// drained waits until the outputs in ch.ending have delivered their records or stored them on disk.
func (ch *change) drained(ctx context.Context) error {
	if intake.Commit(ctx, ch.ending) == nil {
		return nil
	}
	for _, out := range ch.ending {
		if left := out.Delivery.Stats().Pending; left.Slab+left.Inflight > 0 {
			return fmt.Errorf("output %s has undelivered records and no spool to keep them in (%s); the running configuration is unchanged; try again later", out.To, plural.Records(left.Slab+left.Inflight))
		}
	}
	return errors.New("an output does not deliver; the running configuration is unchanged; try again later")
}

// swap replaces the outputs of p by the outputs of the new configuration. During the change it
// locks all intakes, so that no input writes to an output.
func (ch *change) swap(ctx context.Context, stdin *os.File) error {
	p := ch.p
	waitCtx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for _, in := range ch.kept {
		for _, take := range in.Intakes {
			release, err := take.Hold(waitCtx)
			if err != nil {
				return waitsError(in)
			}
			defer release()
		}
	}
	if err := ch.drained(waitCtx); err != nil {
		return err
	}
	for _, out := range ch.ending {
		out.Drained.Store(true)
		out.Shutdown(waitCtx)
		out.Settle()
	}
	outs, err := ch.reopen(ch.next.Outs, stdin)
	if err != nil {
		// Open the previous outputs again. This usually succeeds, because they could be opened
		// before.
		ch.abandonNew()
		ch.outs = map[string]*output.Output{}
		for _, out := range p.Outs {
			if !slices.Contains(ch.ending, out) {
				ch.outs[out.Spec.Name] = out
			}
		}
		var restoreErr error
		if outs, restoreErr = ch.reopen(p.C.Outs, stdin); restoreErr != nil {
			err = fmt.Errorf("%w; with the previous settings: %w; %w", err, restoreErr, ErrStranded)
			for _, out := range ch.ending { // a closed output rejects records, so that no input stores a position after them
				if ch.outs[out.Spec.Name] == nil {
					out.Drained.Store(false)
					outs = append(outs, out)
				}
			}
		} else {
			err = fmt.Errorf("%w; the running configuration is unchanged", err)
		}
	} else {
		p.C.Outs, p.C.Rules, p.C.Inputs = ch.next.Outs, ch.next.Rules, ch.next.Inputs
		ch.retire(outs)
	}
	p.Mu.Lock()
	p.Outs = outs
	for _, out := range outs {
		if c := named(p.C.Outs, out.Spec.Name, specName); c != nil {
			out.Spec.Route, *out.Spec.Level() = c.Route, *c.Level()
		}
	}
	p.Mu.Unlock()
	for _, in := range ch.kept {
		if c := named(p.C.Inputs, in.Name, inputName); c != nil {
			in.c, in.Reading = c, c.Reading
		}
		in.UpdateRules()
		for _, take := range in.Intakes {
			take.Wire()
		}
	}
	return err
}

// reopen returns the outputs that cs describes. It takes them from ch.outs, or opens them. Outputs
// that cannot be opened are omitted, and the last error is returned.
func (ch *change) reopen(cs []*dest.Spec, stdin *os.File) (outs []*output.Output, err error) {
	for _, c := range cs {
		out := ch.outs[c.Name]
		if out == nil {
			var e error
			if out, e = ch.p.openOutput(c, outs, stdin); e != nil {
				err = e
				continue
			}
			ch.outs[c.Name] = out
		}
		outs = append(outs, out)
	}
	return outs, err
}

// openInputs opens the inputs of c that are not open. If a changed input cannot be opened, for
// instance because its new port is in use, openInputs opens it with its previous settings.
func (ch *change) openInputs(c *config.Pipeline) (errs []error) {
	p := ch.p
	inlets := slices.Clone(ch.kept)
	open := func(c *input.Config) error {
		in, err := p.openInlet(c, named(ch.stopped, c.Name, inletName))
		if err != nil {
			return in.WithName(err)
		}
		inlets = append(inlets, in)
		p.begin(in)
		return nil
	}
	refused := map[*LiveInput]error{} // why a changed input could not be opened
	for _, want := range c.Inputs {
		if named(ch.kept, want.Name, inletName) != nil {
			continue
		}
		err := open(want)
		if old := named(ch.stopped, want.Name, inletName); err != nil && old != nil {
			refused[old] = err
		} else if err != nil {
			errs = append(errs, fmt.Errorf("%w; %s", err, staysClosed))
		}
	}
	missing := len(errs) > 0
	for _, old := range ch.stopped {
		err := refused[old]
		if err == nil {
			continue
		}
		what := "the input continues with its previous settings; to try again, change the file or send SIGHUP"
		if open(old.c) != nil {
			what, missing = staysClosed, true
		}
		errs = append(errs, fmt.Errorf("%w; %s", err, what))
	}
	p.Mu.Lock()
	for _, in := range ch.stopped {
		p.past.Add(&in.Counts)
	}
	p.Inlets = inlets
	p.Mu.Unlock()
	p.keepRunning(missing)
	return errs
}

const staysClosed = "the input stays closed until the file is changed or reloaded"

// retire adds the counters of the closed outputs to p.removed. It closes the fallbacks that the
// outputs in outs do not use.
func (ch *change) retire(outs []*output.Output) {
	p := ch.p
	for _, out := range ch.ending {
		if n := out.Report.Dropped[batch.Shutdown]; n > 0 {
			p.Console.Say("output %s: %s lost while it was closed", out.To, plural.Records(n))
		}
		kept := out.Report.Kept()
		if next := named(ch.next.Outs, out.Spec.Name, specName); next != nil && next.Text("spool") == out.Spec.Text("spool") && next.Text("crash-safe") == out.Spec.Text("crash-safe") {
			kept = 0 // the new output with this name delivers the records
		} else if kept > 0 {
			p.Console.Say("output %s: %s remain in %s; deliver them with forebay spool replay", out.To, plural.Records(kept), out.Spec.KeptIn(out.Report.Pending))
		}
		i := slices.IndexFunc(p.removed, func(r removedOutput) bool { return r.to == out.To })
		if i < 0 {
			p.removed = append(p.removed, removedOutput{to: out.To})
			i = len(p.removed) - 1
		}
		r := &p.removed[i]
		r.until = time.Now()
		r.kept += kept
		r.report.Account.Add(out.Report.Account)
		r.report.Unknown += out.Report.Unknown
	}
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for to, f := range p.Fallbacks {
		if slices.ContainsFunc(outs, func(out *output.Output) bool { return out.Fallback == f }) {
			continue
		}
		if err := f.CloseDest(ctx); err != nil {
			p.Console.Say("fallback %s: %s", f.To, console.Plain(err))
		}
		p.Mu.Lock()
		delete(p.Fallbacks, to)
		p.Mu.Unlock()
		delete(p.C.Fallbacks, to)
	}
}
