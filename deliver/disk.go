package deliver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/outputhook"
)

// disk is the spool of an outlet: which batches the spool has handed out, and whether it may have
// more. The machine decides when to append, pull and acknowledge. The loop calls these methods,
// which call the spool and enter the result. They do not overlap, but sync may run at the same
// time. A panic of the spool becomes an error.
//
//	spool   [ out: handed out, not acknowledged | backlog: not handed out ]
//
// After the acknowledgment of a batch the spool reuses its memory. So a batch is acknowledged only
// when all its records are settled and no session reads them. Batches are acknowledged oldest
// first. While the backlog is not empty, newer records must also pass through the spool, because
// the order on disk is the order of delivery.
//
// The ledger reads the account of the spool after each call, in the same critical section in which
// it accounts for the result of the call.
type disk struct {
	set     *settings
	spill   spill // nil: none
	led     *ledger
	queue   *queue
	sess    *inflight
	health  *health
	flushes *flushes
	end     *endState

	out       []*holder // handed out and not acknowledged, oldest first
	acked     uint64    // number of the last batch that was acknowledged
	backlog   bool      // the spool may have batches that it has not handed out
	inUse     episode   // episode in which the spool has records
	appendAt  time.Time // no attempt to append before this time, which is set after a failed attempt
	pullAt    time.Time // no attempt to read before this time, which is set after a failed attempt
	appendBad episode   // series of failed calls of Append
	readBad   episode   // series of failed calls of NextUpTo and Ack
}

// spillRetry is the delay before the spool is called again after a failure. Reading and appending
// have separate delays, because a full disk can still be read.
const spillRetry = time.Second

// ---- appending ------------------------------------------------------------

// mayAppend reports whether the spool may be called to append a batch now.
func (d *disk) mayAppend(now time.Time) bool { return d.set.spools() && !now.Before(d.appendAt) }

// append appends e to the spool. If staysOut returns true, it then reads the oldest batch from the
// spool.
//
// Normally that is the batch just appended. Then the entry refers to it from now on, and its old
// memory is freed when the session has answered. Otherwise the entry leaves the queue, because it
// will be read from the spool later. Another batch is one that an earlier process left. If the entry
// is in flight, the session is then given up, because the records of the entry will be sent again,
// after older ones.
func (d *disk) append(now time.Time, e *entry) {
	var seq uint64
	err := d.call(func() (err error) {
		seq, err = d.spill.Append(e.b)
		return err
	})
	if d.note(&d.appendBad, err); err != nil {
		d.led.readSpill(nil)
		d.appendAt = now.Add(spillRetry)
		return
	}
	// A Flush that waits for this batch must wait for it in the spool from now on, because the
	// entry may leave the queue.
	d.flushes.appended(e.h.logNo, seq)
	why, n, old := d.reason(e), countable(e.b), e.h
	var out *holder
	var b *batch.Batch
	if d.staysOut(e) {
		out, b, _ = d.next(0, 0)
	}
	d.led.spillFrom(old, n, out)
	if d.inUse.begin() {
		d.set.post("spill", why, n)
	}
	if out != nil && out.seq == seq {
		e.h, e.b = out, b // the session reads the memory of old until it answers
		out.parts++
		old.parts--
		d.queue.releaseUnused(old)
		return
	}
	d.backlog = true
	if out != nil {
		d.queue.insert(d.queue.entryOf(out, b, now))
	}
	if e.place == sent {
		d.sess.giveUp()
	}
	d.queue.remove(e)
}

// staysOut reports whether the spool should hand out e again as soon as e is appended, so that e
// keeps its position in the queue. That is the case if e is parked, if an outstanding answer may
// still settle e, or if a later entry is in flight. The result is false if the spool has an older
// batch to hand out.
func (d *disk) staysOut(e *entry) bool {
	return !d.backlog && (e.parked || e.place != waiting || d.queue.outBehind(e))
}

// reason returns the reason why e goes to the spool.
func (d *disk) reason(e *entry) error {
	if err := d.health.reason(d.end.stage >= late); err != nil {
		return err
	}
	if d.backlog || d.queue.behindDisk(e) {
		return outputhook.ErrBehind
	}
	return ErrFull
}

// ---- reading --------------------------------------------------------------

