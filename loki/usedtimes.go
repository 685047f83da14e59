package loki

import (
	"sync"
	"sync/atomic"
)

// maxTimeShift is the largest change of a time by Config.UniqueTimes, in nanoseconds.
const maxTimeShift = int64(1e6)

// These are the sizes of usedTimes. They limit its memory: a page has about 520 bytes.
const (
	windowBits = 19                           // a window is 2^19 ns, half a millisecond
	pageBits   = 26                           // a page is 2^26 ns, 67 ms
	windows    = 1 << (pageBits - windowBits) // windows of a page

	ownPages   = 64      // number of pages that each stream may always use
	maxPages   = 1024    // maximum number of pages of one stream: 69 seconds without gaps
	allPages   = 1 << 16 // maximum number of pages of all streams beyond ownPages: 34 MB
	maxRemoved = 4096    // maximum number of removed pages that a stream remembers
)

// The type usedTimes contains the times that the records of a stream have used. It divides time
// into windows of half a millisecond and stores only the last used time of each window. A record
// gets the first time after the last used one in its window, so a record with a late time does not
// affect records with earlier times. Windows are grouped in pages.
//
// When the limit of pages is reached, the page that was created first is removed, regardless of its
// time. This is sufficient because records with equal times usually follow each other, even if the
// clocks of several sources differ. All methods are safe for concurrent use.
type usedTimes struct {
	// extraPages is the number of pages beyond ownPages, for all streams together. If it is nil,
	// the number is not limited.
	extraPages *atomic.Int64

	// mu guards the fields below it. No other lock is acquired under it.
	mu      sync.Mutex
	pages   map[int64]*page    // by number
	first   *page              // the page created first
	newest  *page              // the page created last
	removed map[int64]struct{} // numbers of removed pages
	last    *page              // the page used last
}

// A page contains the used times in 67 ms, divided into windows.
type page struct {
	// number identifies the page. It is the first time of the page, in Unix ns, shifted right by
	// pageBits.
	number int64
	next   *page // the page created after it
	// reused is true if a page with this number was removed before, so that its times may already
	// be used.
	reused bool
	// given contains the last used time of each window: its offset in ns plus 1, or 0 if none was
	// used.
	given [windows]uint32
}

// take returns the first unused time in [t, t+maxTimeShift], in Unix ns, and marks it as used. The
// result unique is false if another record may have the same time, because no time is unused, or
// because the page of the time was removed before. Removed pages are forgotten when there are
// maxRemoved of them.
func (r *usedTimes) take(t int64) (at int64, unique bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at = t; at-t <= maxTimeShift; {
		p := r.page(at >> pageBits)
		g := &p.given[at>>windowBits&(windows-1)]
		first := at >> windowBits << windowBits
		if last := first + int64(*g); *g != 0 && at < last {
			at = last // the time after the last used one, possibly in the next window
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

// addPage creates the page with the given number. When the limit is reached, it reuses the page
// that was created first. The caller holds r.mu.
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
		// When the limit is reached, all removed pages are forgotten, to bound the memory. If a
		// forgotten page is created again, its times count as unique.
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

// reserveExtraPage adds a page to the number of extra pages of all streams. If that number is
// already allPages, it returns false and adds no page.
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
