package run

import (
	"context"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/closetime"
)

// Open opens the outputs. If an output cannot be opened, Open closes the others and returns the
// error.
func (p *Pipeline) Open(stdin *os.File) (err error) {
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	seen := map[string]string{} // names by their form with a port
	for _, c := range p.C.Outs {
		name := config.WithPort(c.Name)
		switch other := seen[name]; {
		case other == c.Name:
			return fmt.Errorf("--to %s is given twice: it would receive every line twice", setting.Redact(c.Name))
		case other != "":
			return fmt.Errorf("--to %s: it is the same destination as --to %s: it would receive every line twice", setting.Redact(c.Name), setting.Redact(other))
		}
		seen[name] = c.Name
		out, err := p.openOutput(c, p.Outs, stdin)
		if err != nil {
			return err
		}
		p.Outs = append(p.Outs, out)
	}
	leftovers{p}.reportOrphans()
	return nil
}

// openOutput opens the output c. others contains the open outputs.
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
	for _, in := range p.Inlets { // inputs that are opened later make this check
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

// OpenFallback opens the fallback with the Spec c.
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

// toFlag returns the word before the name of an output in messages.
func (p *Pipeline) toFlag() string {
	if p.C.Named {
		return "output"
	}
	return "--to"
}

// distinct returns an error if out writes to the file of another output, or to the file that
// standard input reads. If it wrote to that file, the program would read its own output forever.
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

// abandon closes all outputs after an error at startup. No records were written to them.
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

// onTerminal reports whether an output writes to a terminal.
func (p *Pipeline) onTerminal() bool {
	for _, out := range p.Outs {
		if out.Target.Tty {
			return true
		}
	}
	return false
}
