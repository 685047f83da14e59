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

// A Reading contains settings for parsing the lines of an input.
type Reading struct {
	Format record.Format
	Zone   setting.Zone
	Times  TimesOf
}

// TimesOf selects the time that a record gets.
type TimesOf uint8

const (
	TimeOfLine TimesOf = iota // the time in the line
	TimeOfNow                 // the time of arrival
	TimeOfBoth                // the time in the line; if there is none, the time of arrival, with a field that states this
)

// TimeNames contains the values of --time.
var TimeNames = []string{TimeOfLine: "line", TimeOfNow: "now", TimeOfBoth: "line-or-now"}

// ParseTimes returns the TimesOf for a name in TimeNames. For an unknown name it returns the
// default.
func ParseTimes(name string) TimesOf { return TimesOf(max(0, slices.Index(TimeNames, name))) }

// Parser returns a parser with these settings.
func (r *Reading) Parser() record.Parser {
	return record.Parser{Format: r.Format, Location: r.Zone.Location, Now: time.Now}
}

// An Inlet connects an input with its outputs.
type Inlet struct {
	Name    string // "" if the input is the only one
	Env     *output.Env
	Host    host
	Reading Reading        // changes only while all intakes are locked
	At      dest.Positions // positions of the keys of the input in a configuration file
	Before  any            // during Open: the ended source that this input replaces; nil unless the configuration changes
	Intakes []*Intake
	chain   *transform.Chain // transforms, which each intake clones; nil if there are none
	Counts
}

// A host is the pipeline that an inlet belongs to.
type host interface {
	Outputs() []*output.Output               // all outputs; safe for concurrent use
	OutputsOf(input string) []*output.Output // outputs that receive records of the input; safe for concurrent use
	Rules() []transform.Rule                 // the rules of the transforms
	Destinations() []string                  // the addresses of all outputs and fallbacks
}

// Counts are the counters of an input.
type Counts struct {
	Records  atomic.Uint64 // all lines, including those that other fields count
	Bytes    atomic.Uint64
	Oversize atomic.Uint64
	filtered atomic.Uint64 // lines below --level; 0 unless all outputs have the same level
	unparsed atomic.Uint64
	removed  atomic.Uint64 // lines removed by transforms
	Lost     atomic.Uint64 // bytes in deleted or truncated files that were not read
	LostIn   atomic.Uint64 // number of files with lost bytes
}

// A Tally is the sum of the counters of several inputs.
type Tally struct{ Records, Bytes, Oversize, Filtered, Unparsed, Removed, Lost, LostIn uint64 }

// Add adds the counters in c to t.
func (t *Tally) Add(c *Counts) {
	t.Records += c.Records.Load()
	t.Bytes += c.Bytes.Load()
	t.Oversize += c.Oversize.Load()
	t.Filtered += c.filtered.Load()
	t.Unparsed += c.unparsed.Load()
	t.Removed += c.removed.Load()
	t.Lost += c.Lost.Load()
	t.LostIn += c.LostIn.Load()
}

// WithName adds the name of the input to err, if the input has a name. It does not change an error
// with a position in the configuration file.
func (in *Inlet) WithName(err error) error {
	if err == nil || in.Name == "" || output.IsKeyError(err) {
		return err
	}
	return fmt.Errorf("input %s: %w", in.Name, err)
}

// Outs returns the outputs that receive records of the input. It is safe for concurrent use.
func (in *Inlet) Outs() []*output.Output { return in.Host.OutputsOf(in.Name) }

// Commit waits until all outputs of the input have delivered the records that they have accepted,
// or have written them to a spool.
func (in *Inlet) Commit(ctx context.Context) error { return Commit(ctx, in.Outs()) }

// Commit waits until all outputs in outs have delivered the records that they have accepted, or
// have written them to a spool.
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

// UpdateRules creates the transforms from the current rules. An intake uses them after its next
// call of Wire.
func (in *Inlet) UpdateRules() {
	if in.chain = nil; len(in.Host.Rules()) == 0 {
		return
	}
	parser := in.Reading.Parser()
	c, faults := transform.New(in.Host.Rules(), &parser)
	if len(faults) > 0 {
		panic(fmt.Sprintf("forebay: validated rules are invalid: %v", faults)) // unreachable, because package config has validated the rules
	}
	in.chain = c
}
