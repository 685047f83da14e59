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
	"github.com/forebay-log/forebay/internal/layout"
)

// MaxRecordFlag is the largest value of --max-record. It is half the limit for a record, because
// the JSON form of a line may be longer than the line.
const MaxRecordFlag = layout.MaxSlabBytes / 2

// A Pipeline is the complete configuration of a run. It is read from the flags of forebay pipe or
// from a configuration file.
type Pipeline struct {
	Name    string
	To      []string
	Dests   []dest.Destination
	Options dest.Given // options that apply to all outputs
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
	Named        bool // outputs have names, because they are from a configuration file

	// Settle sets the following fields from flags. Parse sets them from a configuration file.
	Text      intake.Text   // how the input is split into records
	declared  []string      // names of all inputs in the file, even if they have faults
	partial   bool          // the end of the file was not read, because of a syntax error
	items     map[any]*item // keys are of type *input.Config and *dest.Spec; nil after Parse
	Inputs    []*input.Config
	Rules     []transform.Rule
	Outs      []*dest.Spec
	Fallbacks map[string]*dest.Spec // keys are values of --fallback
}

// Settle sets Text, Outs and Fallbacks from the flags. Errors have exit codes.
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
