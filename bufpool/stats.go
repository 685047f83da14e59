package bufpool

// Stats is the result of [Pool.Stats]. Counters start at New.
type Stats struct {
	// Classes has one entry per size class, smallest first.
	Classes []ClassStats
	// Oversize counts Gets above the largest class.
	Oversize uint64
	// Coverage is the share of Gets, from 0 to 1, with a size in a size class; 1 if there were
	// no Gets. Below 0.8 the classes do not match the workload.
	Coverage float64
	// Refused counts the slices that Put did not accept, by reason.
	Refused Refusals
}

// ClassStats are the statistics of one size class. While no call is in progress, two equations
// hold:
//
//	Gets   = Puts + Lost + InUse
//	Misses = Retained + InUse + Discarded + Released + Lost
//
// See [Pool.Stats] for the guarantees while calls are in progress.
type ClassStats struct {
	Size int // capacity of each buffer in bytes

	Gets   uint64 // buffers returned by Get
	Puts   uint64 // buffers accepted by Put; refused ones are in Stats.Refused
	Misses uint64 // Gets that found no free buffer and allocated one

	// Discarded is the number of buffers accepted by Put and dropped because the class was at
	// its limit.
	Discarded uint64
	// Released is the number of free buffers dropped because they were not needed for a whole
	// garbage collection cycle.
	Released uint64
	// Lost is the number of buffers that the garbage collector found dropped without a Put.
	// Dropping a buffer is allowed, but in small classes a Get that allocates costs several times
	// as much as a make. Buffers that append outgrew are included.
	Lost uint64

	Retained      int   // free buffers kept for later Gets
	RetainedBytes int64 // their capacity in bytes; at most the limit
	InUse         int   // buffers not returned by Put and not known to be lost
}

// Refusals counts the slices that Put did not accept, by reason. All reasons except Oversize
// indicate a caller that does not return the buffer it received.
type Refusals struct {
	// Oversize counts slices larger than the largest class, such as the result of a Get with such a
	// size.
	Oversize uint64
	// NoClass counts slices whose capacity is not a class. They were not returned by Get, were
	// grown by append, were resliced from the front, or have a reduced capacity.
	NoClass uint64
	// Foreign counts slices whose capacity is a class, but whose memory is not a buffer of
	// that class of this pool.
	Foreign uint64
	// Twice counts second Puts of a buffer that was already free.
	Twice uint64
}

// coverage returns the value of Stats.Coverage.
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

// A refusal is the reason why Put did not accept a slice. See Refusals.
type refusal int

const (
	refusedOversize refusal = iota
	refusedNoClass
	refusedForeign
	refusedTwice
	numRefusals
)

// stackClasses is the number of classes that Stats can report without allocating.
const stackClasses = 32

// Stats returns the counters. It does not wait for locks and takes some hundred nanoseconds per class;
// calling it once a second has no measurable cost.
//
// It reads the lists of each class in turn. While calls, or a trim after a collection, are in
// progress, the figures therefore belong to slightly different moments:
//   - No counter ever decreases, no counter includes events that did not happen, and Retained never
//     exceeds the limit.
//   - If the lock of a list is held at that moment, its last 63 Gets and last 63 Puts may be missing;
//     the next call includes them.
//   - InUse is Gets - Puts - Lost of these figures, or 0 if that is negative. It is inaccurate by the
//     missing calls.
//
// In debug mode Stats waits for the locks, one at a time. The figures are then the same as without
// [Config.Debug], although memory is used only once.
//
// With at most 32 classes it does not allocate if the result stays on the caller's stack.
func (p *Pool) Stats() Stats {
	// This function is small enough to be inlined. Therefore the slice can be in the caller's stack
	// frame.
	return p.stats(make([]ClassStats, 0, stackClasses))
}

// stats implements Stats. classes is memory for the result.
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

// appendClassStats appends the counters of every class to dst, smallest class first, and returns the
// extended slice.
func (p *Pool) appendClassStats(dst []ClassStats) []ClassStats {
	for _, c := range p.classes {
		dst = append(dst, c.stats(p.debug != nil))
	}
	return dst
}

// Totals are the counters of all classes together. They start at New.
type Totals struct {
	Gets   uint64 // buffers returned by Get
	Misses uint64 // Gets that allocated
}

// Totals returns the total numbers of Gets and of allocations. It is for frequent calls: it takes
// no lock and reads some numbers for each class in use. [Pool.Stats] returns more details. For each
// list of a class, the last 63 Gets may be missing. No counter ever decreases.
func (p *Pool) Totals() (t Totals) {
	for _, c := range p.classes {
		misses := c.misses.Load()
		if misses == 0 {
			continue // no buffer of this class was requested
		}
		t.Misses += misses
		t.Gets += misses
		for i := range c.lists {
			l := &c.lists[i]
			t.Gets += l.word.Load()>>getsBit + l.reported.pops.Load()
		}
	}
	return t
}

// tally holds some counters of one list.
type tally struct {
	hits uint64 // Gets that the list served
	puts uint64 // Puts into the stack, or back into the cache
	free int    // number of free buffers
}

// tallyTries is the number of times that the method tally tries to lock a list. The lock is usually
// held for some nanoseconds. If its holder is preempted, more attempts do not help.
const tallyTries = 4

// tally returns the counters of l. If it gets the lock, all counters belong to the same moment. If
// the lock is not free and wait is false, it reads the cache and the last published counters of the
// stack, which may belong to different moments.
func (l *list) tally(wait bool) tally {
	for range tallyTries {
		if wait {
			l.mu.Lock()
		} else if !l.mu.TryLock() {
			continue
		}
		// The counters are published, because a later call without the lock must not return smaller
		// ones.
		l.reportLocked()
		t := l.reported.withCache(&l.listCache)
		l.mu.Unlock()
		return t
	}
	t := l.reported.withCache(&l.listCache)
	t.free = min(t.free, int(l.limit))
	return t
}

// withCache returns the published counters plus the counters of the cache.
func (reported *published) withCache(s *listCache) tally {
	for {
		evictions, word := s.evictions.Load(), s.word.Load()
		if evictions != s.evictions.Load() {
			continue // a buffer has left the cache meanwhile
		}
		gets, puts, isFree := counts(word, evictions)
		t := tally{gets + reported.pops.Load(), puts + reported.pushes.Load(), int(reported.held.Load())}
		if isFree {
			t.free++
		}
		return t
	}
}

// stats returns the sum of the counters of all lists. If wait is set, it waits for their locks.
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
		Puts:          sum.puts + c.cachePuts.Load() + discarded,
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
