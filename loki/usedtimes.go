package loki

import (
	"sync"
	"sync/atomic"
)

// maxTimeShift is the largest change of a time by Config.UniqueTimes, in nanoseconds.
const maxTimeShift = int64(1e6)

// The sizes of usedTimes. They bound its memory: a page has about 520 bytes.
const (
	windowBits = 19                           // a window is 2^19 ns, half a millisecond
	pageBits   = 26                           // a page is 2^26 ns, 67 ms
	windows    = 1 << (pageBits - windowBits) // windows of a page

	ownPages   = 64      // pages that each stream may always use
	maxPages   = 1024    // pages of one stream, 69 seconds without gaps
	allPages   = 1 << 16 // pages of all streams beyond ownPages: 34 MB
	maxRemoved = 4096    // removed pages whose numbers a stream remembers
)

// A usedTimes holds the times that the records of a stream have used: the last one in each window of
// half a millisecond. A record gets the first time after the last one used in its window. With separate
// windows, a record with a late time does not affect records with earlier times. Windows are grouped in
// pages. When a stream has no pages left, the page created first is removed, regardless of its time:
// records with equal times usually follow each other, even if the clocks of several sources differ. All
// methods are safe for concurrent use.
type usedTimes struct {
	extraPages *atomic.Int64 // number of pages of all streams beyond ownPages; nil: not limited

	mu      sync.Mutex
	pages   map[int64]*page    // by number
	first   *page              // the page created first
	newest  *page              // the page created last
	removed map[int64]struct{} // numbers of removed pages
	last    *page              // the page used last
}

// A page holds the used times of 67 ms, in the windows of equal number.
type page struct {
	number int64           // its first time, in Unix ns, shifted right by pageBits
	next   *page           // the page created after it
	reused bool            // a page with this number was removed before, so its times may be used
	given  [windows]uint32 // by window: offset of its last used time plus 1; 0 if none was used
}

// take returns the first unused time in [t, t+maxTimeShift], and marks it as used. unique is false if
// there is none, or if the page of the time was removed before, so that another record may have the
// same time. After maxRemoved removed pages all of them are forgotten.
func (r *usedTimes) take(t int64) (at int64, unique bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at = t; at-t <= maxTimeShift; {
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

// page returns the page with the given number, and creates it if necessary. The caller holds r.mu.
func (r *usedTimes) page(number int64) *page {
	if r.last != nil && r.last.number == number {
		return r.last
	}
	p := r.pages[number]
	if p == nil {
		p = r.addPage(number)
	}
	r.last = p
	return p
}

// addPage creates the page with the given number. At the limit it reuses the page created first. The
// caller holds r.mu.
func (r *usedTimes) addPage(number int64) (p *page) {
	if r.pages == nil {
		r.pages, r.removed = map[int64]*page{}, map[int64]struct{}{}
	}
	if n := len(r.pages); n < ownPages || n < maxPages && r.reserveExtraPage() {
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

// reserveExtraPage adds a page to the number of extra pages of all streams. It returns false if there are
// allPages already.
func (r *usedTimes) reserveExtraPage() bool {
	if r.extraPages == nil {
		return true
	}
	if r.extraPages.Add(1) > allPages {
		r.extraPages.Add(-1)
		return false
	}
	return true
}

// uniqueTime returns a time in Unix ns that no other record of the stream has. If there is none, it
// counts timeNotUnique and returns t.
func (r *registry) uniqueTime(st *stream, t int64) int64 {
	at, unique := st.usedTimes.take(t)
	if !unique {
		r.observed.inc(timeNotUnique)
	}
	return at
}
