package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/written"
)

// A Report says what became of the records of a [Router], see [Router.Close].
type Report struct {
	Outputs []OutputReport // in the order of routes and their outputs
	// Refused is the number of records that came after Close had begun.
	Refused uint64
}

// OutputReport says what became of the records of one output.
type OutputReport struct {
	Name string
	batch.Report
	// Unfinished is whether the output was still busy flushing or closing when
	// the context ended. It goes on by itself.
	Unfinished bool
	// Err is the error of flushing or closing the output.
	Err error
}

// Kept returns how many records are safely on disk for the next start, counted once
// per output.
func (r Report) Kept() (n uint64) {
	for _, o := range r.Outputs {
		n += o.Kept()
	}
	return n
}

// Undelivered returns the number of records that did not reach their
// destinations, kept ones included, counted once per output.
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
		if o.KeptIn != "" {
			line += fmt.Sprintf(", %s kept in %s", plural.Records(o.Kept()), o.KeptIn)
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
// for, or ctx ends. An output whose circuit breaker is open is probed at once; its error wraps
// deliver.ErrOpen if the probe fails. All outputs are flushed at the same time, so one that hangs does not
// delay the others. A direct output is flushed by the method Flush or Sync of its
// writer. A file is not synced: its records are with the operating system already.
func (r *Router) Flush(ctx context.Context) error {
	c := r.core()
	if c == nil || c.closed.Load() {
		return nil // Close has accounted for everything, or will
	}
	if ctx == nil {
		ctx = context.Background()
	}
	outs := c.flushAll(ctx)
	errs := make([]error, len(outs))
	for i, o := range outs {
		errs[i] = o.err
	}
	return errors.Join(errs...)
}

// flushAll flushes all outputs, as Flush does.
func (c *core) flushAll(ctx context.Context) []outcome {
	c.tellAll(ctx)
	return c.each(ctx, ctx, (*output).flushes, (*output).flush)
}

// Close refuses new records, flushes every output, and closes those given by
// OutputCloser, all at the same time, until ctx ends; if ctx has no deadline, for 5 s
// or the longest CloseTimeout of an output. An output with a spool may take half a
// second more if ctx leaves it no time, and one whose destination hangs 0.2 s.
//
// The report says what became of each output. The error joins the errors of the outputs
// that lost records, failed to close, or did not finish in time. It is nil if every
// pending record is delivered, handled, or safely kept on disk ([Report.Kept]). Records
// dropped before Close are in the report, but not in the error.
//
// Close may be called from any goroutine and more than once. A later call waits until
// the first has ended, or its own ctx has, and returns the same report.
func (r *Router) Close(ctx context.Context) (Report, error) {
	c := r.core()
	if c == nil {
		return Report{}, nil
	}
	ctx, cancel := closetime.Bounded(ctx, c.closeTimeout())
	defer cancel()
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
	until, cancel := c.limit(ctx)
	defer cancel()
	sooner, cancel := closetime.Sooner(ctx) // what an output says at the end still counts
	defer cancel()
	c.tellAll(sooner)
	outs := c.each(sooner, until, (*output).ends, (*output).end)
	rep := Report{Outputs: make([]OutputReport, len(outs)), Refused: c.refused.Load()}
	errs := make([]error, len(outs))
	for i, o := range c.outputs {
		out := &rep.Outputs[i]
		out.Name = o.name
		out.Report = outs[i].report
		out.Account = o.books()
		out.Unfinished, out.Err = outs[i].unfinished, outs[i].err
		if n := out.Dropped[batch.Shutdown]; n > 0 && out.Err == nil && o.first {
			out.Err = fmt.Errorf("forebay: output %s: close: %s lost (%s)", o.name, plural.Records(n), out.Dropped)
		}
		if n := out.Pending.Inflight; n > 0 && o.dir != nil && o.first && out.Err != nil {
			out.Err = fmt.Errorf("%w; pending in a write that does not end: %s", out.Err, plural.Records(n))
		}
		errs[i] = out.Err
	}
	grace, cancel := context.WithTimeout(until, callback.Grace)
	defer cancel()
	for _, rp := range c.reporters {
		rp.wait(grace)
	}
	return rep, errors.Join(errs...)
}

// refuse counts a record that came after Close. The first one is reported: a program that
// logs after it has closed its log loses these lines, and seldom means to. It may end right
// after the call, so the line is out by then.
func (c *core) refuse() {
	if c.refused.Add(1) == 1 {
		c.events.tell(batch.Event{Output: "router", Op: "closed", Err: errors.New("a record came after Close; it and later ones are refused")})
	}
}

// closeTimeout returns how long a Close takes whose context has no deadline.
func (c *core) closeTimeout() time.Duration {
	longest := closetime.Default
	for _, o := range c.outputs {
		if w, ok := o.w.(interface{ CloseTimeout() time.Duration }); ok && o.closes {
			longest = max(longest, w.CloseTimeout())
		}
	}
	return longest
}

// limit returns the context that a Close within ctx waits for: it leaves time for the
// disk to outputs that have reports of their own.
func (c *core) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, o := range c.outputs {
		if _, ok := o.w.(shutdowner); ok && o.closes && o.dir == nil {
			disk, cancelDisk := closetime.WithDisk(ctx, closetime.Disk+closetime.Reserve(closetime.Disk), func() {})
			until, cancel := closetime.Later(disk, closetime.Hang)
			return until, func() { cancel(); cancelDisk() }
		}
	}
	return ctx, func() {}
}

