package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/outputhook"
)

// disk is the machine's view of the spool: which batches the spool has handed out, and whether it
// may have more. The machine does not call the spool: the type spooling makes the calls and reports
// the results.
//
//	spool   [ out: handed out, not acknowledged | backlog: not handed out ]
//
// After the acknowledgment of a batch the spool reuses its memory. So a batch is acknowledged only
// when all its records are settled and no session reads them. Batches are acknowledged oldest
// first. While the backlog is not empty, newer records must also pass through the spool, because
// the order on disk is the order of delivery.
type disk struct {
	set    *settings
	led    *ledger
	queue  *queue
	sess   *inflight
	health *health
	end    *endState

	out      []*holder // handed out and not acknowledged, oldest first
	acked    uint64    // number of the last batch that was acknowledged
	backlog  bool      // the spool may have batches that it has not handed out
	inUse    episode   // episode in which the spool has records
	appendAt time.Time // no attempt to append before this time, which is set after a failed attempt
	pullAt   time.Time // no attempt to read before this time, which is set after a failed attempt
}

// spillRetry is the delay before the spool is called again after a failure. Reading and appending
// have separate delays, because a full disk can still be read.
const spillRetry = time.Second

// forget returns the number of the last batch that can be acknowledged: all records of that batch
// and of all older ones are settled, and no session reads them. The result ok is false if there is
// none.
func (d *disk) forget() (seq uint64, ok bool) {
	n := 0
	for n < len(d.out) && d.out[n].parts == 0 && d.out[n].pins == 0 {
		n++
	}
	if n == 0 {
		return 0, false
	}
	return d.out[n-1].seq, true
}

// forgotten removes the batches up to seq from the list out. If the acknowledgment failed, the next
// one includes them.
func (d *disk) forgotten(seq uint64) {
	d.acked = seq
	for len(d.out) > 0 && d.out[0].seq <= seq {
		d.out = slices.Delete(d.out, 0, 1)
	}
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

// handedOut returns how many batches in the list out have an entry that is not parked. Other
// batches may wait for hours, and must not use up the window.
func (d *disk) handedOut() (n int) {
	var last *holder // the entries of a batch are next to each other
	for _, e := range d.queue.ring {
		if e.rest != parked && !e.inMemory() && e.h != last {
			last = e.h
			n++
		}
	}
	return n
}

// last returns the number of the last batch that the spool has handed out.
func (d *disk) last() uint64 {
	if n := len(d.out); n > 0 {
		return d.out[n-1].seq
	}
	return d.acked
}

// mayPull reports whether the loop should read a batch from the spool now.
func (d *disk) mayPull(now time.Time) bool {
	return d.backlog && !now.Before(d.pullAt) && d.handedOut() < d.set.traits.Window
}

// pulled adds a batch that the spool has handed out, with its sequence number. A batch that the
// spool has combined from several covers all numbers after the previous batch, up to seq.
func (d *disk) pulled(now time.Time, out *countedLease, seq uint64) {
	h := &holder{lease: out, owner: ofSpool, first: min(d.last()+1, seq), seq: seq}
	d.out = append(d.out, h)
	d.queue.insert(d.queue.entryOf(h, out.b, now))
}

// notPulled is called if the spool had nothing to hand out (err is nil), or if reading it failed.
func (d *disk) notPulled(now time.Time, err error) {
	if err != nil {
		d.pullAt = now.Add(spillRetry)
		return
	}
	d.backlog = false
	d.reportEmpty()
}

// mayAppend reports whether the spool may be called to append a batch now.
func (d *disk) mayAppend(now time.Time) bool { return d.set.spools() && !now.Before(d.appendAt) }

// staysOut reports whether the spool should hand out e again as soon as e is appended, so that e
// keeps its position in the queue. That is the case if e is parked, if an outstanding answer may
// still settle e, or if a later entry is in flight. The result is false if the spool has an older
// batch to hand out.
func (d *disk) staysOut(e *entry) bool {
	return !d.backlog && (e.place != waiting || d.queue.outBehind(e))
}

// spilled processes the result of an Append of e, to which the spool gave the number seq. The spool
// may then have handed out a batch, the parameter out, whose number is the parameter got.
//
// Normally out is the batch just appended (got equals seq). Then the entry refers to out from now
// on, and its old memory is freed when the session has answered. Otherwise the entry leaves the
// queue, because it will be read from the spool later. An out with another number is a batch that
// an earlier process left. If the entry is in flight, the session is then given up, because the
// records of the entry will be sent again, after older ones.
func (d *disk) spilled(now time.Time, e *entry, seq uint64, out *countedLease, got uint64, err error) {
	if err != nil {
		d.led.readSpill(nil)
		d.appendAt = now.Add(spillRetry)
		return
	}
	why := d.reason(e)
	n := countable(e.b)
	old := e.h
	d.led.spillFrom(old.lease, n, out)
	if d.inUse.begin() {
		d.set.post("spill", why, n)
	}
	if out == nil || got != seq {
		d.backlog = true
		if out != nil {
			d.pulled(now, out, got)
		}
		if e.place == sent {
			d.sess.giveUp()
		}
		d.queue.remove(e)
		return
	}
	h := &holder{lease: out, owner: ofSpool, first: seq, seq: seq, parts: 1}
	d.out = append(d.out, h)
	e.h, e.b = h, out.b // the session reads the memory of old until it answers
	old.parts--
	d.queue.releaseUnused(old)
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

// openUpTo reports whether records are open in batches of the log with numbers up to logNo, or in
// batches of the spool with numbers up to seq. Flush and Commit wait until no record is open.
// Parked records do not count as open; openUpTo returns their number.
func (d *disk) openUpTo(logNo, seq uint64) (open bool, parkedRecords uint64) {
	for _, e := range d.queue.ring {
		switch {
		case e.inMemory() && e.h.logNo > logNo || !e.inMemory() && e.h.first > seq:
		case e.rest == parked:
			parkedRecords += uint64(e.b.Len())
		default:
			open = true
		}
	}
	return open || d.backlog && d.last() < seq, parkedRecords
}
