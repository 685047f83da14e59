package slablog

import "time"

// gauge contains the data for the rates and ages in Stats.
type gauge struct {
	rate     rateMeter
	rewound  uint64        // number of bytes in slabs that were refilled without being sealed
	curSince time.Duration // time at which the first record of cur that belongs to no piece was accepted
	parkedAt time.Duration // time at which the reader began to wait for a record
}

// rateMeter measures the rate at which a total grows. Stats and the reader update it; the callers
// that increase the total do not.
type rateMeter struct {
	old, mid sample
}

// A sample is the value of the total at a time.
type sample struct {
	at    time.Time
	total uint64
}

// rateWindow is the time between the two samples. The rate covers one to two windows.
const rateWindow = time.Second

// update returns the rate per second. The parameter total is the total at the time now.
func (r *rateMeter) update(now time.Time, total uint64) float64 {
	if r.old.at.IsZero() {
		r.old, r.mid = sample{now, total}, sample{now, total}
		return 0
	}
	if r.due(now) {
		r.old, r.mid = r.mid, sample{now, total}
	}
	d := now.Sub(r.old.at).Seconds()
	if d <= 0 || total < r.old.total {
		return 0
	}
	return float64(total-r.old.total) / d
}

// idle is called if the total did not grow between the times from and now.
func (r *rateMeter) idle(from, now time.Time, total uint64) {
	if now.Sub(from) >= rateWindow {
		s := sample{now.Add(-rateWindow), total}
		r.old, r.mid = s, s
	}
}

// due reports whether it is time for an update.
func (r *rateMeter) due(now time.Time) bool { return now.Sub(r.mid.at) >= rateWindow }

// beganLocked is called when the first record of a piece was accepted, at the time since. The
// reader may be waiting or busy.
func (f *front) beganLocked(since time.Duration) {
	f.store.gauge.curSince = since
	now := f.conf.born.Add(since)
	if f.store.bell.state == parked { // the rate of a burst must not include the idle time before it
		f.store.gauge.rate.idle(f.conf.born.Add(f.store.gauge.parkedAt), now, f.acceptedBytesLocked())
	}
	if f.store.gauge.rate.due(now) {
		f.store.gauge.rate.update(now, f.acceptedBytesLocked())
	}
}

// acceptedBytesLocked returns the number of slab bytes used so far, to within one slab.
func (f *front) acceptedBytesLocked() uint64 {
	n := uint64(f.store.sealed.Load()) * uint64(f.conf.o.SlabBytes)
	if b := f.cur; b != nil {
		n += uint64(f.conf.o.SlabBytes - b.room())
	}
	return n + f.store.gauge.rewound
}

// maxBurst limits BurstLeft, which would be huge with a rate near zero.
const maxBurst = 24 * time.Hour

// freeBytesLocked returns the number of free bytes, including those of the current slab.
func (f *front) freeBytesLocked() int {
	n := len(f.store.pool.free) * f.conf.o.SlabBytes
	if b := f.cur; b != nil {
		n += b.room()
	}
	return n
}

// burstLeftLocked returns the time in which callers fill the free memory at the given rate, in
// bytes per second, if the destination accepts nothing.
func (s *store) burstLeftLocked(rate float64) time.Duration {
	if len(s.pool.free) == 0 && (s.callers.slabs.n > 0 || s.book.series.lasting) {
		return 0 // calls already wait for a slab, or records are already being dropped
	}
	free := float64(s.front.freeBytesLocked())
	if rate <= 0 || free/rate > maxBurst.Seconds() {
		return maxBurst
	}
	return time.Duration(free / rate * float64(time.Second))
}

// oldestLocked returns the age of the oldest unsettled record, and how long ago it was accepted.
func (s *store) oldestLocked(now time.Time) (age, wait time.Duration) {
	var t int64
	since := s.gauge.curSince
	first := s.found.lease
	for _, l := range s.leases.list {
		if first == nil && l.open > 0 {
			first = l
		}
	}
	switch b := s.front.cur; {
	case first != nil:
		t, since = first.at, first.since
	case len(s.pieces.queued) > 0:
		p := s.pieces.queued[0]
		if since = p.since; p.blk.head == nil {
			t = p.blk.slot(p.from).Time
		}
	case b != nil && b.n > b.cut:
		if b.head == nil {
			t = b.slot(b.cut).Time
		}
	default:
		return 0, 0
	}
	wait = max(0, now.Sub(s.conf.born)-since)
	if t == 0 || s.crash != nil {
		return wait, wait
	}
	return max(0, time.Duration(now.UnixNano()-t)), wait
}
