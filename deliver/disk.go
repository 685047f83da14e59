package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
)

// disk is the spool as the machine sees it: which batches it has handed out, and whether it may have
// more. The machine makes no call of the spool; spooling does, and reports the results.
//
//	spool   [ out: handed out, not acknowledged | backlog: not handed out ]
//
// Batches are acknowledged oldest first, and only when no record of them is open and no session reads
// them: the spool uses their memory again. As long as the backlog is not empty, newer records must
// follow it through the spool, because the order on disk is the order of delivery.
type disk struct {
	set    *settings
	led    *ledger
	queue  *queue
	sess   *inflight
	health *health

	out      []*holder // handed out and not acknowledged, oldest first
	forgot   uint64    // acknowledged up to this number
	backlog  bool      // it may have batches that it has not handed out
	inUse    episode   // it has records
	appendAt time.Time // no attempt to append before, after one failed
	pullAt   time.Time // no attempt to read before
}

// spillRetry is the delay after the spool has failed, for reading and appending separately: a full disk
// can be read.
const spillRetry = time.Second

// forget returns the number up to which batches can be acknowledged: nothing of them is open.
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

// forgotten notes that batches up to seq are acknowledged. If that failed, they are acknowledged
// with the next ones.
func (d *disk) forgotten(seq uint64) {
	d.forgot = seq
	for len(d.out) > 0 && d.out[0].seq <= seq {
		d.out = slices.Delete(d.out, 0, 1)
	}
	d.led.look(nil)
	d.reportEmpty()
}

// reportEmpty reports the end of a time in which the spool was in use: everything that it contained is
// settled and acknowledged.
func (d *disk) reportEmpty() {
	if !d.backlog && len(d.out) == 0 && d.inUse.end() {
		d.set.post("spilled", nil, 0)
	}
}

// handedOut returns how many batches of the spool are out and have entries that are not parked. Those
// that are parked may wait for hours, and must not use the window.
func (d *disk) handedOut() (n int) {
	for _, h := range d.out {
		if h.parts > h.parked {
			n++
		}
	}
	return n
}

// mayPull reports whether to read a batch from the spool.
func (d *disk) mayPull(now time.Time) bool {
	return d.backlog && !now.Before(d.pullAt) && d.handedOut() < d.set.traits.Window
}

// pulled adds a batch that the spool has handed out. It may have combined several: the batch then has
// the number of the last one, and its first number follows the previous batch.
func (d *disk) pulled(now time.Time, out *countedLease, seq uint64) {
	before := d.forgot
	if n := len(d.out); n > 0 {
		before = d.out[n-1].seq
	}
	h := &holder{lease: out, custody: ofSpool, first: min(before+1, seq), seq: seq}
	d.out = append(d.out, h)
	d.queue.insert(d.queue.entryOf(h, out.b, now))
}

// notPulled notes that the spool has nothing to hand out (err is nil), or could not be read.
func (d *disk) notPulled(now time.Time, err error) {
	if err != nil {
		d.pullAt = now.Add(spillRetry)
		return
	}
	d.backlog = false
	d.reportEmpty()
}

// mayAppend reports whether the spool may be written.
func (d *disk) mayAppend(now time.Time) bool { return d.set.spools() && !now.Before(d.appendAt) }

// staysOut reports whether e, which goes into the spool, is handed out again at once: it keeps its place,
// because it is parked, or its answer settles it, or the answer to a later entry is still to count. This
// is possible only if nothing older would be handed out instead.
func (d *disk) staysOut(e *entry) bool {
	return !d.backlog && (e.place != waiting || d.queue.outBehind(e))
}

// spilled notes that e is in the spool as batch seq, and that the spool has then handed out batch got, the
// batch of out, unless that is nil. If got is e, the entry passes from its lease to that batch, and its
// memory is freed when the session has answered. Otherwise an earlier process has left got, and e
// follows it. If the session has e, it becomes an orphan then: the answer no longer counts, because the
// records will be sent again.
func (d *disk) spilled(now time.Time, e *entry, seq uint64, out *countedLease, got uint64, err error) {
	if err != nil {
		d.led.look(nil)
		d.appendAt = now.Add(spillRetry)
		return
	}
	n := countable(e.b)
	old := e.h
	d.led.spillFrom(old.lease, n, out)
	if d.inUse.begin() {
		why := ErrFull
		if cause := d.health.brk.cause; cause != nil {
			why = cause
		}
		d.set.post("spill", why, n)
	}
	if out == nil || got != seq {
		d.backlog = true
		if out != nil {
			d.pulled(now, out, got)
		}
		wasSent := e.place == sent
		d.queue.remove(e)
		if wasSent { // its answer no longer counts, but is waited for
			d.queue.put(e, sent)
			e.orphan, e.kind, e.b = true, poison.Queued, new(batch.Batch)
			d.sess.regroup = true
		}
		return
	}
	h := &holder{lease: out, custody: ofSpool, first: seq, seq: seq, parts: 1}
	if e.rest == parked {
		h.parked = 1
		old.parked--
	}
	d.out = append(d.out, h)
	e.h, e.b = h, out.b // the session reads the memory of old until it answers
	old.parts--
	d.queue.releaseUnused(old)
}

// left reports whether something is open of the batches up to number no of the log, or up to number seq
// of the spool, and how many of their records are parked. Flush and Commit wait for it.
func (d *disk) left(no, seq uint64) (open bool, parkedRecords uint64) {
	for _, e := range d.queue.ring {
		switch {
		case e.inMemory() && e.h.no > no || !e.inMemory() && e.h.first > seq:
		case e.rest == parked:
			parkedRecords += uint64(e.b.Len())
		case e.inMemory():
			open = true
		}
	}
	last := d.forgot
	for _, h := range d.out {
		if last = h.seq; h.first <= seq && h.parts > h.parked {
			open = true
		}
	}
	return open || d.backlog && last < seq, parkedRecords
}
