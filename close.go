package forebay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/written"
)

// Flush waits until every record logged before the call is delivered or accounted for, or until ctx
// ends. If the circuit breaker of an output is open, Flush probes the destination at once; if the
// probe fails, the error wraps deliver.ErrOpen. All outputs are flushed concurrently, so a hanging
// output does not delay the others. A direct output is flushed with the method Flush or Sync of its
// writer. Files are not synced, because their records are already in the operating system.
func (r *Router) Flush(ctx context.Context) error {
	c := r.core()
	if c == nil || c.closed.Load() {
		return nil // Close accounts for all records
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

// flushAll logs the bursts in progress and flushes all outputs.
func (c *core) flushAll(ctx context.Context) []outcome {
	c.endBursts(ctx)
	return c.runEach(ctx, ctx, (*output).flushes, (*output).flush)
}

// Close refuses new records, then flushes every output. It closes the destinations that NewRouter
// has opened, and the writers given with the option [CloseWriter]. All outputs are handled
// concurrently, until ctx ends. If ctx has no deadline, the limit is 5 s or the longest
// CloseTimeout of an output. If ctx ends first, an output with a spool may use up to 0.5 s more,
// and an output whose destination hangs up to 0.2 s more.
//
// The report describes the outcome of each output. The error joins the errors of the outputs that
// lost records, failed to close, or did not finish in time. It is nil if every pending record is
// delivered, handled, or stored on disk ([Report.Kept]). Records dropped before Close are included
// in the report, not in the error.
//
// A destination that hangs causes no event before its own time limit ends, such as AckTimeout of
// package fluent (30 s) or the 10 s of a request to Loki. If Close is called earlier, its error is
// the first sign: it has the number of records that were sent and not acknowledged, and "not
// finished in time".
//
// Close may be called more than once and from multiple goroutines. Later calls wait until the first
// call returns or their own ctx ends, and return the same report.
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
		return Report{}, fmt.Errorf("forebay: another Close: %w", closetime.Late(ctx))
	}
}

// close implements the first call of Router.Close.
func (c *core) close(ctx context.Context) (Report, error) {
	c.closed.Store(true)
	until, cancel := c.limit(ctx)
	defer cancel()
	// sooner ends before ctx, to leave time for collecting the results of the outputs.
	sooner, cancel := closetime.Sooner(ctx)
	defer cancel()
	c.endBursts(sooner)
	outs := c.runEach(sooner, until, (*output).ends, (*output).end)
	rep := Report{Outputs: make([]OutputReport, len(outs)), Refused: c.refused.Load()}
	errs := make([]error, len(outs))
	for i, o := range c.outputs {
		out := &rep.Outputs[i]
		out.Name = o.name
		out.Report = outs[i].report
		out.Account = o.accountNow()
		out.Unfinished, out.Err = outs[i].unfinished, outs[i].err
		if n := out.Dropped[batch.Shutdown]; n > 0 && out.Err == nil && o.first {
			out.Err = fmt.Errorf("forebay: output %s: close: %s lost (%s)", o.name, plural.Records(n), out.Dropped)
		}
		if n := out.Pending.Inflight; n > 0 && o.direct != nil && o.first && out.Err != nil {
			out.Err = fmt.Errorf("%w; %s in a write that has not returned", out.Err, plural.Records(n))
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

// closeTimeout returns the time limit of a Close whose context has no deadline.
func (c *core) closeTimeout() time.Duration {
	longest := closetime.Default
	for _, o := range c.outputs {
		if w, ok := o.w.(*deliver.Output); ok && o.closes {
			longest = max(longest, outputhook.CloseTimeout(w))
		}
	}
	return longest
}

// limit returns the context that bounds a Close called with ctx. If Close may write remaining
// records to a disk queue, that context ends later than ctx, to leave time for writing.
func (c *core) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, o := range c.outputs {
		if _, ok := o.w.(shutdowner); ok && o.closes && o.direct == nil {
			disk, cancelDisk := closetime.WithDisk(ctx, closetime.Disk+closetime.Reserve(closetime.Disk), func() {})
			until, cancel := closetime.Later(disk, closetime.Hang)
			return until, func() { cancel(); cancelDisk() }
		}
	}
	return ctx, func() {}
}

// An outcome is the result of flushing or closing one output. i is the index of the output.
type outcome struct {
	i          int
	report     batch.Report
	unfinished bool
	err        error
}

// runEach calls do(o, ctx) concurrently for each output o for which applies(o) is true, and returns
// the results of all calls. When the context outer ends, runEach returns the results so far. The
// remaining calls then continue in the background, and their results are discarded.
func (c *core) runEach(ctx, outer context.Context, applies func(*output) bool, do func(*output, context.Context) (batch.Report, error)) []outcome {
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
		case <-outer.Done():
			for len(ch) > 0 { // include results that have arrived in the meantime
				r := <-ch
				results[r.i] = r
			}
			pending = 0
		}
	}
	for i := range results {
		if results[i].unfinished {
			results[i].err = fmt.Errorf("forebay: output %s: %w", c.outputs[i].name, closetime.Late(outer))
		}
	}
	return results
}

