package slablog

import (
	"math"
	"runtime"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
)

// A reader leases the records of a store. One goroutine uses it.
type reader struct {
	conf  *config
	store *store

	// limited reports that the consumer limits the size of a batch. If not, gatherMax is the maximum
	// number of slabs per batch.
	limited   bool
	gatherMax int
	// few is the number of slabs that the reader waits for while it spins, and then leases together.
	few int

	// spinning reports that the last wait was short, so a full slab is expected soon.
	spinning bool

	// These fields are set when the reader finds no full slab. Times count from config.born.
	armed   bool          // the reader has found no full slab
	armedAt time.Duration // time at which it found none
	dueAt   time.Duration // time at which a partial slab will be due, or never
	idleAt  time.Duration // time at which a pause between records will have lasted FlushIdle, or never
	last    uint64        // number of tickets issued when the fields above were set
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// busy reports whether only full batches are leased now; see Consumer.Busy.
func (r *reader) busy() bool {
	busy := r.conf.consumer.Busy
	return r.limited && busy != nil && busy()
}

// The reader spins for at most spinRounds yields, and only if its last sleep was shorter than
// spinWorth.
const (
	spinRounds = 100
	spinWorth  = 30 * time.Microsecond
	// fewSlabs is the number of slabs for which the spinning reader waits, unless that is more than
	// a quarter of all slabs. Waiting for several slabs means fewer lock acquisitions, each of
	// which may delay a caller.
	fewSlabs = 4
)

// init sets how many slabs a batch may have: one, a few if the consumer accepts several, and half
// of all slabs if it writes them in one call.
func (r *reader) init(c *config, s *store) {
	wants := &c.consumer
	r.conf, r.store, r.idleAt = c, s, never
	r.limited = wants.Limits.Bytes > 0 || wants.Limits.Records > 0
	r.gatherMax, r.few = 1, min(max(1, c.o.SlabCount/4), fewSlabs)
	if wants.Several {
		r.gatherMax = r.few
	}
	if wants.Vectors {
		r.gatherMax = max(1, c.o.SlabCount/2)
	}
}

// A step is what the reader does after it has examined the store.
type step uint8

const (
	again     step = iota // examine the store again
	useBoth               // examine it again, with both locks
	pass                  // return the lease
	passFound             // return a lease of records of a dead process
	spin                  // look for a sealed slab, without locks
	sleep                 // return no lease
	finish                // return that no record will come
)

// next leases the oldest unread records. If it returns no lease, ended reports that no record will
// come, because the log is closed and empty, or Log.End has accounted for the rest.
func (r *reader) next() (l *Lease, ended bool) {
	s, do := r.store, again
	for {
		point(ptGather)
		var damage error
		if s.crash != nil { // without locks, because callers must not wait for system calls
			damage = s.crash.file.Intact()
		}
		half := do != useBoth && s.lockSome()
		if do == useBoth {
			s.lock()
		}
		before := s.sealed.Load()
		l, do = r.examineLocked(half, damage)
		s.unlockSome(half)
		switch do {
		case pass:
			if s.crash != nil {
				if s.crash.watch.Reset(watchAfter); !l.copyOut() {
					r.corrupt(l)
					continue
				}
			}
			point(ptTaken)
			return l, false
		case passFound:
			if l = s.found.next(r.conf.consumer.Limits); l != nil {
				point(ptTaken)
				return l, false
			}
		case spin:
			r.look(before)
		case sleep:
			point(ptSleep)
			return nil, false
		case finish:
			return nil, true
		}
	}
}

// examineLocked decides on the next step. If half is true, only store.mu is held, which suffices
// while one full slab follows another.
func (r *reader) examineLocked(half bool, damage error) (*Lease, step) {
	s, empty := r.store, len(r.store.pieces.queued) == 0
	if s.life == ended {
		return nil, finish
	}
	if half && (empty || r.limited) {
		switch {
		case r.armed || s.due > 0: // a partial slab may be due
			return nil, useBoth
		case empty && r.spinning:
			return nil, spin
		case empty || !r.reachedLocked(): // a batch may have to be completed with records of the current slab
			return nil, useBoth
		}
	}
	s.bell.state = awake
	s.leases.starved = false
	if r.armed {
		r.armed = false
		// If the last wait was short and ended with a full slab, the next slab is probably full soon.
		r.spinning = s.front.spins && !empty && time.Since(r.conf.born)-r.armedAt < spinWorth
	}
	// Records of dead processes are older than all others, so they are leased first.
	if len(s.found.files) > 0 {
		if len(s.leases.list) == 0 {
			return nil, passFound
		}
		s.bell.state = parked // one lease at a time, because the file records each settled batch
		return nil, sleep
	}
	if half || r.dueLocked() {
		return r.leaseLocked(half, damage)
	}
	return nil, r.waitLocked()
}

// leaseLocked leases due records. If the mapped memory is damaged, the slabs move to the heap.
func (r *reader) leaseLocked(half bool, damage error) (l *Lease, do step) {
	s := r.store
	if !s.crash.mapped() {
		l = r.takeLocked()
	} else if damage != nil {
		s.crash.toHeapLocked(damage)
		return nil, again
	} else if s.crash.guardLocked(func() { l = r.takeLocked() }) {
		return nil, again
	}
	if l != nil {
		return l, pass
	}
	// The maximum number of slabs is already leased.
	if half {
		return nil, useBoth
	}
	r.armLocked()
	return nil, sleep
}

// waitLocked is called if no records are due.
func (r *reader) waitLocked() step {
	s := r.store
	if s.life != accepting {
		s.bell.state = timed
		// Everything that was accepted is leased. The log has ended if no call waits, or if there
		// is no lease whose release could make room for the waiting calls.
		if s.callers.waitingLocked() == 0 || len(s.leases.list) == 0 {
			return finish
		}
		return sleep
	}
	if len(s.pieces.queued) == 0 && s.front.unreadLocked() == 0 {
		n := s.callers.waitingLocked()
		s.freedLocked()
		if s.callers.waitingLocked() < n { // the awaited record was lost with the mapped file
			return again
		}
		s.bell.state = parked
		s.gauge.parkedAt = time.Since(r.conf.born)
		if s.crash != nil {
			s.crash.notesDue = true // unlock truncates the companion file, because no record is pending
		}
		return sleep
	}
	if r.spinning {
		return spin
	}
	r.armLocked()
	return sleep
}

// armLocked makes the reader wait until a slab is sealed, or until a partial slab is due.
func (r *reader) armLocked() {
	s, now, idle := r.store, time.Since(r.conf.born), r.conf.o.FlushIdle
	if idle > 0 && (r.idleAt == never || s.front.next != r.last) { // if false, no record has come since the last call
		r.idleAt = now + idle
	}
	r.armed, r.armedAt, r.last, r.dueAt = true, now, s.front.next, never
	s.bell.state = timed
	// While the maximum number of slabs is leased, or the consumer is busy, the reader can only wait
	// for the bell or the next call.
	if !s.leases.starved && !r.busy() {
		r.dueAt = min(r.deadlineLocked(), r.idleAt)
	}
}

// deadlineLocked returns the time at which the oldest unread record will have waited long enough.
func (r *reader) deadlineLocked() time.Duration {
	since, wait := r.store.unread.since, r.conf.o.FlushInterval
	if q := r.store.pieces.queued; len(q) > 0 {
		since = q[0].since
	}
	// The consumer's limit on the age replaces FlushInterval.
	if age := r.conf.consumer.Limits.Age; age > 0 {
		wait = age
	}
	if wait < 0 {
		return never
	}
	return since + wait
}

// overdueLocked reports whether unread records have waited long enough and the consumer accepts a
// batch that is not full.
func (r *reader) overdueLocked() bool {
	now := time.Since(r.conf.born)
	return (now >= r.deadlineLocked() || now >= r.idleAt && r.store.front.next == r.last) && !r.busy()
}

// due returns the latest time for the next call of the method next. It is zero if the reader waits
// only for the bell.
func (r *reader) due() time.Time {
	if !r.armed || r.dueAt == never {
		return time.Time{}
	}
	return r.conf.born.Add(r.dueAt)
}

// dueLocked reports whether to take a lease now, because a slab is full or the limits of the
// consumer are reached. If the records of a partial slab must not wait, dueLocked also queues them
// as a piece.
func (r *reader) dueLocked() bool {
	s := r.store
	if len(s.pieces.queued) > 0 && !r.limited {
		return true
	}
	force := s.life != accepting || s.due > 0 || r.overdueLocked() ||
		len(s.pieces.queued) == 0 && s.callers.waitingLocked() > 0 // calls wait until the current slab, or a leased slab, becomes free
	if force {
		s.front.cutLocked()
	}
	return len(s.pieces.queued) > 0 && (force || r.reachedLocked() || s.callers.waitingLocked() > 0)
}

// reachedLocked reports whether the queue contains a batch of the maximum size, or few slabs are
// free.
func (r *reader) reachedLocked() bool {
	l, s := &r.conf.consumer.Limits, r.store
	return l.Bytes > 0 && s.pieces.bytes >= l.Bytes || l.Records > 0 && s.pieces.records >= l.Records ||
		s.pool.free() <= r.conf.o.SlabCount/4
}

// takeLocked leases the oldest pieces, up to the limits. The queue must not be empty. It returns
// nil if the maximum number of slabs is leased. The caller copies a mapped slab afterwards, without
// the locks.
func (r *reader) takeLocked() *Lease {
	s := r.store
	point(ptTakeLocked)
	// First the pieces are copied into the lease, which may fault. They stay queued until that has
	// succeeded.
	l := s.leases.newLocked()
	var rest piece // the part of the last piece that stays queued
	for _, p := range s.pieces.queued {
		n := r.fitLocked(l, &p)
		if n == 0 {
			break
		}
		if n < p.len() {
			p, rest = p.part(p.from, p.from+n), p.part(p.from+n, p.to)
		}
		// Consecutive pieces of one slab count as one slab.
		if k := len(l.pieces); k == 0 || l.pieces[k-1].blk != p.blk {
			l.slabs++
		}
		l.pieces = append(l.pieces, p)
		l.b.Add(p.run())
		if rest.len() > 0 {
			break
		}
	}
	// If nothing is leased, a lease may exceed the maximum, because the reader would otherwise wait
	// forever.
	if s.leases.leased > 0 && s.leases.leased+l.slabs > s.leases.most() {
		l.pieces, l.released = l.pieces[:0], true
		s.leases.reuseLocked(l)
		s.leases.starved = true
		return nil
	}
	l.at = l.b.Runs[0].Slot(0).Time
	l.n, l.since = l.b.Len(), l.pieces[0].since
	l.open = l.n
	if last := &l.pieces[len(l.pieces)-1]; last.first+uint64(last.len()) > s.due {
		s.due = 0
	}
	s.pieces.take(len(l.pieces), rest)
	s.leases.leased += l.slabs
	s.leases.list = append(s.leases.list, l)
	return l
}

// fitLocked returns how many records of p fit into l. If l is empty, it returns at least 1.
func (r *reader) fitLocked(l *Lease, p *piece) int {
	n, lim := p.len(), &r.conf.consumer.Limits
	if !r.limited && len(l.pieces) >= r.gatherNowLocked() {
		return 0
	}
	if lim.Records > 0 {
		n = min(n, lim.Records-l.b.Len())
	}
	if left := lim.Bytes - l.b.Bytes(); lim.Bytes > 0 && p.size > left {
		for i := range n {
			if left -= int(p.blk.slot(p.from + i).Len); left < 0 {
				n = i
				break
			}
		}
	}
	if l.b.Len() == 0 { // a record that exceeds a limit is sent alone
		return max(n, 1)
	}
	return max(n, 0)
}

// gatherNowLocked returns the maximum number of slabs of a batch without limits. The slabs of a
// batch are freed together. Meanwhile new records may fill as many other slabs, so a batch has at
// most as many slabs as are free. If calls wait for slabs anyway, or waited for the previous batch,
// the batch may be larger, because large batches need fewer calls of the destination.
func (r *reader) gatherNowLocked() int {
	s := r.store
	if s.callers.slabs.n > 0 || s.leases.waited {
		return r.gatherMax
	}
	return min(r.gatherMax, max(1, s.pool.free()))
}

// look spins for a sealed slab before the reader sleeps. Without that, a caller that fills slabs
// faster than a goroutine wakes would pay for a wake-up (about a microsecond) per slab. The reader
// spins only if the last attempt found a slab. After the first slab, it spins no longer than a
// wake-up lasts, because other goroutines may need the processor. before is the number of slabs
// sealed when the queue was empty.
func (r *reader) look(before uint32) {
	s := r.store
	point(ptSpin)
	want, began := uint32(r.few), time.Now()
	for range spinRounds {
		if n := s.sealed.Load() - before; n >= want || n > 0 && time.Since(began) > spinWorth {
			return
		}
		runtime.Gosched()
	}
	r.spinning = s.sealed.Load() != before
}

// corrupt drops the records of l, whose memory was damaged during the copy. They are in no queue, so
// toHeapLocked has not dropped them.
func (r *reader) corrupt(l *Lease) {
	s := r.store
	s.lock()
	s.crash.toHeapLocked(crashfile.ErrTruncated)
	// If End has been called since, it has already accounted for these records.
	if l.open > 0 && s.life != ended {
		s.countDropLocked(batch.Corrupt, l.open)
		l.open = 0
		s.leases.settledLocked(l)
	}
	s.unlock()
	l.Release()
}

// copyOut replaces the batch with a copy on the heap. If the memory is damaged, it returns false,
// and the copy must not be used.
func (l *Lease) copyOut() (ok bool) {
	c := &l.mem
	c.Data, c.Slots = c.Data[:0], c.Slots[:0]
	fault := l.s.crash.try(func() {
		ok = true
		for i := range l.b.Runs {
			r := &l.b.Runs[i]
			c.Slots = r.AppendSlots(c.Slots, uint32(len(c.Data)))
			c.Data = append(c.Data, r.Data()...)
			// If the file was truncated and extended during the copy, the copy may contain zeros.
			ok = ok && sound(r, l.pieces[i].first)
		}
	})
	if !ok || fault != nil {
		return false
	}
	l.b.Reset()
	l.b.Add(layout.NewRun(c.Data, c.Slots))
	return true
}
