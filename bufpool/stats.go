package bufpool

// Stats is what [Pool.Stats] returns. Counters count since New.
type Stats struct {
	// Classes has one entry per size class, smallest first.
	Classes []ClassStats
	// Oversize counts Gets above the largest class.
	Oversize uint64
	// Refused counts slices Put did not take, by reason.
	Refused Refusals
}

// ClassStats is one size class. At every moment
//
//	Gets   = Puts + Lost + InUse
//	Misses = Retained + InUse + Discarded + Released + Lost
type ClassStats struct {
	Size int // capacity of each buffer in bytes

	Gets   uint64 // buffers handed out
	Puts   uint64 // buffers taken back; refused ones are in Stats.Refused
	Misses uint64 // Gets that found no free buffer and allocated one

	// Discarded counts buffers taken back and given up because the class was at
	// its ceiling (in debug mode also those found damaged).
	Discarded uint64
	// Released counts free buffers given back to the garbage collector because
	// nobody needed them for a whole collection cycle.
	Released uint64
	// Lost counts buffers the garbage collector found dropped without a Put.
	// That is allowed, but a Get that has to allocate costs several times the
	// make it replaces for small classes. A buffer that append outgrew
	// counts here too.
	Lost uint64

	Retained      int   // free buffers kept for the next Get
	RetainedBytes int64 // their capacity in bytes; at most the ceiling
	InUse         int   // buffers handed out, not taken back, not yet known lost
}

// Refusals counts the slices that Put did not take, by reason. All but Oversize
// point at a caller that does not hand back what it got.
type Refusals struct {
	// Oversize: larger than the largest class, as from a Get above it.
	Oversize uint64
	// NoClass: the capacity is no class: foreign, grown by append, resliced from
	// the front, or with its capacity cut.
	NoClass uint64
	// Foreign: the capacity is a class, but the memory is not a buffer of that
	// class of this pool: as NoClass, and the capacity matches by chance.
	Foreign uint64
	// Twice: a buffer that is free already.
	Twice uint64
}

// Total is the number of slices refused for any reason.
func (r Refusals) Total() uint64 { return r.Oversize + r.NoClass + r.Foreign + r.Twice }

// Coverage is the share of Gets, from 0 to 1, that fell into a size class; 1 if
// there were none. Below 0.8 the classes do not match the workload.
func (s Stats) Coverage() float64 {
	var gets uint64
	for i := range s.Classes {
		gets += s.Classes[i].Gets
	}
	if gets+s.Oversize == 0 {
		return 1
	}
	return float64(gets) / float64(gets+s.Oversize)
}

type refusal int

const (
	refusedOversize refusal = iota
	refusedNoClass
	refusedForeign
	refusedTwice
	numRefusals
)

// stackClasses is how many classes Stats can report without allocating.
const stackClasses = 32

// Stats returns the counters. Each class is a consistent snapshot; classes are
// read one after the other. It takes some hundred nanoseconds per class and may
// hold up Gets and Puts of one class for as long: once a second is nothing.
//
// With at most 32 classes it allocates nothing if the result stays on the
// caller's stack; [Pool.AppendClassStats] allocates nothing if dst has room.
func (p *Pool) Stats() Stats {
	// Small enough to be inlined, so that the caller's frame can hold the slice.
	return p.stats(make([]ClassStats, 0, stackClasses))
}

func (p *Pool) stats(classes []ClassStats) Stats {
	return Stats{
		Classes:  p.AppendClassStats(classes),
		Oversize: p.oversize.Load(),
		Refused: Refusals{
			Oversize: p.refused[refusedOversize].Load(),
			NoClass:  p.refused[refusedNoClass].Load(),
			Foreign:  p.refused[refusedForeign].Load(),
			Twice:    p.refused[refusedTwice].Load(),
		},
	}
}

// AppendClassStats appends the counters of every class to dst, smallest class
// first, and returns it. dst stays the caller's.
func (p *Pool) AppendClassStats(dst []ClassStats) []ClassStats {
	for _, c := range p.classes {
		dst = append(dst, c.stats())
	}
	return dst
}

// stats sums up the lists. It holds all their locks at once, so that a buffer
// moving from one to another is counted once. Nobody who holds one of them
// waits for a second.
func (c *class) stats() ClassStats {
	var sum counters
	retained := 0
	for i := range c.lists {
		c.lists[i].mu.Lock()
	}
	for i := range c.lists {
		sum.add(&c.lists[i].counters)
		retained += len(c.lists[i].items)
	}
	for i := range c.lists {
		c.lists[i].mu.Unlock()
	}
	gets := sum.hits + sum.misses
	return ClassStats{
		Size:          c.size,
		Gets:          gets,
		Puts:          sum.puts,
		Misses:        sum.misses,
		Discarded:     sum.discarded,
		Released:      sum.released,
		Lost:          sum.lost,
		Retained:      retained,
		RetainedBytes: int64(retained) * int64(c.size),
		InUse:         int(gets - sum.puts - sum.lost),
	}
}
