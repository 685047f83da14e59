package slablog

import "time"

// A Log is the consumer's side of a [Writer]: a passive queue of the accepted records, with those
// of dead processes first. It starts no goroutine and waits for nothing.
//
//	Next ─▶ a lease ─▶ Settle, Release
//	  └──▶ nothing: wait for Wake, until Due
//
// Next and Due are for one goroutine. The other methods may be called from any goroutine, and do
// not block unless they have a context.
type Log struct {
	reader reader
	marker marker
}

// Next returns the oldest records that have not been leased yet. It returns nil if no records are
// due: no slab is full, and no record has waited long enough. ended reports that no more records
// will come, because the log is closed and empty. If records were dropped, Next first returns a
// lease with only a gap marker: a record with layout.FlagMarker, which no account counts.
func (l *Log) Next() (lease *Lease, ended bool) {
	r := &l.reader
	if lease = l.marker.held; lease != nil {
		l.marker.held = nil
		return lease, false
	}
	lease, ended = r.next()
	if r.conf.o.Codec == nil || lease == nil && !ended {
		return lease, ended
	}
	if m := l.marker.next(r, lease); m != nil {
		l.marker.held = lease
		return m, false
	}
	return lease, ended
}

// Due returns the time at which Next must be called again, even without a value from Wake. If it is
// zero, the consumer waits only for Wake.
func (l *Log) Due() time.Time {
	if l.marker.held != nil {
		return time.Now()
	}
	return l.reader.due()
}

// Wake returns a channel that receives a value when Next may return a lease again, when [Log.Full]
// or [Log.Shortage] may have become true, and after Flush and Close.
func (l *Log) Wake() <-chan struct{} { return l.reader.store.bell.ch }

// Flush makes all records accepted so far due. ticket is the ticket of the last one. ok is false if
// the log is closed.
func (l *Log) Flush() (ticket uint64, ok bool) {
	s := l.reader.store
	point(ptFlush)
	s.lock()
	defer s.unlock()
	if s.life != accepting {
		return 0, false
	}
	if s.readUpToLocked() < s.front.next {
		s.due = s.front.next
	}
	s.bell.alarmLocked()
	return s.front.next, true
}

// Leased reports whether all records up to ticket were leased, and all records of dead processes
// are settled.
func (l *Log) Leased(ticket uint64) bool {
	s := l.reader.store
	s.lock()
	defer s.unlock()
	return l.marker.held == nil && s.readUpToLocked() >= ticket && len(s.found.files) == 0
}

// Full reports whether calls wait until the consumer moves records to disk ([slab.Spill]), or have
// given up waiting for that. With any other policy, Full returns false without acquiring a lock.
func (l *Log) Full() bool {
	s := l.reader.store
	if !s.conf.spills() {
		return false
	}
	spinLock(&s.mu, s.front.spins)
	defer s.mu.Unlock()
	return s.callers.waitingLocked() > 0 || s.callers.shortage == saturated
}

// Shortage reports a shortage of memory. drops reports that records are about to be dropped: few
// slabs are free and calls do not wait, or a call has used half of its time limit. waits reports
// that a call without a time limit ([slab.Block]) has waited for 125 ms.
func (l *Log) Shortage() (drops, waits bool) {
	s := l.reader.store
	spinLock(&s.mu, s.front.spins)
	defer s.mu.Unlock()
	return s.callers.shortage >= long || s.fewLocked(), s.callers.shortage == stuck
}
