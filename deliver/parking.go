package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// parking sets records of held streams, and suspects, aside, so that other records are sent. Parked
// records keep their position in the queue. Options.ParkedBytes limits the records that are copied into
// separate memory. The others stay in their slabs, which are not freed.
type parking struct {
	set     *settings
	led     *ledger
	queue   *queue
	streams *heldStreams
	account *accounting
}

// partHeld makes entries of the records of e, the next to be sent, whose streams are held, one per
// stream, and parks them. It reports whether there are any. The parts come before e in the queue, so
// that they go into the spool before newer records of their streams.
func (p *parking) partHeld(e *entry) bool {
	if !p.streams.has(e.b) {
		return false
	}
	byStream := map[uint32][]int{}
	var streams []uint32
	var free []int
	for i, rec := range e.b.All() {
		if !p.streams.IsHeld(rec.Stream) {
			free = append(free, i)
			continue
		}
		if byStream[rec.Stream] == nil {
			streams = append(streams, rec.Stream)
		}
		byStream[rec.Stream] = append(byStream[rec.Stream], i)
	}
	at := slices.Index(p.queue.ring, e)
	for i, stream := range streams {
		part := p.queue.entryOf(e.h, e.b.Select(nil, byStream[stream]), e.since)
		part.stream, part.unknown = stream, e.unknown
		p.queue.ring = slices.Insert(p.queue.ring, at+i, part)
		p.queue.rest(part, parked)
	}
	if e.b = e.b.Select(nil, free); len(free) == 0 {
		p.queue.remove(e)
	}
	return true
}

// makeRoom copies parked records into separate memory, oldest first, as far as there is room. Others
// are kept until they have been held for an hour, or the log, which is short of memory (scarce), would
// drop records that the destination accepts. Then they are condemned, an entry at a time, because each
// may free enough. makeRoom reports whether one was.
func (p *parking) makeRoom(now time.Time, scarce bool) bool {
	if p.queue.parked == 0 {
		return false
	}
	room := p.set.opt.ParkedBytes
	for _, e := range p.queue.ring {
		if e.rest == parked && e.copied {
			room -= e.b.Bytes()
		}
	}
	crowded := scarce && now.Sub(p.streams.others) < maxHold
	for _, e := range p.queue.ring {
		if e.place != parked || e.copied {
			continue
		}
		if size := e.b.Bytes(); size <= room {
			room -= size
			p.move(e)
			continue
		}
		h := p.streams.held[e.stream]
		if e.suspect == nil && h != nil && (crowded || now.Sub(h.since) >= maxHold) {
			p.account.condemn(e.h.lease, e.b, h.why)
			p.queue.remove(e)
			return true
		}
	}
	return false
}

// move copies e, which is parked, into separate memory, so that it does not use the room of the next
// batches. Records of the spool have no slab to free. Records of crash-safe memory stay there: a copy
// would not survive the process.
func (p *parking) move(e *entry) {
	e.copied = true
	old := e.h
	if old.custody != ofLog || old.lease.Keeps() {
		return
	}
	mem := new(copied)
	mem.set(e.b)
	to := &countedLease{b: &mem.b}
	p.led.move(old.lease, to, countable(e.b))
	e.h, e.b = &holder{lease: to, custody: ofCopy, no: old.no, parts: 1, parked: 1}, to.b
	old.parts--
	old.parked--
	p.queue.releaseUnused(old)
}

// release makes the records of streams that are tried wait again. They go first.
func (p *parking) release(now time.Time) {
	if !p.streams.release(now) {
		return
	}
	for _, e := range p.queue.ring {
		if e.rest == parked && e.suspect == nil && !p.streams.IsHeld(e.stream) {
			p.leave(e)
		}
	}
}

// leave makes e, which is parked, wait again at its position in the queue.
func (p *parking) leave(e *entry) {
	e.suspect, e.copied = nil, false
	p.queue.rest(e, waiting)
}

// hold holds the streams of b, of which o left records open. Its records are parked when they would be
// sent next.
func (p *parking) hold(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for _, rec := range b.All() {
		p.streams.hold(now, rec.Stream, cause(o.Why), o.After)
	}
}
