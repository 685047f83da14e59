package slablog

import "time"

// gauge contains the data for the rates and ages in Stats.
type gauge struct {
	rate rateMeter
	// rewound is the number of bytes in slabs that were refilled without being sealed.
	rewound uint64
	// parkedAt is the time since config.born at which the reader began to wait for a record.
	parkedAt time.Duration
}

// rateMeter measures the rate at which a total grows. It is updated by Stats and by the first record
// of each slab and flush, so most calls do not pay for it.
type rateMeter struct {
	// When the rate is updated, the sample old is one to two windows old, and the sample mid less
	// than one window.
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
	if now.Sub(r.mid.at) >= rateWindow {
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
