package loki

import "sync/atomic"

// maxNudge is how far a record is moved at most, in nanoseconds.
const maxNudge = int64(1e6)

const (
	windowBits = 20 // a window is 2^20 ns, about a millisecond
	windows    = 64
)

// recent remembers, for each of the last windows of about a millisecond in which
// a stream had records, the last time given out there, in Unix nanoseconds. Since
// windows are kept apart, a record with a time in the future moves none of the
// others. All methods may be called from any goroutine; none waits.
type recent struct{ last [windows]atomic.Int64 }

// next returns t, or the first time after t that was not given out yet, at most
// maxNudge away; t itself if there is none.
func (r *recent) next(t int64) int64 {
	for at := t; at-t <= maxNudge; {
		w := &r.last[uint64(at>>windowBits)%windows]
		last := w.Load()
		if last>>windowBits == at>>windowBits && last >= at {
			if at = last + 1; at>>windowBits != last>>windowBits {
				continue // the next window has its own
			}
			if at-t > maxNudge {
				break
			}
		}
		if w.CompareAndSwap(last, at) {
			return at
		}
		at = t
	}
	return t
}
