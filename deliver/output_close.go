package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
)

// shutdown closes everything, once.
func (o *Output) shutdown(ctx context.Context) (batch.Report, error) {
	before := o.stock()
	limit, cancel := ctx, context.CancelFunc(func() {})
	if o.front.spills {
		limit, cancel = closetime.WithDisk(ctx, closetime.Disk-2*closetime.Reserve(closetime.Disk), func() { o.outlet.Drain(time.Now()) })
	}
	defer cancel()
	sooner, cancelSooner := closetime.Sooner(limit) // the rest is for the outlet and the files
	defer cancelSooner()
	rep, err := o.w.Shutdown(sooner)
	if !o.front.told.Load() { // the slabs ran out of time, and with them the outlet
		brief, cancel := context.WithTimeout(context.WithoutCancel(limit), 2*closetime.Reserve(o.timeout))
		defer cancel()
		r, outletErr := o.outlet.Shutdown(brief)
		rep.Account = o.w.Account()
		rep.Unknown += r.Unknown
		err = errors.Join(err, outletErr)
	} else if o.front.err != nil {
		err = o.front.err
	}
	// What is still under way may have arrived. Nobody will wait for it any more.
	rep.Dropped[batch.Shutdown] += rep.Pending.Inflight
	rep.Unknown = min(rep.Unknown+rep.Pending.Inflight, rep.Dropped[batch.Shutdown])
	rep.Pending.Inflight = 0

	err = o.verdict(ctx, before, rep, err)
	o.buried.WaitBriefly(ctx)
	disk, cancelDisk := closetime.WithDisk(ctx, closetime.Disk, func() {})
	defer cancelDisk()
	return rep, errors.Join(err, within(disk, o.files.close))
}

// stock is how many records were dropped at some moment, and why.
type stock struct {
	drops   batch.Drops
	buried  uint64 // of drops[batch.Poison]: they are in the dead letters
	lastErr string // of the destination
}

func (o *Output) stock() (s stock) {
	st := o.outlet.Stats()
	s.drops, s.lastErr = o.w.Account().Dropped, st.LastError
	if o.buried != nil {
		s.buried = st.Poisoned - min(st.Poisoned, st.Unburied)
	}
	return s
}

// lost returns how many records were dropped since before by what follows the memory:
// the policies of memory itself are no loss of a Close.
func (before *stock) lost(after *stock) (d batch.Drops) {
	for _, r := range []batch.Reason{batch.Poison, batch.Expired, batch.Quota, batch.Shutdown, batch.Corrupt, batch.Failed} {
		d[r] = after.drops[r] - min(before.drops[r], after.drops[r])
	}
	d[batch.Poison] -= min(d[batch.Poison], after.buried-min(before.buried, after.buried))
	return d
}

// verdict returns the error of a Shutdown that ended with rep; err is what its parts
// said.
func (o *Output) verdict(ctx context.Context, before stock, rep batch.Report, err error) error {
	after := o.stock()
	after.drops = rep.Dropped
	lost := before.lost(&after)
	n := lost.Total()
	if n == 0 {
		if deadline, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(deadline) <= 3*closetime.Reserve(o.timeout) {
			return nil // the parts were told to give up, and say so
		}
		return err
	}
	text := fmt.Sprintf("deliver: close: %d records lost (%s)", n, lost)
	if n == 1 {
		text = fmt.Sprintf("deliver: close: 1 record lost (%s)", lost)
	}
	if rep.Unknown > 0 {
		text += fmt.Sprintf(", %d of them unknown", rep.Unknown)
	}
	last := after.lastErr
	if last == "" {
		last = before.lastErr
	}
	if last != "" {
		last = "; the destination: " + last
	}
	if lost[batch.Shutdown] == 0 {
		return errors.New(text + last)
	}
	cause := context.Cause(ctx)
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	return fmt.Errorf("%s: %w%s", text, cause, last)
}
