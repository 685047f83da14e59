package dedup

import "math/bits"

// Options configures a [Window]. The zero value is useful.
type Options struct {
	// Records is how far behind the newest record of an origin one that comes again is
	// still found. It has to cover what the sender had under way and set aside when its
	// answers were lost. Rounded up to a multiple of 64. Default 65,536, which is 8 KiB
	// an origin.
	Records int
	// Origins is how many origins are remembered; the one that was not heard of for the
	// longest time is forgotten first. A process has one for each output, a new one
	// with each start. Default 10,000.
	Origins int
}

// A Window remembers which records came. Its methods are for one goroutine at a time.
type Window struct {
	words   int // of 64 records each
	most    int
	origins map[[16]byte]*origin
	newest  origin // ring of all origins: newest.next was heard of last, newest.prev is forgotten first
	stats   Stats
}

// An origin is a bitmap of the last records: that of ticket t is bit t of a ring.
type origin struct {
	name       [16]byte
	top        uint64 // highest ticket that came
	seen       []uint64
	prev, next *origin
}

// Stats is what a [Window] has seen.
type Stats struct {
	First     uint64 // records that came for the first time
	Twice     uint64 // records that came again
	Unknown   uint64 // of First: so far behind that nobody knows; they may have come before
	Forgotten uint64 // origins forgotten
}

// New returns a Window. o may be nil.
func New(o *Options) *Window {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Records <= 0 {
		r.Records = 1 << 16
	}
	if r.Origins <= 0 {
		r.Origins = 10_000
	}
	w := &Window{words: (r.Records + 63) / 64, most: r.Origins, origins: map[[16]byte]*origin{}}
	w.newest.prev, w.newest.next = &w.newest, &w.newest
	return w
}

// First notes that the record of that name came, and reports whether for the first time.
// In doubt it did: a record that is behind the window, or has no name, is never taken for
// one that came.
func (w *Window) First(id ID) bool {
	if id.Origin == ([16]byte{}) {
		w.stats.First++
		w.stats.Unknown++
		return true
	}
	o := w.origin(id.Origin)
	size := uint64(w.words) * 64
	switch {
	case id.Ticket > o.top:
		o.slide(id.Ticket, size)
	case o.top-id.Ticket >= size:
		w.stats.First++
		w.stats.Unknown++
		return true
	}
	word, bit := &o.seen[id.Ticket%size/64], uint64(1)<<(id.Ticket%64)
	if *word&bit != 0 {
		w.stats.Twice++
		return false
	}
	*word |= bit
	w.stats.First++
	return true
}

// Stats returns what the Window has seen.
func (w *Window) Stats() Stats { return w.stats }

// Missing returns how many records of the window of that origin did not come, below the
// highest one that did.
func (w *Window) Missing(name [16]byte) uint64 {
	o := w.origins[name]
	if o == nil {
		return 0
	}
	came := 0
	for _, word := range o.seen {
		came += bits.OnesCount64(word)
	}
	return min(o.top, uint64(w.words)*64) - uint64(came)
}

// slide makes ticket the highest one, and forgets what leaves the window.
func (o *origin) slide(ticket, size uint64) {
	if ticket-o.top >= size {
		clear(o.seen)
	} else {
		for t := o.top + 1; t <= ticket; t++ {
			if t%64 == 0 && ticket-t >= 63 {
				o.seen[t%size/64] = 0
				t += 63
				continue
			}
			o.seen[t%size/64] &^= 1 << (t % 64)
		}
	}
	o.top = ticket
}

// origin returns the origin of that name, as the newest one.
func (w *Window) origin(name [16]byte) *origin {
	o := w.origins[name]
	switch {
	case o != nil:
		o.prev.next, o.next.prev = o.next, o.prev
	case len(w.origins) < w.most:
		o = &origin{name: name, seen: make([]uint64, w.words)}
		w.origins[name] = o
	default:
		o = w.newest.prev
		o.prev.next, o.next.prev = o.next, o.prev
		delete(w.origins, o.name)
		w.stats.Forgotten++
		clear(o.seen)
		o.name, o.top = name, 0
		w.origins[name] = o
	}
	o.prev, o.next = &w.newest, w.newest.next
	o.next.prev, w.newest.next = o, o
	return o
}
