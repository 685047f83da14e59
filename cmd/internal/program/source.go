package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/internal/record"
)

// An inputConfig says where lines come from, and how they are read.
type inputConfig struct {
	name    string         // "": it is the only one
	Values  setting.Values // of a configuration file
	item    *item          // where it stands there, while it is read
	at      positions      // of its keys there
	secrets [32]byte       // a sum of the files with keys and passwords
	reading
	kind inputKind
}

// state returns the directory of positions of an input in a configuration file; "": none.
func (c *inputConfig) state() string {
	if c.Values.ByName == nil {
		return ""
	}
	return c.Values.Text("state")
}

// An inputKind is a kind of input, and what is to be known of one.
type inputKind interface {
	// open opens the source of in. The outputs are open. It makes the intakes of in.
	open(in *inlet) (source, error)
}

// A reading says how the lines of an input are read.
type reading struct {
	format record.Format
	zone   setting.Zone
	times  timesOf
}

// timesOf says which time a line has.
type timesOf uint8

const (
	timeOfLine timesOf = iota // the one in it
	timeOfNow                 // that of its arrival
	timeOfBoth                // the one in it; that of its arrival, with a mark, where it has none
)

var timeNames = []string{timeOfLine: "line", timeOfNow: "now", timeOfBoth: "line-or-now"}

// parseTimes returns what a name stands for; "" for the default.
func parseTimes(name string) timesOf { return timesOf(max(0, slices.Index(timeNames, name))) }

// parser returns what reads lines.
func (r *reading) parser() record.Parser {
	return record.Parser{Format: r.format, Location: r.zone.Location, Now: time.Now}
}

// A source is where the lines of an inlet come from.
type source interface {
	// read takes lines until the source ends, or stop is called. It is called once.
	read() error
	// stop makes read return soon. It may be called at any time, from any goroutine.
	stop()
	// finish is called after read, when the outputs are closed. delivered says that
	// they have delivered, dropped for a reason, or kept everything that was read.
	finish(delivered bool) error
	// close releases what the source holds.
	close()
	// readsAgain says who gives a line again that was read and not delivered; "":
	// nobody.
	readsAgain() string
}

// An inlet is an input at work.
type inlet struct {
	name    string       // "": it is the only one
	c       *inputConfig // changes while all intakes are held
	p       *pipeline
	src     source
	intakes []*intake
	chain   *transform.Chain // what it does to records, for intakes to clone; nil: nothing
	ended   chan struct{}    // closed when src has been read
	counts
}

// counts are what reading has done.
type counts struct {
	records  atomic.Uint64 // lines read, those below included
	bytes    atomic.Uint64
	oversize atomic.Uint64
	filtered atomic.Uint64 // below --level, if that is one for all
	unparsed atomic.Uint64
	left     atomic.Uint64 // left out by transforms
	lost     atomic.Uint64 // bytes of files that were gone before they were read
	lostIn   atomic.Uint64 // such files
}

// A tally is the sum of counts.
type tally struct{ records, bytes, oversize, filtered, unparsed, left, lost, lostIn uint64 }

func (t *tally) add(c *counts) {
	t.records += c.records.Load()
	t.bytes += c.bytes.Load()
	t.oversize += c.oversize.Load()
	t.filtered += c.filtered.Load()
	t.unparsed += c.unparsed.Load()
	t.left += c.left.Load()
	t.lost += c.lost.Load()
	t.lostIn += c.lostIn.Load()
}

// read is what all inputs have done.
func (p *pipeline) read() tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.past
	for _, in := range p.inlets {
		t.add(&in.counts)
	}
	return t
}

// openInputs opens the inputs. The outputs are open.
func (p *pipeline) openInputs() error {
	for _, c := range p.c.inputs {
		in, err := p.openInlet(c)
		if err != nil {
			p.closeInputs()
			return in.of(err)
		}
		p.mu.Lock()
		p.inlets = append(p.inlets, in)
		p.mu.Unlock()
	}
	return nil
}

// openInlet opens an input. The outputs are open.
func (p *pipeline) openInlet(c *inputConfig) (*inlet, error) {
	in := &inlet{name: c.name, c: c, p: p}
	in.rule()
	var err error
	in.src, err = c.kind.open(in)
	return in, err
}

// stdinInput is standard input.
type stdinInput struct {
	f    *os.File
	join *join.Rules // nil: each line is a record
}

// A stdinSource reads it.
type stdinSource struct {
	*input
	take    *intake
	join    *join.Rules
	ahead   *readahead.File   // keeps the input for the next run; nil: none
	earlier []*readahead.File // what earlier runs have read
}

