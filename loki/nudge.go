package loki

import (
	"sync"
	"sync/atomic"
)

// maxNudge is the largest change of a time, in nanoseconds.
const maxNudge = int64(1e6)

const (
	windowBits = 19 // a window is 2^19 ns, half a millisecond
	pageBits   = 26 // a page is 128 windows, 67 ms
	windows    = 1 << (pageBits - windowBits)

	ownPages   = 64      // pages that each stream may always use
	maxPages   = 1024    // pages of one stream, 69 seconds without gaps
	allPages   = 1 << 16 // pages of all streams beyond ownPages: 34 MB
	maxRemoved = 4096    // removed pages that a stream remembers
)

// recent records the times that a stream has used: the last one in each window of half a
// millisecond. Separate windows ensure that a time never moves a distant one. Windows are
// grouped in pages. When a stream has no pages left, the oldest created page is removed,
// regardless of its time: records with equal times usually follow each other, even if the clocks
// of several sources differ. All methods are safe for concurrent use.
type recent struct {
	budget *atomic.Int64 // remaining pages of all streams beyond ownPages

	mu      sync.Mutex
	pages   map[int64]*page
	first   *page              // the page created first
	newest  *page              // the page created last
	removed map[int64]struct{} // numbers of removed pages
	last    *page              // the page used last
}

// A page records the used times of 67 ms.
type page struct {
	number int64
	next   *page           // the page created after it
	reused bool            // a page with this number was removed before
	given  [windows]uint32 // by window: offset of its last used time plus 1; 0 if none was used
}

// take returns the first unused time in [t, t+maxNudge], and marks it as used. unique is false if
// there is none, or if the page of the time was removed before, so that another record may have the
// same time. More than maxRemoved removed pages are not remembered.
func (r *recent) take(t int64) (at int64, unique bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at = t; at-t <= maxNudge; {
		p := r.page(at >> pageBits)
		g := &p.given[at>>windowBits&(windows-1)]
		first := at >> windowBits << windowBits
		if last := first + int64(*g); *g != 0 && at < last {
			at = last // the last used time plus 1, possibly in the next window
			continue
		}
		*g = uint32(at-first) + 1
		return at, !p.reused
	}
	return t, false
}

// page returns a page, and creates it if necessary.
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
		r.pages, r.removed = map[int64]*page{}, map[int64]struct{}{}
	}
	if n := len(r.pages); n < ownPages || n < maxPages && r.more() {
		p = new(page)
	} else {
		p = r.first
		r.first = p.next
		delete(r.pages, p.number)
		if _, known := r.removed[p.number]; !known && len(r.removed) >= maxRemoved {
			clear(r.removed)
		}
		r.removed[p.number] = struct{}{}
		*p = page{}
	}
	if r.first == nil {
		r.first = p
	} else {
		r.newest.next = p
	}
	r.newest = p
	_, p.reused = r.removed[number]
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

// uniqueTime returns a time that no other record of the stream has. If there is none, it counts
// a twin and returns t.
func (r *registry) uniqueTime(st *stream, t int64) int64 {
	at, unique := st.recent.take(t)
	if !unique {
		r.observed.note(twin)
	}
	return at
}
