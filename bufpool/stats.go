package bufpool

// Stats is what [Pool.Stats] returns. Counters count since New.
type Stats struct {
	// Classes has one entry per size class, smallest first.
	Classes []ClassStats
	// Oversize counts Gets above the largest class.
	Oversize uint64
	// Coverage is the share of Gets, from 0 to 1, that fell into a size class; 1 if
	// there were none. Below 0.8 the classes do not match the workload.
	Coverage float64
	// Refused counts slices Put did not take, by reason.
	Refused Refusals
}

// ClassStats is one size class. When no call is running
//
//	Gets   = Puts + Lost + InUse
//	Misses = Retained + InUse + Discarded + Released + Lost
//
// See [Pool.Stats] for what holds while calls run.
type ClassStats struct {
	Size int // capacity of each buffer in bytes

	Gets   uint64 // buffers handed out
	Puts   uint64 // buffers taken back; refused ones are in Stats.Refused
	Misses uint64 // Gets that found no free buffer and allocated one

	// Discarded counts buffers taken back and given up because the class was at
	// its ceiling.
	Discarded uint64
	// Released counts free buffers given back to the garbage collector because
	// nobody needed them for a whole collection cycle.
	Released uint64
	// Lost counts buffers the garbage collector found dropped without a Put.
	// That is allowed, but in small classes a Get that allocates costs several
	// times a make. A buffer that append outgrew counts here, too.
	Lost uint64

	Retained      int   // free buffers kept for the next Get
	RetainedBytes int64 // their capacity in bytes; at most the ceiling
	InUse         int   // buffers handed out, not taken back, not yet known lost
}

// Refusals counts the slices that Put did not take, by reason. All but Oversize
// point at a caller that does not hand back the buffer it got.
type Refusals struct {
	// Oversize: larger than the largest class, as from a Get above it.
	Oversize uint64
	// NoClass: the capacity is no class: foreign, grown by append, resliced from
	// the front, or with its capacity cut.
	NoClass uint64
	// Foreign: as NoClass, but the capacity happens to be a class. The memory is no
	// buffer of that class of this pool.
	Foreign uint64
	// Twice: a buffer that is free already.
	Twice uint64
}

// coverage returns Stats.Coverage.
func coverage(classes []ClassStats, oversize uint64) float64 {
	var gets uint64
	for i := range classes {
		gets += classes[i].Gets
	}
	if gets+oversize == 0 {
		return 1
	}
	return float64(gets) / float64(gets+oversize)
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

// Stats returns the counters. It waits for nobody and takes some hundred
// nanoseconds per class: once a second is nothing, however busy the pool is.
//
// It reads the lists of each class one after the other. While calls run, or a trim
// after a collection, the figures therefore belong to slightly different moments:
//   - No counter ever goes backwards, none counts events that did not happen, and
//     Retained is never above the ceiling.
//   - Of a list whose lock is held just then, the last 63 Gets and the last 63
//     Puts may be missing; the next call has them.
//   - InUse is Gets - Puts - Lost of these figures, or 0 if that is negative. It is
//     off by the calls that they miss.
//
// In debug mode it waits for the locks, one by one. The figures are then the same as
// without [Config.Debug], although memory is used only once.
//
// With at most 32 classes it allocates nothing if the result stays on the
// caller's stack.
func (p *Pool) Stats() Stats {
	// Small enough to be inlined, so that the caller's frame can hold the slice.
	return p.stats(make([]ClassStats, 0, stackClasses))
}

func (p *Pool) stats(classes []ClassStats) Stats {
	classes = p.appendClassStats(classes)
	oversize := p.oversize.Load()
	return Stats{
		Classes:  classes,
		Oversize: oversize,
		Coverage: coverage(classes, oversize),
		Refused: Refusals{
			Oversize: p.refused[refusedOversize].Load(),
			NoClass:  p.refused[refusedNoClass].Load(),
			Foreign:  p.refused[refusedForeign].Load(),
			Twice:    p.refused[refusedTwice].Load(),
		},
	}
}

// appendClassStats appends the counters of every class to dst, smallest class
// first, and returns it. dst stays the caller's.
func (p *Pool) appendClassStats(dst []ClassStats) []ClassStats {
	for _, c := range p.classes {
		dst = append(dst, c.stats(p.debug != nil))
	}
	return dst
}

// Totals are counters of all classes together. They count since New.
type Totals struct {
	Gets   uint64 // buffers handed out
	Misses uint64 // of those, how many had to be allocated
}

// Totals returns how many buffers were handed out and how many of them were new, for
// callers that ask often: it takes no lock and reads some numbers for each class in use.
// [Pool.Stats] tells more. Of each list of a class the last 63 Gets may be missing. No
// counter ever goes backwards.
func (p *Pool) Totals() (t Totals) {
	for _, c := range p.classes {
		misses := c.misses.Load()
		if misses == 0 {
			continue // nobody has asked for it
		}
		t.Misses += misses
		t.Gets += misses
		for i := range c.lists {
			l := &c.lists[i]
			t.Gets += l.word.Load()>>takesBit + l.told.pops.Load()
		}
	}
	return t
}

// tally holds the counters of one list.
type tally struct {
	hits uint64 // Gets it served
	puts uint64 // Puts into its stack, or back into its seat
	free int
}

// tallyTries is how often tally tries for the lock of a list. The lock is held for some
// nanoseconds, unless its holder is interrupted; then trying does not help.
const tallyTries = 4

// tally reads l at one moment if it gets the lock, or may wait for it. Otherwise it reads
// the seat as it is, and the counters of the stack that were published last.
func (l *list) tally(wait bool) tally {
	for range tallyTries {
		if wait {
			l.mu.Lock()
		} else if !l.mu.TryLock() {
			continue
		}
		l.tellLocked() // or the next call, without the lock, might tell of less
		t := l.told.with(&l.seat)
		l.mu.Unlock()
		return t
	}
	t := l.told.with(&l.seat)
	t.free = min(t.free, int(l.limit))
	return t
}

// with adds the counters of the seat.
func (told *published) with(s *seat) tally {
	for {
		evictions, word := s.evictions.Load(), s.word.Load()
		if evictions != s.evictions.Load() {
			continue // each time round, one has taken place
		}
		takes, gives, isFree := counts(word, evictions)
		t := tally{takes + told.pops.Load(), gives + told.pushes.Load(), int(told.held.Load())}
		if isFree {
			t.free++
		}
		return t
	}
}

// stats sums up the lists, one after the other.
func (c *class) stats(wait bool) ClassStats {
	var sum tally
	for i := range c.lists {
		t := c.lists[i].tally(wait)
		sum.hits += t.hits
		sum.puts += t.puts
		sum.free += t.free
	}
	discarded, lost, misses := c.discarded.Load(), c.lost.Load(), c.misses.Load()
	s := ClassStats{
		Size:          c.size,
		Gets:          sum.hits + misses,
		Puts:          sum.puts + c.settles.Load() + discarded,
		Misses:        misses,
		Discarded:     discarded,
		Released:      c.released.Load(),
		Lost:          lost,
		Retained:      sum.free,
		RetainedBytes: int64(sum.free) * int64(c.size),
	}
	s.InUse = max(int(s.Gets-s.Puts-s.Lost), 0)
	return s
}
