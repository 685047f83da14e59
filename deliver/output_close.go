package deliver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// shutdown closes everything: first the outlet, which needs the files, then the files. Each part gets the
// end of the context minus a reserve for those after it. Without time left, the disk gets half a second
// more: records in memory would be lost otherwise.
func (o *Output) shutdown(ctx context.Context) (batch.Report, error) {
	before := o.stock()
	limit, cancel := ctx, context.CancelFunc(func() {})
	if o.outlet.set.spools() {
		limit, cancel = closetime.WithDisk(ctx, closetime.Disk-2*closetime.Reserve(closetime.Disk), func() { o.outlet.Drain(time.Now()) })
	}
	defer cancel()
	sooner, cancelSooner := closetime.Sooner(limit) // the rest is for the outlet and the files
	defer cancelSooner()
	rep, err := o.outlet.stop(sooner)
	var in []string
	for i, n := range [...]uint64{rep.Pending.Slab, rep.Pending.Spill} {
		if n > 0 && o.dirs[i] != "" {
			in = append(in, o.dirs[i])
		}
	}
	rep.KeptIn = strings.Join(in, ", ")

	err = o.closeError(ctx, before, rep, err)
	disk, cancelDisk := closetime.WithDisk(ctx, closetime.Disk, func() {})
	defer cancelDisk()
	return rep, errors.Join(err, within(disk, o.files.close))
}

// stock has the losses up to a moment. The difference of two shows what a Shutdown lost.
type stock struct {
	drops     batch.Drops
	failed    uint64 // refused records whose dead letter failed
	unwritten uint64 // those, and those whose dead letter is not written yet
	lastErr   string // of the destination
}

// stock returns the losses so far.
func (o *Output) stock() stock {
	st := o.outlet.Stats()
	return stock{o.Account().Dropped, st.LostDeadLetters, o.outlet.dead.unwritten(), st.LastError}
}

// lost returns the number of records that were dropped since before, except by the policies of the
// memory. A refused record is lost if it has no dead letter.
func (o *Output) lost(before, after *stock) (d batch.Drops) {
	for _, r := range []batch.Reason{batch.Poison, batch.Expired, batch.Quota, batch.Shutdown, batch.Corrupt, batch.Failed} {
		d[r] = after.drops[r] - min(before.drops[r], after.drops[r])
	}
	if o.outlet.set.opt.DeadLetter != nil {
		d[batch.Poison] = after.unwritten - min(after.unwritten, before.failed)
	}
	return d
}

// closeError returns the error of a Shutdown that ended with rep; err is the error of its parts. If
// nothing is lost, running out of time is no error: the records are settled or kept.
func (o *Output) closeError(ctx context.Context, before stock, rep batch.Report, err error) error {
	after := o.stock()
	after.drops = rep.Dropped
	lost := o.lost(&before, &after)
	n := lost.Total()
	if n == 0 {
		if deadline, ok := ctx.Deadline(); ctx.Err() == nil && (!ok || time.Until(deadline) > 3*closetime.Reserve(o.timeout)) {
			return err
		}
		return o.outlet.end.driver.fault() // it was cancelled, and its error reports only that
	}
	text := fmt.Sprintf("deliver: close: %s lost (%s)", plural.Records(n), lost)
	if rep.Unknown > 0 {
		text += fmt.Sprintf(", %d of them unknown", rep.Unknown)
	}
	if late := after.unwritten - after.failed; o.outlet.set.opt.DeadLetter != nil && late > 0 {
		text += fmt.Sprintf(", %d of them refused with no time for a dead letter", late)
	}
	last := after.lastErr
	if last == "" {
		last = before.lastErr
	}
	if last != "" {
		last = "; the destination: " + last
	}
	if lost[batch.Shutdown] == 0 {
		err = errors.New(text + last)
	} else {
		err = fmt.Errorf("%s: %w%s", text, whyOver(ctx), last)
	}
	return errors.Join(err, o.outlet.end.driver.flush)
}
