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

// shutdown closes the outlet and then the files, which the outlet uses. Each step must end before
// ctx does, by a reserve for the later steps. If no time is left, the disk gets half a second more,
// because records in memory would be lost otherwise.
func (o *Output) shutdown(ctx context.Context) (batch.Report, error) {
	before := o.losses()
	limit, cancel := ctx, context.CancelFunc(func() {})
	if o.outlet.set.spools() {
		limit, cancel = closetime.WithDisk(ctx, closetime.Disk-2*closetime.Reserve(closetime.Disk), func() { o.outlet.Drain(time.Now()) })
	}
	defer cancel()
	sooner, cancelSooner := closetime.Sooner(limit) // so that time remains for the account and the files
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

// losses is a snapshot of the lost records. The difference between two snapshots is what a Shutdown
// lost.
type losses struct {
	drops     batch.Drops
	failed    uint64 // number of refused records whose dead letter failed
	unwritten uint64 // number of refused records whose dead letter failed or is not written yet
	lastErr   string // last error of the destination
}

// losses returns the losses so far.
func (o *Output) losses() losses {
	st := o.outlet.Stats()
	return losses{o.Account().Dropped, st.LostDeadLetters, o.outlet.dead.unwritten(), st.LastError}
}

// lost returns the number of records lost between two snapshots, by reason. Records dropped by
// Slab.WhenFull are not included. If dead letters are written, a refused record is lost only if its
// dead letter is missing.
func (o *Output) lost(before, after *losses) (d batch.Drops) {
	for _, r := range []batch.Reason{batch.Poison, batch.Expired, batch.Quota, batch.Shutdown, batch.Corrupt, batch.Failed} {
		d[r] = after.drops[r] - min(before.drops[r], after.drops[r])
	}
	if o.outlet.set.opt.DeadLetter != nil {
		d[batch.Poison] = after.unwritten - min(after.unwritten, before.failed)
	}
	return d
}

// closeError returns the error of a Shutdown that ended with the report rep. err is the error of
// its steps. If nothing is lost, running out of time is no error: all records are settled or kept.
func (o *Output) closeError(ctx context.Context, before losses, rep batch.Report, err error) error {
	after := o.losses()
	after.drops = rep.Dropped
	lost := o.lost(&before, &after)
	n := lost.Total()
	if n == 0 {
		if deadline, ok := ctx.Deadline(); ctx.Err() == nil && (!ok || time.Until(deadline) > 3*closetime.Reserve(o.timeout)) {
			return err
		}
		return o.outlet.end.driver.fault() // ctx was cancelled, and err reports only the cancellation
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
