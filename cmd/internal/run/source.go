package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// Read returns the sum of the counters of all inputs since the start, including removed inputs.
func (p *Pipeline) Read() intake.Tally {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	t := p.past
	for _, in := range p.Inlets {
		t.Add(&in.Counts)
	}
	return t
}

// OpenInputs opens all inputs. The outputs must be open.
func (p *Pipeline) OpenInputs() error {
	_ = p.changing.lock(context.Background()) // an intake reads the levels of the outputs
	defer p.changing.unlock()
	for _, c := range p.C.Inputs {
		in, err := p.openInlet(c, nil)
		if err != nil {
			p.CloseInputs()
			return in.WithName(err)
		}
		p.Mu.Lock()
		p.Inlets = append(p.Inlets, in)
		p.Mu.Unlock()
	}
	return nil
}

// openInlet opens an input. The outputs must be open. If openInlet returns an error, the LiveInput
// can only be used to describe the error.
func (p *Pipeline) openInlet(c *input.Config, before *LiveInput) (*LiveInput, error) {
	in := &LiveInput{Inlet: &intake.Inlet{Name: c.Name, Env: p.Env, Host: p, Reading: c.Reading, At: c.At}, c: c}
	in.UpdateRules()
	if before != nil {
		in.Before = before.Src
	}
	var err error
	in.Src, err = c.Kind.Open(in.Inlet)
	in.Before = nil
	return in, err
}

// Outputs returns the current outputs. It is safe for concurrent use.
func (p *Pipeline) Outputs() []*output.Output {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return slices.Clone(p.Outs)
}

// OutputsOf returns the current outputs that receive records of the named input. It is safe for
// concurrent use, because a commit may run while the configuration changes.
func (p *Pipeline) OutputsOf(input string) (outs []*output.Output) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for _, out := range p.Outs {
		if out.Spec.Route.Selects(input) {
			outs = append(outs, out)
		}
	}
	return outs
}

// Stop waits for a change in progress and stops all inputs.
func (p *Pipeline) Stop() {
	p.Changes.end()
	p.keepRunning(false)
	for _, in := range p.Inlets {
		in.Src.Stop()
	}
}

// begin starts the goroutine that reads the input.
func (p *Pipeline) begin(in *LiveInput) {
	p.Mu.Lock()
	p.Live++
	p.Mu.Unlock()
	in.ended = make(chan struct{})
	go func() {
		err := in.Src.Run()
		close(in.ended)
		p.releaseLive(in.WithName(err))
	}()
}

// releaseLive decrements Live. If an input has ended with an error, err is that error.
func (p *Pipeline) releaseLive(err error) {
	p.Mu.Lock()
	if err != nil {
		p.errs = append(p.errs, err)
	}
	p.Live--
	last := p.Live == 0
	p.Mu.Unlock()
	switch {
	case last:
		close(p.inputsDone)
	case err != nil:
		p.Console.Say("%s; the other inputs continue", err)
	}
}

// finishInputs calls Finish of all inputs. It determines for each input whether all records were
// delivered.
func (p *Pipeline) finishInputs() {
	for _, in := range p.Inlets {
		delivered := true
		for _, out := range in.Outs() {
			delivered = delivered && out.Report.Dropped[batch.Shutdown] == 0
		}
		if err := in.Src.Finish(delivered); err != nil {
			p.positionsLost = true
			p.finalMessages = append(p.finalMessages, in.WithName(err).Error())
		}
	}
}

// CloseInputs releases the resources of all open inputs.
func (p *Pipeline) CloseInputs() {
	for _, in := range p.Inlets {
		in.Src.Close()
	}
}

// readsAgain describes, for a message, the positions from which the next run reads the undelivered
// lines of out again. It names the other outputs that get the lines a second time, because an input
// has one position for all its outputs. If the next run cannot read all lines again, readsAgain
// returns "".
func (a Account) readsAgain(out *output.Output) string {
	var by, also []string
	for _, in := range a.P.Inlets {
		if in.Records.Load() == 0 || !out.Spec.Route.Selects(in.Name) {
			continue
		}
		switch again := in.Src.Repeats(); {
		case again == "":
			return ""
		case !slices.Contains(by, again):
			by = append(by, again)
		}
		for _, other := range a.P.Outs {
			account := &other.Report.Account
			if other != out && other.Spec.Route.Selects(in.Name) && account.Accepted > account.Dropped.Total() && !slices.Contains(also, other.To) {
				also = append(also, other.To)
			}
		}
	}
	text := strings.Join(by, ", and ")
	if text == "" || also == nil {
		return text
	}
	text += "; the other outputs get them again: " + strings.Join(also, ", ")
	if !out.Spec.KeepsLines() {
		text += fmt.Sprintf("; a --spool for %s prevents that", out.To)
	}
	return text
}

// Rules returns the current transforms.
func (p *Pipeline) Rules() []transform.Rule { return p.C.Rules }

// Destinations returns the addresses of all outputs and fallbacks, without their options.
func (p *Pipeline) Destinations() (names []string) {
	for _, c := range p.C.Outs {
		names = append(names, c.To)
	}
	for _, c := range p.C.Fallbacks {
		names = append(names, c.To)
	}
	return names
}

// retainLive increments Live, so that the pipeline continues when all inputs end. It returns false
// if all inputs have already ended.
func (p *Pipeline) retainLive() bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.Live == 0 {
		return false
	}
	p.Live++
	return true
}

// keepRunning keeps the pipeline running while an input is missing, because a later change may add
// it.
func (p *Pipeline) keepRunning(missing bool) {
	switch {
	case missing && !p.inputMissing:
		p.inputMissing = p.retainLive()
	case !missing && p.inputMissing:
		p.inputMissing = false
		p.releaseLive(nil)
	}
}

// An Account computes the final messages and the exit code of a pipeline after its end.
type Account struct{ P *Pipeline }
