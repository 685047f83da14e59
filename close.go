package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/written"
)

// A Report is what [Router.Close] says.
type Report struct {
	Outputs []OutputReport // in the order of routes and their outputs
	// Refused is the number of records that came after Close had begun.
	Refused uint64
}

// OutputReport is what became of one output.
type OutputReport struct {
	Name string
	batch.Report
	// Unfinished is whether the output was still busy flushing or closing when
	// the context ended. It goes on by itself.
	Unfinished bool
	// Err is what flushing or closing the output answered.
	Err error
}

// Undelivered returns the number of records that did not reach their
// destinations, counted once per output.
func (r Report) Undelivered() (n uint64) {
	for _, o := range r.Outputs {
		n += o.Undelivered()
	}
	return n
}

// String gives the report, one line for each output.
func (r Report) String() string {
	lines := make([]string, 0, len(r.Outputs))
	for _, o := range r.Outputs {
		line := o.Name + ": " + o.Account.String()
		if o.Unknown > 0 {
			line += fmt.Sprintf(" unknown=%d", o.Unknown)
		}
		if o.Unfinished {
			line += " unfinished"
		}
		if o.Err != nil {
			line += fmt.Sprintf(": %v", o.Err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Flush waits until everything that was logged before is delivered or accounted
// for, or ctx ends. All outputs are flushed at the same time; one that hangs
// concerns the others as little as ever. A direct output is flushed if its writer
// has a method Flush, or Sync and is no file: what was written to a file is with
// the operating system already.
func (r *Router) Flush(ctx context.Context) error {
	c := r.h.core
	if c == nil || c.closed.Load() {
		return nil // Close has accounted for everything, or will
	}
	outs := c.each(ctx, (*output).flushes, (*output).flush)
	errs := make([]error, len(outs))
	for i, o := range outs {
		errs[i] = o.err
	}
	return errors.Join(errs...)
}

// Close refuses new records, flushes every output, and closes those given by
// OutputCloser, all at the same time, until ctx ends. The report says what became
// of each; the error joins theirs, and ctx's if an output did not finish.
//
// Close may be called beside other calls and again: it then waits for the first
// call to end, or for its own ctx, and returns the same report.
func (r *Router) Close(ctx context.Context) (Report, error) {
	c := r.h.core
	if c == nil {
		return Report{}, nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	first := false
	c.closing.Do(func() { first = true })
	if first {
		c.report, c.err = c.close(ctx)
		exitList.remove(c)
		close(c.done)
		return c.report, c.err
	}
	select {
	case <-c.done:
		return c.report, c.err
	default:
	}
	select {
	case <-c.done:
		return c.report, c.err
	case <-ctx.Done():
		return Report{}, fmt.Errorf("forebay: another Close is under way: %w", ctx.Err())
	}
}

func (c *core) close(ctx context.Context) (Report, error) {
	c.closed.Store(true)
	outs := c.each(ctx, (*output).ends, (*output).end)
	rep := Report{Outputs: make([]OutputReport, len(outs)), Refused: c.refused.Load()}
	errs := make([]error, len(outs))
	for i, o := range c.outputs {
		out := &rep.Outputs[i]
		out.Name = o.name
		out.Account, out.Unknown = o.books(), outs[i].unknown
		out.Unfinished, out.Err = outs[i].unfinished, outs[i].err
		errs[i] = outs[i].err
	}
	grace, cancel := context.WithTimeout(ctx, callback.Grace)
	defer cancel()
	for _, rp := range c.reporters {
		rp.wait(grace)
	}
	return rep, errors.Join(errs...)
}

// outcome is what became of flushing or closing one output.
type outcome struct {
	i          int
	unknown    uint64
	unfinished bool
	err        error
}

// each does something with all outputs for which applies holds, at the same time,
// and returns what became of each when all are done or ctx has ended. What hangs
// goes on by itself and is not heard of again.
func (c *core) each(ctx context.Context, applies func(*output) bool, do func(*output, context.Context) (uint64, error)) []outcome {
	if ctx == nil {
		ctx = context.Background()
	}
	results := make([]outcome, len(c.outputs))
	ch := make(chan outcome, len(c.outputs))
	pending := 0
	for i, o := range c.outputs {
		if !o.first || !applies(o) {
			continue
		}
		results[i].unfinished = true
		pending++
		go o.run(ctx, i, do, ch)
	}
	for pending > 0 {
		select {
		case r := <-ch:
			results[r.i] = r
			pending--
		case <-ctx.Done():
			for len(ch) > 0 { // what is done at this very moment counts
				r := <-ch
				results[r.i] = r
			}
			pending = 0
		}
	}
	for i := range results {
		if results[i].unfinished {
			results[i].err = fmt.Errorf("forebay: output %s: not finished in time: %w", c.outputs[i].name, ctx.Err())
		}
	}
	return results
}

// run does something with an output and sends what became of it, also if that
// panics or ends the goroutine.
func (o *output) run(ctx context.Context, i int, do func(*output, context.Context) (uint64, error), ch chan<- outcome) {
	r := outcome{i: i}
	returned := false
	defer func() {
		if !returned {
			r.err = unwound(recover())
		}
		if r.err != nil {
			o.fail(r.err)
			r.err = fmt.Errorf("forebay: output %s: %w", o.name, r.err)
		}
		ch <- r
	}()
	r.unknown, r.err = do(o, ctx)
	returned = true
}

type (
	flusher     interface{ Flush() error }
	ctxFlusher  = batch.Flusher
	synchronous = batch.Syncer
)

// flushes reports whether flush has anything to do.
func (o *output) flushes() bool {
	switch o.w.(type) {
	case *os.File:
		return false
	case ctxFlusher, flusher, synchronous:
		return true
	}
	return false
}

// flush makes the writer pass on what it holds.
func (o *output) flush(ctx context.Context) (uint64, error) {
	if f, ok := o.w.(ctxFlusher); ok && o.dir == nil {
		return 0, f.Flush(ctx)
	}
	return 0, o.alone(ctx, func() error {
		switch w := o.w.(type) {
		case ctxFlusher:
			return w.Flush(ctx)
		case flusher:
			return w.Flush()
		case *os.File:
			return nil
		case synchronous:
			return w.Sync()
		}
		return nil
	})
}

// alone calls f while no record is written to a direct output.
func (o *output) alone(ctx context.Context, f func() error) error {
	if o.dir == nil {
		return f()
	}
	if err := o.dir.lockCtx(ctx); err != nil {
		return fmt.Errorf("stuck in a write: %w", err)
	}
	defer o.dir.unlockCtx(false)
	return f()
}

// ends reports whether there is anything to do at the end.
func (o *output) ends() bool { return o.closes || o.flushes() }

// end flushes the output, and closes it if that was asked for.
func (o *output) end(ctx context.Context) (uint64, error) {
	if !o.closes {
		return o.flush(ctx)
	}
	if o.dir != nil {
		return 0, o.endDirect(ctx)
	}
	if s, ok := o.w.(shutdowner); ok {
		rep, err := s.Shutdown(ctx)
		return rep.Unknown, err
	}
	flush := func() error {
		_, err := o.flush(ctx)
		return err
	}
	return 0, inTurn(flush, o.sync, o.closeWriter)
}

// inTurn calls all of fs, also if one panics or ends the goroutine, and joins their
// errors.
func inTurn(fs ...func() error) (err error) {
	if len(fs) == 0 {
		return nil
	}
	returned := false
	defer func() {
		if !returned {
			err = unwound(recover())
		}
		err = errors.Join(err, inTurn(fs[1:]...))
	}()
	err = fs[0]()
	returned = true
	return err
}

// endDirect closes the writer of a direct output. If a write to it does not end
// within ctx, the writer is closed when it does.
func (o *output) endDirect(ctx context.Context) error {
	if err := o.dir.lockCtx(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer o.dir.unlockCtx(true)
	if w, ok := o.w.(shutdowner); ok {
		_, err := w.Shutdown(ctx)
		return err
	}
	flush := func() error {
		switch w := o.w.(type) {
		case ctxFlusher:
			return w.Flush(ctx)
		case flusher:
			return w.Flush()
		}
		return nil
	}
	return inTurn(flush, o.sync, o.closeWriter)
}

// sync reaches stable storage, where there is such a thing.
func (o *output) sync() error {
	s, ok := o.w.(synchronous)
	if !ok {
		return nil
	}
	err := s.Sync()
	if written.CannotSync(err) {
		return nil
	}
	return err
}

func (o *output) closeWriter() error {
	if wc, ok := o.w.(io.Closer); ok {
		return wc.Close()
	}
	return nil
}