// outcome is the result of flushing or closing one output.
type outcome struct {
	i          int
	report     batch.Report
	unfinished bool
	err        error
}

// each calls do within ctx for all outputs for which applies holds, at the same time. It
// returns the results when all are done or until has ended. A call that hangs goes on by
// itself, and its result is dropped.
func (c *core) each(ctx, until context.Context, applies func(*output) bool, do func(*output, context.Context) (batch.Report, error)) []outcome {
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
		case <-until.Done():
			for len(ch) > 0 { // what is done at this very moment counts
				r := <-ch
				results[r.i] = r
			}
			pending = 0
		}
	}
	for i := range results {
		if results[i].unfinished {
			results[i].err = fmt.Errorf("forebay: output %s: not finished in time: %w", c.outputs[i].name, context.Cause(until))
		}
	}
	return results
}

// run calls do for an output and sends the result, also if do panics or ends the
// goroutine.
func (o *output) run(ctx context.Context, i int, do func(*output, context.Context) (batch.Report, error), ch chan<- outcome) {
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
	r.report, r.err = do(o, ctx)
	returned = true
}

type (
	flusher     interface{ Flush() error }
	ctxFlusher  interface{ Flush(context.Context) error }
	synchronous interface{ Sync() error }
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

// flush makes the writer pass on the records it holds.
func (o *output) flush(ctx context.Context) (batch.Report, error) {
	if f, ok := o.w.(ctxFlusher); ok && o.dir == nil {
		return batch.Report{}, f.Flush(ctx)
	}
	return batch.Report{}, o.alone(ctx, func() error {
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

// ends reports whether there is anything to do at the end. Of a direct output the writes
// that are under way are waited for.
func (o *output) ends() bool { return o.closes || o.flushes() || o.dir != nil }

// end flushes the output, and closes it if that was asked for.
func (o *output) end(ctx context.Context) (batch.Report, error) {
	if !o.closes {
		return o.flush(ctx)
	}
	if o.dir != nil {
		return batch.Report{}, o.endDirect(ctx)
	}
	if s, ok := o.w.(shutdowner); ok {
		return s.Shutdown(ctx)
	}
	flush := func() error {
		_, err := o.flush(ctx)
		return err
	}
	return batch.Report{}, inTurn(flush, o.sync, o.closeWriter)
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
