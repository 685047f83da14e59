package program

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
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// changes brings what stands in a configuration file into a pipeline that runs: when it
// is asked to, or when the file changes. No record is lost by it. What is the same before
// and after goes on untouched.
//
// An output that changes is closed when it has delivered all it has, or has it on disk,
// while no input writes. If it cannot in time, nothing is changed. An input that changes is
// read to its end, its positions are stored, and it is opened anew.
//
// A nil *changes is that of a pipeline without a file.
type changes struct {
	file  string
	stdin *os.File
	poll  bool // look at the file from time to time

	data   []byte // that was in force at the start
	asked  chan struct{}
	ctx    context.Context // ends when the pipeline does
	cancel context.CancelFunc
	fatal  chan struct{} // closed when the pipeline has to end: an output is gone that cannot be had again
	done   chan struct{} // closed when nobody changes anything any more; nil: nobody will
}

// pollEvery is how often the file is looked at.
const pollEvery = time.Second

// changePatience is how long an input may hold up a change, and so how long others may wait
// for one that comes to nothing.
const changePatience = 5 * time.Second

func newChanges(file string, data []byte, stdin *os.File, poll bool) *changes {
	c := &changes{file: file, stdin: stdin, poll: poll, data: data, asked: make(chan struct{}, 1), fatal: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// failed returns what is closed when the pipeline has to end.
func (c *changes) failed() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.fatal
}

// ask has the file read again soon.
func (c *changes) ask() {
	if c != nil {
		select {
		case c.asked <- struct{}{}:
		default:
		}
	}
}

// begin brings changes into p until end.
func (c *changes) begin(p *pipeline) {
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
				data, err := readFileMost(c.file)
				still := err == nil && bytes.Equal(data, last)
				if last = data; !still || bytes.Equal(data, seen) {
					continue // it is being written, or is as it was
				}
				seen = data
			case <-c.asked:
			}
			if !c.bring(p) {
				close(c.fatal)
				return
			}
		}
	}()
}

// end waits until the change under way has ended. None begins after it.
func (c *changes) end() {
	if c == nil {
		return
	}
	c.cancel()
	if c.done != nil {
		<-c.done
	}
}

// bring reads the file, makes p as it says, and tells what came of it. It reports false if
// the pipeline cannot go on.
func (c *changes) bring(p *pipeline) bool {
	next, _, err := loadConfig(c.file, c.stdin)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			p.con.Say("%s", strings.TrimSpace(line))
		}
		p.con.Say("%s: not applied; the running configuration is unchanged", c.file)
		return true
	}
	changed, err := p.change(c.ctx, next, c.stdin)
	switch {
	case c.ctx.Err() != nil: // the end is more important
	case errors.Is(err, errStranded):
		p.mu.Lock()
		p.errs = append(p.errs, err)
		p.mu.Unlock()
		return false
	case err != nil:
		text := err.Error()
		if !strings.HasPrefix(text, c.file+":") { // an error of a key has its place
			text = c.file + ": " + text
		}
		p.con.Say("%s", text)
	case len(changed) == 0:
		p.con.Say("%s: nothing has changed", c.file)
	default:
		p.con.Say("%s: applied: %s", c.file, strings.Join(changed, ", "))
	}
	return true
}

// A turn is had by one at a time.
type turn chan struct{}

// take waits for the turn until ctx is done.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) leave() { <-t }

// errStranded says that an output is gone whose records have no other place.
var errStranded = errors.New("forebay stops; the next run reads the records again")

// A change is what is to become of the inputs and outputs of a pipeline.
type change struct {
	p    *pipeline
	next *pipeConfig

	stopped []*inlet  // that are to go, or to come back changed
	ending  []*output // likewise
	kept    []*inlet
	said    []string

	outs map[string]*output // those that stay, and those that are open anew, by name
}