// run calls do(o, ctx) and sends the result to ch, even if do panics or calls runtime.Goexit.
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

// Optional methods of an output's writer that Flush and Close use. If a writer has several of them,
// Flush uses the first one in the order in which output.flush checks them.
type (
	flusher     interface{ Flush() error }
	ctxFlusher  interface{ Flush(context.Context) error }
	synchronous interface{ Sync() error }
)

// flushes reports whether the writer must be flushed. An *os.File has a method Sync, but no buffer.
func (o *output) flushes() bool {
	switch o.w.(type) {
	case *os.File:
		return false
	case ctxFlusher, flusher, synchronous:
		return true
	}
	return false
}

// flush calls the writer's method for flushing. For a direct output it first waits for the write in
// progress.
func (o *output) flush(ctx context.Context) (batch.Report, error) {
	if f, ok := o.w.(ctxFlusher); ok && o.direct == nil {
		return batch.Report{}, f.Flush(ctx)
	}
	return batch.Report{}, o.exclusively(ctx, func() error {
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

// exclusively calls f. If o is a direct output, no record is written to it during the call.
func (o *output) exclusively(ctx context.Context, f func() error) error {
	if o.direct == nil {
		return f()
	}
	if err := o.direct.lockCtx(ctx); err != nil {
		return closetime.Late(ctx)
	}
	defer o.direct.unlockCtx(false)
	return f()
}

// ends reports whether Router.Close must call end for o. For a direct output this is always the
// case, because Close must at least wait for the write in progress.
func (o *output) ends() bool { return o.closes || o.flushes() || o.direct != nil }

// end flushes the output. It closes the writer if the Router has to close it.
func (o *output) end(ctx context.Context) (batch.Report, error) {
	if !o.closes {
		return o.flush(ctx)
	}
	if o.direct != nil {
		return batch.Report{}, o.endDirect(ctx)
	}
	if s, ok := o.w.(shutdowner); ok {
		return s.Shutdown(ctx)
	}
	flush := func() error {
		_, err := o.flush(ctx)
		return err
	}
	return batch.Report{}, callAll(flush, o.sync, o.closeWriter)
}

// callAll calls every function of fs, even after one has panicked or called runtime.Goexit, and
// joins the errors.
func callAll(fs ...func() error) (err error) {
	if len(fs) == 0 {
		return nil
	}
	returned := false
	defer func() {
		if !returned {
			err = unwound(recover())
		}
		err = errors.Join(err, callAll(fs[1:]...))
	}()
	err = fs[0]()
	returned = true
	return err
}

// endDirect flushes and closes the writer of a direct output. It first waits for the write in
// progress, even after ctx has ended, because the writer must not be closed during a write.
func (o *output) endDirect(ctx context.Context) error {
	if err := o.direct.lockCtx(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer o.direct.unlockCtx(true)
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
	return callAll(flush, o.sync, o.closeWriter)
}

// sync calls the writer's method Sync, which commits the records to stable storage. It returns
// nil if the writer has no such method, or if the file does not support syncing.
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

// closeWriter closes the writer, if it has a method Close.
func (o *output) closeWriter() error {
	if wc, ok := o.w.(io.Closer); ok {
		return wc.Close()
	}
	return nil
}
