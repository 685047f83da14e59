package deliver

import (
	"maps"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// parking sets suspects and records of held streams aside, so that other records are sent. Parked
// records keep their position in the queue. Within Options.ParkedBytes, records are copied into
// separate memory. Beyond that limit they stay in their slabs, which are not freed.
type parking struct {
	set     *settings
	led     *ledger
	queue   *queue
	streams *heldStreams
	account *accounting
}

// partHeld moves those records of e whose streams are held to new entries, one per stream, and
// parks these entries. e is the next entry to be sent. The result is true if there are such
// records. The new entries precede e in the queue, so that they go into the spool before newer
// records of their streams.
func (p *parking) partHeld(e *entry) bool {
	if !p.streams.has(e.b) {
		return false
	}
	byStream := map[uint32][]int{}
	var free []int
	for i, rec := range e.b.All() {
		if p.streams.IsHeld(rec.Stream) {
			byStream[rec.Stream] = append(byStream[rec.Stream], i)
		} else {
			free = append(free, i)
		}
	}
	// The streams may come in any order, but the records of each stream stay in order.
	at := slices.Index(p.queue.ring, e)
	for i, stream := range slices.Sorted(maps.Keys(byStream)) {
		part := p.queue.entryOf(e.h, e.b.Select(nil, byStream[stream]), e.since)
		part.unknown = e.unknown
		p.queue.ring = slices.Insert(p.queue.ring, at+i, part)
		part.parked = true
	}
	if e.b = e.b.Select(nil, free); len(free) == 0 {
		p.queue.remove(e)
	}
	return true
}

// makeRoom copies parked records into separate memory, oldest first, while Options.ParkedBytes
// permits. Other parked records stay in their slabs until their stream has been held for an hour.
// If scarce is true, memory is short, and they stay only until the log would drop records that the
// destination accepts. After that they are refused, one entry per call, because each entry may free
// enough memory. makeRoom reports whether it refused an entry.
func (p *parking) makeRoom(now time.Time, scarce bool) bool {
	room := p.set.opt.ParkedBytes
	for _, e := range p.queue.ring {
		if e.parked && e.copied {
			room -= e.b.Bytes()
		}
	}
	// If no record of another stream was accepted for maxHold, refusing held records would not
	// help, because the destination may be failing.
	crowded := scarce && now.Sub(p.streams.others) < maxHold
	for _, e := range p.queue.ring {
		if !e.parked || e.place != waiting || e.copied {
			continue
		}
		if size := e.b.Bytes(); size <= room {
			room -= size
			p.move(e)
			continue
		}
		h := p.streams.held[e.stream()]
		if e.suspect == nil && h != nil && (crowded || now.Sub(h.since) >= maxHold) {
			p.account.refuse(e.h, e.b, h.why)
			p.queue.remove(e)
			return true
		}
	}
	return false
}

// move copies the parked entry e into separate memory and releases its slab for the next batches.
// Records of the spool have no slab, so they are not copied. Records of crash-safe memory are not
// copied either, because the copy would not survive the process.
func (p *parking) move(e *entry) {
	e.copied = true
	old := e.h
	if old.owner != ofLog || old.keeps() {
		return
	}
	to := &holder{owner: ofCopy, open: int(countable(e.b)), logNo: old.logNo, parts: 1}
	p.led.move(old, to)
	e.h, e.b = to, copyOf(e.b)
	old.parts--
	p.queue.releaseUnused(old)
}

// release makes parked records wait to be sent again when their stream is no longer held. They keep
// their position in the queue, before newer records.
func (p *parking) release(now time.Time) {
	if !p.streams.release(now) {
		return
	}
	for _, e := range p.queue.ring {
		if e.parked && e.suspect == nil && !p.streams.IsHeld(e.stream()) {
			p.leave(e)
		}
	}
}

// leave ends the parking of e.
func (p *parking) leave(e *entry) {
	e.parked, e.suspect, e.copied = false, nil, false
}

// hold marks the streams of the records of b as held. The outcome o left these records open. The
// records are parked later, when they are the next to be sent.
func (p *parking) hold(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for _, rec := range b.All() {
		p.streams.hold(now, rec.Stream, cause(o.Why), o.After)
	}
}
