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
// Batches are acknowledged oldest first, when none of their records is open and no session reads
// them, because the spool then reuses their memory. While the backlog is not empty, newer records
// must also pass through the spool, because the order on disk is the order of delivery.
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

// forget returns the number of the last batch that can be acknowledged: that batch and all older
// ones have no open records, and no session reads them. ok is false if there is none.
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

// handedOut returns the number of batches in out with at least one entry that is not parked.
// Batches with only parked entries may wait for hours, and must not use up the window.
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

// pulled adds a batch that the spool has handed out, with its number seq. A batch that the spool
// has combined has the numbers after that of the previous batch, up to seq.
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

// staysOut reports whether the spool should hand out e at once after e is appended, so that e keeps
// its position in the queue. That is the case if e is parked, if an outstanding answer may still
// settle e, or if the answer to a later entry is outstanding. If the spool has an older batch to
// hand out, staysOut returns false.
func (d *disk) staysOut(e *entry) bool {
	return !d.backlog && (e.place != waiting || d.queue.outBehind(e))
}

// spilled processes the result of an Append of e, to which the spool gave the number seq. The
// parameter out is the batch that the spool handed out after the Append, and got is its number; out
// may be nil.
//
// If got is seq, the entry refers to out from now on, and its old memory is freed when the session
// has answered. If got is not seq, the entry leaves the queue, and out, if not nil, is a batch that
// an earlier process left. If the session has e, it is given up, because the records will be sent
// again after older ones.
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

// openUpTo reports whether records are open in batches of the log up to number no, or in batches of
// the spool up to number seq. Parked records are counted in parkedRecords instead. Flush and Commit
// wait until no record is open.
func (d *disk) openUpTo(no, seq uint64) (open bool, parkedRecords uint64) {
	for _, e := range d.queue.ring {
		switch {
		case e.inMemory() && e.h.no > no || !e.inMemory() && e.h.first > seq:
		case e.rest == parked:
			parkedRecords += uint64(e.b.Len())
		default:
			open = true
		}
	}
	return open || d.backlog && d.last() < seq, parkedRecords
}
