package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/internal/record"
)

// A Reading says how the lines of an input are read.
type Reading struct {
	Format record.Format
	Zone   setting.Zone
	Times  TimesOf
}

// TimesOf says which time a line has.
type TimesOf uint8

const (
	TimeOfLine TimesOf = iota // the one in it
	TimeOfNow                 // that of its arrival
	TimeOfBoth                // the one in it; that of its arrival, with a mark, where it has none
)

var TimeNames = []string{TimeOfLine: "line", TimeOfNow: "now", TimeOfBoth: "line-or-now"}

// ParseTimes returns the value with that name; "" is the default.
func ParseTimes(name string) TimesOf { return TimesOf(max(0, slices.Index(TimeNames, name))) }

// Parser returns what reads lines.
func (r *Reading) Parser() record.Parser {
	return record.Parser{Format: r.Format, Location: r.Zone.Location, Now: time.Now}
}

// An Inlet is the entrance of an input to the outputs.
type Inlet struct {
	Name    string // "": it is the only one
	Env     *output.Env
	Host    host
	Reading Reading        // changes while all intakes are held
	At      dest.Positions // of its keys in a configuration file
	Intakes []*Intake
	chain   *transform.Chain // the transforms, for intakes to clone; nil: none
	Counts
}

// A host is the pipeline of an inlet.
type host interface {
	Outputs() []*output.Output // the present outputs; for any goroutine
	Rules() []transform.Rule
	Destinations() []string // the addresses of all outputs and fallbacks
}

// Counts are what reading has done.
type Counts struct {
	Records  atomic.Uint64 // lines read, those below included
	Bytes    atomic.Uint64
	Oversize atomic.Uint64
	filtered atomic.Uint64 // below --level, if that is one for all
	unparsed atomic.Uint64
	left     atomic.Uint64 // left out by transforms
	Lost     atomic.Uint64 // bytes of files that were gone before they were read
	LostIn   atomic.Uint64 // such files
}

// A Tally is the sum of counts.
type Tally struct{ Records, Bytes, Oversize, Filtered, Unparsed, Left, Lost, LostIn uint64 }

func (t *Tally) Add(c *Counts) {
	t.Records += c.Records.Load()
	t.Bytes += c.Bytes.Load()
	t.Oversize += c.Oversize.Load()
	t.Filtered += c.filtered.Load()
	t.Unparsed += c.unparsed.Load()
	t.Left += c.left.Load()
	t.Lost += c.Lost.Load()
	t.LostIn += c.LostIn.Load()
}

// Of says that an error is one of in.
func (in *Inlet) Of(err error) error {
	if err == nil || in.Name == "" || output.IsKeyError(err) {
		return err
	}
	return fmt.Errorf("input %s: %w", in.Name, err)
}

// Outs returns the outputs that the lines of in go to.
func (in *Inlet) Outs() (outs []*output.Output) {
	for _, out := range in.Host.Outputs() {
		if out.Spec.Route.Takes(in.Name) {
			outs = append(outs, out)
		}
	}
	return outs
}

// Commit waits until every output of in has delivered what it took, or put it into its
// spool.
func (in *Inlet) Commit(ctx context.Context) error { return Commit(ctx, in.Outs()) }

func Commit(ctx context.Context, outs []*output.Output) error {
	errs := make([]error, len(outs))
	var wg sync.WaitGroup
	for i, out := range outs {
		wg.Go(func() {
			if err := out.Delivery.Commit(ctx); !out.Drained.Load() {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Rule has the records of in changed as the rules say, from the next wire of its intakes on.
func (in *Inlet) Rule() {
	if in.chain = nil; len(in.Host.Rules()) == 0 {
		return
	}
	parser := in.Reading.Parser()
	c, faults := transform.New(in.Host.Rules(), &parser)
	if len(faults) > 0 {
		panic(fmt.Sprintf("forebay: rules that were looked at: %v", faults)) // addRules has
	}
	in.chain = c
}
