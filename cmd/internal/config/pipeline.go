package config

import (
	"fmt"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/slab"
)

// MaxRecordFlag is the largest value of --max-record. A line encoded as JSON may be longer than the
// line, and no record may exceed slab.MaxSlabBytes.
const MaxRecordFlag = slab.MaxSlabBytes / 2

// A Pipeline is the complete configuration of a run, read from the flags of forebay pipe or from a
// configuration file.
type Pipeline struct {
	Name    string
	To      []string
	Dests   []dest.Destination
	Options dest.Given // for all outputs
	intake.Reading
	MaxRecord    setting.Size
	DrainTimeout setting.Duration
	FailOnDrop   bool
	Quiet        bool
	DryRun       bool
	Multiline    []string
	Charset      input.Charset
	Tail         *input.Tail // nil if the input is standard input
	Ops          Ops
	Named        bool // outputs have names (configuration file); To contains them

	// Set by Settle.
	Text      intake.Text   // of the input
	declared  []string      // names of all inputs in the file, including those with faults
	partial   bool          // the file was not read to its end
	items     map[any]*item // by *input.Config and *dest.Spec; nil after the file was read
	Inputs    []*input.Config
	Rules     []transform.Rule
	Outs      []*dest.Spec
	Fallbacks map[string]*dest.Spec // by the value of --fallback
}

// Settle computes the options of each output from the flags. Its errors carry exit codes.
func (c *Pipeline) Settle() error {
	if err := c.Ops.check(); err != nil {
		return exit.Usage(err)
	}
	rules, err := join.Parse(c.Multiline)
	if err != nil {
		return exit.Usage(fmt.Errorf("--multiline: %w", err))
	}
	c.Text = intake.Text{Charset: c.Charset.Charset, Join: rules}
	if len(c.To) == 0 {
		c.To = []string{"stdout:"}
	}
	c.Options.Base.DryRun = c.DryRun
	c.Outs, c.Fallbacks = nil, map[string]*dest.Spec{}
	for _, to := range c.To {
		out, err := c.Options.Output(c.Dests, "--to", to, dest.AnyOption)
		if err != nil {
			return err
		}
		c.Outs = append(c.Outs, out)
	}
	for _, out := range c.Outs {
		if out.Text("fallback") == "" || c.Fallbacks[out.Text("fallback")] != nil {
			continue
		}
		f, err := c.Options.Output(c.Dests, "--fallback", out.Text("fallback"), dest.OwnOption)
		if err != nil {
			return err
		}
		c.Fallbacks[out.Text("fallback")] = f
	}
	return c.Options.Unused()
}