// mayPull reports whether the loop should read a batch from the spool now.
func (d *disk) mayPull(now time.Time) bool {
	return d.backlog && !now.Before(d.pullAt) && d.used() < d.set.traits.Window
}

// used returns how many batches in the list out have an entry that is not parked. Other
// batches may wait for hours, and must not use up the window.
func (d *disk) used() (n int) {
	var last *holder // the entries of a batch are next to each other
	for _, e := range d.queue.ring {
		if !e.parked && !e.inMemory() && e.h != last {
			last = e.h
			n++
		}
	}
	return n
}

// pull reads a batch from the spool. It combines small batches, because a destination that accepts
// one request per flush interval could otherwise never catch up after an outage.
func (d *disk) pull(now time.Time) {
	out, b, err := d.next(d.set.joins())
	// Even a call that fails may have dropped records, so the account is read first.
	d.led.readSpill(out)
	if err == io.EOF {
		d.backlog = false
		d.reportEmpty()
		return
	}
	if d.note(&d.readBad, err); err != nil {
		d.pullAt = now.Add(spillRetry)
		return
	}
	d.queue.insert(d.queue.entryOf(out, b, now))
}

// next reads the oldest batch, combined with the following ones up to the given size, and adds it to
// the list out. A batch that the spool has combined from several covers all numbers after the
// previous batch, up to its own. If there is no batch, out is nil.
func (d *disk) next(bytes, records int) (out *holder, b *batch.Batch, err error) {
	err = d.call(func() error {
		next, seq, err := d.spill.NextUpTo(bytes, records)
		if err == nil {
			out, b = &holder{owner: ofSpool, open: int(countable(next)), first: min(d.last()+1, seq), seq: seq}, next
			d.out = append(d.out, out)
		}
		return err
	})
	return out, b, err
}

// last returns the number of the last batch that the spool has handed out.
func (d *disk) last() uint64 {
	if n := len(d.out); n > 0 {
		return d.out[n-1].seq
	}
	return d.acked
}

// settled returns the number of batches at the start of the list out that can be acknowledged: all
// their records are settled, and no session reads them.
func (d *disk) settled() (n int) {
	for n < len(d.out) && d.out[n].parts == 0 && d.out[n].pins == 0 {
		n++
	}
	return n
}

// acknowledge acknowledges the settled batches. If that fails, a later acknowledgment includes
// them, and their memory is given up nevertheless. If the process dies first, they are delivered
// again.
func (d *disk) acknowledge() {
	n := d.settled()
	d.acked = d.out[n-1].seq
	d.note(&d.readBad, d.call(func() error { return d.spill.Ack(d.acked) }))
	d.out = slices.Delete(d.out, 0, n)
	d.led.readSpill(nil)
	d.reportEmpty()
}

// reportEmpty posts the event "spilled" if the spool was in use and everything in it is now settled
// and acknowledged.
func (d *disk) reportEmpty() {
	if !d.backlog && len(d.out) == 0 && d.inUse.end() {
		d.set.post("spilled", nil, 0)
	}
}

// openUpTo reports whether records are open in batches of the log with numbers up to logNo, or in
// batches of the spool with numbers up to seq. Flush and Commit wait until no record is open.
// Parked records do not count as open; openUpTo returns their number.
func (d *disk) openUpTo(logNo, seq uint64) (open bool, parkedRecords uint64) {
	for _, e := range d.queue.ring {
		switch {
		case e.inMemory() && e.h.logNo > logNo || !e.inMemory() && e.h.first > seq:
		case e.parked:
			parkedRecords += uint64(e.b.Len())
		default:
			open = true
		}
	}
	return open || d.backlog && d.last() < seq, parkedRecords
}

// ---- calls ----------------------------------------------------------------

// sync syncs the spool to stable storage, if it supports that. It does not wait beyond the end of
// ctx.
func (d *disk) sync(ctx context.Context) error {
	if s, ok := d.spill.(syncer); ok {
		return within(ctx, func() error { return d.call(s.Sync) })
	}
	return nil
}

// call calls the spool. A panic becomes an error.
func (d *disk) call(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("deliver: the spool panicked: %v", r)
		}
	}()
	return f()
}

// note posts an event for the first failure of a series.
func (d *disk) note(bad *episode, err error) {
	if err == nil {
		bad.end()
	} else if bad.begin() {
		d.set.post("spill-error", err, 0)
	}
}