// change makes the inputs and outputs of p those of next. It says what it has changed. After
// an error all is as it was, unless the error says otherwise.
func (p *pipeline) change(ctx context.Context, next *pipeConfig, stdin *os.File) ([]string, error) {
	if err := p.changing.take(ctx); err != nil {
		return nil, err
	}
	defer p.changing.leave()
	if !p.join() {
		return nil, errors.New("the input ended first")
	}
	defer p.leave(nil)
	ch := &change{p: p, next: next, outs: map[string]*output{}}
	if err := ch.fixed(); err != nil {
		return nil, err
	}
	ch.compare()
	if len(ch.said) == 0 {
		return nil, nil
	}
	if err := ch.make(ctx, stdin); err != nil {
		return ch.said, err
	}
	p.rememberDirs()
	return ch.said, nil
}

// join counts a change as live. It reports false if the inputs have ended.
func (p *pipeline) join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == 0 {
		return false
	}
	p.live++
	return true
}

// fixed refuses what cannot change while the pipeline runs.
func (ch *change) fixed() error {
	a, b := ch.p.c, ch.next
	var names []string
	for name, same := range map[string]bool{
		"name": a.name == b.name, "max-record": a.maxRecord == b.maxRecord, "drain-timeout": a.drainTimeout == b.drainTimeout,
		"fail-on-drop": a.failOnDrop == b.failOnDrop, "metrics": a.ops.metrics == b.ops.metrics, "control": a.ops.control == b.ops.control,
		"pprof": a.ops.pprof == b.ops.pprof, "summary": a.ops.summary.Value == b.ops.summary.Value,
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

// await says whether an input is missing that a later change may bring: the pipeline does not
// end for want of it.
func (p *pipeline) await(missing bool) {
	switch {
	case missing && !p.waits:
		p.waits = p.join()
	case !missing && p.waits:
		p.waits = false
		p.leave(nil)
	}
}

func inputNamed(c *pipeConfig, name string) *inputConfig {
	for _, in := range c.inputs {
		if in.name == name {
			return in
		}
	}
	return nil
}

func outputNamed(c *pipeConfig, name string) *outputConfig {
	for _, out := range c.outs {
		if out.name == name {
			return out
		}
	}
	return nil
}

// compare finds what changes.
func (ch *change) compare() {
	say := func(format string, args ...any) { ch.said = append(ch.said, fmt.Sprintf(format, args...)) }
	for _, in := range ch.p.inlets {
		switch c := inputNamed(ch.next, in.name); {
		case c == nil:
			ch.stopped = append(ch.stopped, in)
			say("input %s is gone", in.name)
		case !sameInput(in.c, c):
			ch.stopped = append(ch.stopped, in)
			say("input %s has changed", c.name)
		default:
			ch.kept = append(ch.kept, in)
			if !sameReading(in.c, c) {
				say("input %s has a new format, time or zone", c.name)
			}
		}
	}
	for _, c := range ch.next.inputs {
		if !slices.ContainsFunc(ch.p.inlets, func(in *inlet) bool { return in.name == c.name }) {
			say("input %s is new", c.name)
		}
	}
	for _, out := range ch.p.outs {
		switch c := outputNamed(ch.next, out.c.name); {
		case c == nil:
			ch.ending = append(ch.ending, out)
			say("output %s is gone", out.to)
		case !sameOutput(out.c, c):
			ch.ending = append(ch.ending, out)
			say("output %s has changed", out.to)
		default:
			ch.outs[c.name] = out
			if *out.c.Level() != *c.Level() {
				say("output %s: level %s, not %s", out.to, c.Level().Words(), out.c.Level().Words())
			}
			if !sameRoute(out.c, c) {
				say("output %s has a new from, where or level", out.to)
			}
		}
	}
	for _, c := range ch.next.outs {
		if !slices.ContainsFunc(ch.p.outs, func(out *output) bool { return out.c.name == c.name }) {
			say("output %s is new", c.name)
		}
	}
	if !sameRules(ch.p.c, ch.next) {
		say("transforms have changed")
	}
}

// make does what compare has found.
func (ch *change) make(ctx context.Context, stdin *os.File) (err error) {
	p := ch.p
	if err := ch.openNew(stdin); err != nil {
		return fmt.Errorf("%w; the running configuration is unchanged", err)
	}
	patience, cancel := context.WithTimeout(ctx, time.Duration(p.c.drainTimeout))
	defer cancel()
	if err := ch.drained(patience); err != nil {
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
		c = p.c
	}
	return errors.Join(append([]error{err}, ch.openInputs(c)...)...)
}

// endInputs reads the inputs that are to be closed to their end. An input may wait for room
// in an output: it cannot be left alone with the line that it holds.
func (ch *change) endInputs(ctx context.Context) error {
	if err := ch.flow(ctx); err != nil {
		return err
	}
	for _, in := range ch.stopped {
		in.src.stop()
	}
	for _, in := range ch.stopped {
		select {
		case <-in.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		patience, cancel := context.WithTimeout(ctx, changePatience)
		delivered := in.commit(patience) == nil // else its last lines come again
		cancel()
		if err := in.src.finish(delivered); err != nil {
			ch.p.con.Say("%s", in.of(err))
		}
		in.src.close()
	}
	return nil
}

// flow looks whether the inputs that are to be closed get rid of their lines.
func (ch *change) flow(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for _, in := range ch.stopped {
		for _, take := range in.intakes {
			release, err := take.hold(patience)
			if err != nil {
				return in.waits()
			}
			release()
		}
	}
	return nil
}

// waits says that a change cannot be made because of in.
func (in *inlet) waits() error {
	return fmt.Errorf("input %s is waiting for room in an output; the running configuration is unchanged, try again later", in.name)
}

// openNew opens the outputs that are new.
func (ch *change) openNew(stdin *os.File) error {
	p := ch.p
	maps.Copy(p.c.fallbacks, ch.next.fallbacks)
	var staying []*output
	for _, out := range p.outs {
		if !slices.Contains(ch.ending, out) {
			staying = append(staying, out)
		}
	}
	for _, c := range ch.next.outs {
		if ch.outs[c.name] != nil || slices.ContainsFunc(ch.ending, func(out *output) bool { return out.c.name == c.name }) {
			continue
		}
		out, err := p.openOutput(c, staying, stdin)
		if err != nil {
			ch.abandonNew()
			return err
		}
		ch.outs[c.name] = out
		staying = append(staying, out)
	}
	return nil
}

// abandonNew closes the outputs that openNew has opened.
func (ch *change) abandonNew() {
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for _, out := range ch.outs {
		if !slices.Contains(ch.p.outs, out) {
			out.shutdown(ctx)
		}
	}
}

// drained waits until the outputs that are to be closed have delivered all they have, or
// have it on disk.
func (ch *change) drained(ctx context.Context) error {
	if commit(ctx, ch.ending) == nil {
		return nil
	}
	for _, out := range ch.ending {
		if left := out.d.Stats().Pending; left.Slab+left.Inflight > 0 {
			return fmt.Errorf("output %s has undelivered records and no spool to keep them in (%s); the running configuration is unchanged, try again later", out.to, plural.Records(left.Slab+left.Inflight))
		}
	}
	return errors.New("an output does not deliver; the running configuration is unchanged, try again later")
}

// swap puts the outputs of next in place of those of p, while no input writes.
func (ch *change) swap(ctx context.Context, stdin *os.File) error {
	p := ch.p
	patience, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for _, in := range ch.kept {
		for _, take := range in.intakes {
			release, err := take.hold(patience)
			if err != nil {
				return in.waits()
			}
			defer release()
		}
	}
	if err := ch.drained(patience); err != nil {
		return err
	}
	for _, out := range ch.ending {
		out.drained.Store(true)
		out.shutdown(patience)
		out.settle()
	}
	outs, err := ch.reopen(ch.next.outs, stdin)
	if err != nil {
		// What was there a moment ago can be had again, as a rule.
		ch.abandonNew()
		ch.outs = map[string]*output{}
		for _, out := range p.outs {
			if !slices.Contains(ch.ending, out) {
				ch.outs[out.c.name] = out
			}
		}
		var worse error
		if outs, worse = ch.reopen(p.c.outs, stdin); worse != nil {
			err = fmt.Errorf("%w; with the previous settings: %w; %w", err, worse, errStranded)
			for _, out := range ch.ending { // closed, it takes nothing, and nothing is committed
				if ch.outs[out.c.name] == nil {
					out.drained.Store(false)
					outs = append(outs, out)
				}
			}
		} else {
			err = fmt.Errorf("%w; the running configuration is unchanged", err)
		}
	} else {
		p.c.outs, p.c.rules, p.c.inputs = ch.next.outs, ch.next.rules, ch.next.inputs
		ch.retire(outs)
	}
	p.mu.Lock()
	p.outs = outs
	for _, out := range outs {
		if c := outputNamed(p.c, out.c.name); c != nil {
			out.c.route, *out.c.Level() = c.route, *c.Level()
		}
	}
	p.mu.Unlock()
	for _, in := range ch.kept {
		if c := inputNamed(p.c, in.name); c != nil {
			in.c = c
		}
		in.rule()
		for _, take := range in.intakes {
			take.wire()
		}
	}
	return err
}

// reopen returns the outputs that cs describes: those of ch.outs, and others that it opens.
// The error is that of the last one that cannot be opened, which is left out.
func (ch *change) reopen(cs []*outputConfig, stdin *os.File) (outs []*output, err error) {
	for _, c := range cs {
		out := ch.outs[c.name]
		if out == nil {
			var e error
			if out, e = ch.p.openOutput(c, outs, stdin); e != nil {
				err = e
				continue
			}
			ch.outs[c.name] = out
		}
		outs = append(outs, out)
	}
	return outs, err
}

// openInputs opens those inputs that do not run.
func (ch *change) openInputs(c *pipeConfig) (errs []error) {
	p := ch.p
	inlets := slices.Clone(ch.kept)
	for _, want := range c.inputs {
		if slices.ContainsFunc(ch.kept, func(in *inlet) bool { return in.name == want.name }) {
			continue
		}
		in, err := p.openInlet(want)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w; the input stays closed until the file is changed or reloaded", in.of(err)))
			continue
		}
		inlets = append(inlets, in)
		p.begin(in)
	}
	p.mu.Lock()
	for _, in := range ch.stopped {
		p.past.add(&in.counts)
	}
	p.inlets = inlets
	p.mu.Unlock()
	p.await(len(errs) > 0)
	return errs
}

// A retired is what has become of the records of outputs of that name that are gone.
type retired struct {
	to     string
	until  time.Time
	report batch.Report
	kept   uint64 // records that lie on disk, and that no output has taken over
}

// retire notes what has become of the records of the outputs that are closed, now that outs
// are there, and closes the fallbacks that nobody needs any more.
func (ch *change) retire(outs []*output) {
	p := ch.p
	for _, out := range ch.ending {
		if n := out.report.Dropped[batch.Shutdown]; n > 0 {
			p.con.Say("output %s: %s lost while it was closed", out.to, plural.Records(n))
		}
		kept := out.report.Kept()
		if heir := outputNamed(ch.next, out.c.name); heir != nil && heir.Text("spool") == out.c.Text("spool") && heir.Text("crash-safe") == out.c.Text("crash-safe") {
			kept = 0 // its heir has them
		} else if kept > 0 {
			p.con.Say("output %s: %s remain in %s; deliver them with forebay spool replay", out.to, plural.Records(kept), out.c.keptIn(out.report.Pending))
		}
		i := slices.IndexFunc(p.gone, func(r retired) bool { return r.to == out.to })
		if i < 0 {
			p.gone = append(p.gone, retired{to: out.to})
			i = len(p.gone) - 1
		}
		r := &p.gone[i]
		r.until = time.Now()
		r.kept += kept
		r.report.Account.Add(out.report.Account)
		r.report.Unknown += out.report.Unknown
	}
	ctx, cancel := context.WithTimeout(context.Background(), closetime.Disk)
	defer cancel()
	for to, f := range p.fallbacks {
		if slices.ContainsFunc(outs, func(out *output) bool { return out.fallback == f }) {
			continue
		}
		if err := f.closeDest(ctx); err != nil {
			p.con.Say("fallback %s: %s", f.to, console.Plain(err))
		}
		p.mu.Lock()
		delete(p.fallbacks, to)
		p.mu.Unlock()
		delete(p.c.fallbacks, to)
	}
}
