package loki

import (
	"sync"
	"sync/atomic"
)

// maxNudge is how far a record is moved at most, in nanoseconds.
const maxNudge = int64(1e6)

const (
	windowBits = 19 // a window is 2^19 ns, half a millisecond
	pageBits   = 26 // a page is 128 windows, 67 ms
	windows    = 1 << (pageBits - windowBits)

	ownPages  = 64      // that a stream has in any case
	maxPages  = 1024    // that it may have: 67 seconds without a gap
	allPages  = 1 << 16 // of all streams together: 34 MB
	maxBygone = 4096    // pages given up that a stream remembers
)

// recent remembers which times a stream has given out: for each window of half a
// millisecond the last one. Windows are kept apart, so that a time moves none that
// is far from it, and lie in pages. When a stream has no more pages, the one that
// was made first is given up, whatever its time: twins come soon after each other,
// in several sources with clocks far apart too. All methods may be called from any
// goroutine.
type recent struct {
	budget *atomic.Int64 // pages that all streams have, beyond ownPages each

	mu     sync.Mutex
	pages  map[int64]*page
	first  *page              // the page made first
	newest *page              // and last
	bygone map[int64]struct{} // pages given up
	last   *page              // the page used last
}

// A page is what was given out in 67 ms.
type page struct {
	number int64
	next   *page           // made after it
	again  bool            // there was such a page before
	given  [windows]uint32 // by window: one more than the offset of the last time in it
}

// spend returns a time for a record of time t: t, or the first one after it that
// was not given out yet, at most maxNudge away. It reports false if there is
// none, or if it does not know: then another record may have the same. (What lay in more
// pages than maxBygone is forgotten, and that too.)
func (r *recent) spend(t int64) (at int64, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at = t; at-t <= maxNudge; {
		p := r.page(at >> pageBits)
		g := &p.given[at>>windowBits&(windows-1)]
		first := at >> windowBits << windowBits
		if last := first + int64(*g); *g != 0 && at < last {
			at = last // one more than what was given out, maybe in the next window
			continue
		}
		*g = uint32(at-first) + 1
		return at, !p.again
	}
	return t, false
}

// page returns a page and makes it where it is missing.
func (r *recent) page(number int64) *page {
	if r.last != nil && r.last.number == number {
		return r.last
	}
	p := r.pages[number]
	if p == nil {
		p = r.make(number)
	}
	r.last = p
	return p
}

func (r *recent) make(number int64) (p *page) {
	if r.pages == nil {
		r.pages, r.bygone = map[int64]*page{}, map[int64]struct{}{}
	}
	if n := len(r.pages); n < ownPages || n < maxPages && r.more() {
		p = new(page)
	} else {
		p = r.first
		r.first = p.next
		delete(r.pages, p.number)
		if _, known := r.bygone[p.number]; !known && len(r.bygone) >= maxBygone {
			clear(r.bygone)
		}
		r.bygone[p.number] = struct{}{}
		*p = page{}
	}
	if r.first == nil {
		r.first = p
	} else {
		r.newest.next = p
	}
	r.newest = p
	_, p.again = r.bygone[number]
	p.number = number
	r.pages[number] = p
	return p
}

func (r *recent) more() bool {
	if r.budget == nil {
		return true
	}
	if r.budget.Add(1) > allPages {
		r.budget.Add(-1)
		return false
	}
	return true
}

// nudged returns a time for a record of a stream that no other one of it has, as
// far as there is one, and counts where there is none.
func (r *registry) nudged(st *stream, t int64) int64 {
	at, own := st.recent.spend(t)
	if !own {
		r.noticed.note(twin)
	}
	return at
}
