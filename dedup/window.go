package dedup

// Options configures a [Window]. The zero value is valid.
type Options struct {
	// Records is the size of the window of an origin, in tickets. A repeated record is detected if
	// its ticket is at most Records below the highest ticket that was received from its origin. The
	// window must cover the records that the sender had in flight or set aside when their answers
	// were lost. Records is rounded up to a multiple of 64. Default 65,536, which needs 8 KiB per
	// origin.
	Records int
	// Origins is the maximum number of origins; the least recently seen one is removed
	// first. A process has one origin for each output, and new ones after each start.
	// Default 10,000.
	Origins int
}

// A Window stores which records were received. It is not safe for concurrent use.
type Window struct {
	words   int // size of the bitmap of an origin, in words of 64 records
	most    int // maximum number of origins
	origins map[[16]byte]*origin
	// newest is the root of a circular list of all origins: newest.next is the most recently seen
	// one, and newest.prev the least recently seen one.
	newest origin
	stats  Stats
}

// An origin holds a bitmap of the last records with one ID.Origin: ticket t is bit t modulo the
// size of the window.
type origin struct {
	name       [16]byte
	top        uint64   // highest ticket received
	seen       []uint64 // bits of the tickets in (top-size, top]
	prev, next *origin  // in the ring of Window.newest
}

// Stats are the counters of a [Window].
type Stats struct {
	First uint64 // records received for the first time
	Twice uint64 // records received again
	// Unknown is the number of records in First whose ticket was below the window. These may have
	// been received before.
	Unknown   uint64
	Forgotten uint64 // origins removed
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

// First marks the record with the given id as received, and reports whether it was received for
// the first time. If the ticket is below the window of its origin, or id is the zero ID, First
// cannot decide this and returns true, because a consumer should process a record twice rather
// than lose it.
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

// Stats returns the counters of the Window.
func (w *Window) Stats() Stats { return w.stats }

// slide makes ticket, which is above top, the highest one. It clears the bits of the tickets in
// between, because older tickets, which now leave the window, have used these bits. size is the
// size of the window.
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

// origin returns the origin with that name, and makes it the most recently seen.
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