func (k stdinInput) open(in *inlet) (source, error) {
	f, err := newInput(k.f)
	if err != nil {
		return nil, exit.Runtime(err)
	}
	s := &stdinSource{input: f, take: in.newIntake(), join: k.join}
	if err := s.openAhead(in.p); err != nil {
		f.close()
		return nil, exit.Config(err)
	}
	return s, nil
}

// read takes lines from what earlier runs have read, then from the input until it ends.
func (s *stdinSource) read() error {
	for _, f := range s.earlier {
		err := s.take.readFrom(f, f, s.join, nil, true)
		f.Close()
		if err != nil {
			return fmt.Errorf("cannot read standard input: %w", err)
		}
	}
	var err error
	if s.ahead == nil {
		err = s.take.readFrom(s.input, nil, s.join, s.wait, false)
	} else {
		defer s.ahead.Close()
		err = s.take.readFrom(s.ahead, s.ahead, s.join, func(d time.Duration) bool {
			return !s.ahead.Waits() || s.wait(d)
		}, false)
	}
	if err != nil {
		return fmt.Errorf("cannot read standard input: %w", err)
	}
	return nil
}

func (*stdinSource) finish(bool) error  { return nil }
func (*stdinSource) readsAgain() string { return "" }

// outputs returns the outputs. Any goroutine may ask.
func (p *pipeline) outputs() []*output {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.outs)
}

// stop asks all inputs to end, after a change under way.
func (p *pipeline) stop() {
	p.changes.end()
	p.await(false)
	for _, in := range p.inlets {
		in.src.stop()
	}
}

// begin lets an inlet read, on a goroutine of its own.
func (p *pipeline) begin(in *inlet) {
	p.mu.Lock()
	p.live++
	p.mu.Unlock()
	in.ended = make(chan struct{})
	go func() {
		err := in.src.read()
		close(in.ended)
		p.leave(in.of(err))
	}()
}

// leave takes back one of live, an inlet that ended with err.
func (p *pipeline) leave(err error) {
	p.mu.Lock()
	if err != nil {
		p.errs = append(p.errs, err)
	}
	p.live--
	last := p.live == 0
	p.mu.Unlock()
	switch {
	case last:
		close(p.over)
	case err != nil:
		p.con.Say("%s; the other inputs continue", err)
	}
}

// finishInputs tells the inputs what became of what they read.
func (p *pipeline) finishInputs() {
	for _, in := range p.inlets {
		delivered := true
		for _, out := range in.outs() {
			delivered = delivered && out.report.Dropped[batch.Shutdown] == 0
		}
		if err := in.src.finish(delivered); err != nil {
			p.unstored = true
			p.lastly = append(p.lastly, in.of(err).Error())
		}
	}
}

// of says that an error is one of in.
func (in *inlet) of(err error) error {
	if err == nil || in.name == "" || isKeyError(err) {
		return err
	}
	return fmt.Errorf("input %s: %w", in.name, err)
}

// closeInputs releases what the inputs hold.
func (p *pipeline) closeInputs() {
	for _, in := range p.inlets {
		in.src.close()
	}
}

// readsAgain says who gives lines again that were read and not delivered; "": for some,
// nobody does.
func (p *pipeline) readsAgain() (by string) {
	for i, in := range p.inlets {
		switch again := in.src.readsAgain(); {
		case again == "":
			return ""
		case i == 0:
			by = again
		case by != again:
			by += ", and " + again
		}
	}
	return by
}

// destinationNames returns what --to and --fallback name, without options.
func (p *pipeline) destinationNames() (names []string) {
	for _, c := range p.c.outs {
		names = append(names, c.To)
	}
	for _, c := range p.c.fallbacks {
		names = append(names, c.To)
	}
	return names
}

// outs returns the outputs that the lines of in go to.
func (in *inlet) outs() (outs []*output) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	for _, out := range in.p.outs {
		if out.c.route.takes(in.name) {
			outs = append(outs, out)
		}
	}
	return outs
}

// commit waits until every output of in has delivered what it took, or put it into its
// spool.
func (in *inlet) commit(ctx context.Context) error { return commit(ctx, in.outs()) }

func commit(ctx context.Context, outs []*output) error {
	errs := make([]error, len(outs))
	var wg sync.WaitGroup
	for i, out := range outs {
		wg.Go(func() {
			if err := out.d.Commit(ctx); !out.drained.Load() {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
