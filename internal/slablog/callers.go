package slablog

import (
	"container/ring"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// callers contains the calls that wait for memory. store.mu guards it.
type callers struct {
	// slabs are the calls waiting for a slab, and bigs those waiting for a separate buffer.
	slabs, bigs waiterList
	spare       []*waiter // unused waiters, for reuse
	shortage    shortage
	// calls is the number of writes that waited, and time the total time of these waits.
	calls uint64
	time  time.Duration
}

// shortage is the worst outcome of a wait for memory since a slab was last freed. In the diagram,
// the time of a write is how long its policy lets it wait for memory; a write without an end waits
// until there is room.
//
//	enough ──half of the time of a write is over──▶ long ──all of it is──▶ saturated
//	  │ │                                            ▲                         ▲
//	  │ └──one without an end has waited──▶ stuck ───┘                         │
//	  └────────────all of the time of a write is over──────────────────────────┘
//
// A shortage may also change from stuck to saturated. When a slab is freed, it becomes enough.
type shortage uint8

const (
	enough    shortage = iota
	stuck              // a write without a time limit has waited for stuckAfter
	long               // records are about to be dropped
	saturated          // a wait of BlockFor or Spill has ended without room; no further waits begin
)

// stuckAfter is how long a write without a time limit waits before it counts as stuck.
const stuckAfter = 125 * time.Millisecond

// growLocked sets the shortage to the given value unless it is already worse.
func (s *shortage) growLocked(to shortage) { *s = max(*s, to) }

// A waiter is a blocked write. The goroutine that frees memory stores the waiter's record and then
// wakes the caller. Therefore records are stored in the order of arrival, and no caller wakes
// before its record is stored.
type waiter struct {
	// p is memory of the caller, which waits until the record was copied.
	p   []byte
	m   batch.Meta
	err error
	// ch has capacity 1. It gets one value when the call is answered. err is set before.
	ch    chan struct{}
	timer *time.Timer

	// list is the list that contains the waiter. It is nil after the answer. node is the waiter's
	// element in the list, with the waiter as its Value.
	list *waiterList
	node ring.Ring
}

// A waiterList contains waiters in the order of arrival. Adding and removing a waiter takes
// constant time and does not allocate.
type waiterList struct {
	ends ring.Ring // its neighbors are the first and the last waiter
	n    int
}

// first returns the waiter that waits longest, or nil.
func (l *waiterList) first() *waiter {
	if l.n == 0 {
		return nil
	}
	return l.ends.Next().Value.(*waiter)
}

// add adds wt at the end.
func (l *waiterList) add(wt *waiter) {
	l.ends.Prev().Link(&wt.node)
	wt.list = l
	l.n++
}

// leave removes wt, which may be at any position, from its list.
func (wt *waiter) leave() {
	wt.node.Prev().Unlink(1)
	wt.list.n--
	wt.list = nil
}

// maxSpareWaiters limits the number of waiters kept for reuse.
const maxSpareWaiters = 64

// waitingLocked returns the number of waiting writes.
func (q *callers) waitingLocked() int { return q.slabs.n + q.bigs.n }

// waitLocked adds a waiter for the record p to l. It reuses the channel and timer of an earlier
// waiter.
func (q *callers) waitLocked(l *waiterList, p []byte, m batch.Meta) *waiter {
	var wt *waiter
	if k := len(q.spare); k > 0 {
		wt, q.spare = q.spare[k-1], q.spare[:k-1]
	} else {
		wt = &waiter{ch: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		wt.timer.Stop()
		wt.node.Value = wt
	}
	wt.p, wt.m, wt.err = p, m, nil
	l.add(wt)
	return wt
}

// freeWaiterLocked keeps wt for reuse. The caller has received the answer, so the channel is empty.
func (q *callers) freeWaiterLocked(wt *waiter) {
	wt.p = nil
	if len(q.spare) < maxSpareWaiters {
		q.spare = append(q.spare, wt)
	}
}

// answerLocked ends the wait. If err is nil, the record was stored or its budget is reserved.
func (wt *waiter) answerLocked(err error) {
	point(ptAnswerLocked)
	wt.leave()
	wt.err = err
	wt.ch <- struct{}{} // does not block: the capacity is 1, with one answer per wait
}

// refuseWaitersLocked answers all blocked writes with errClosed.
func (s *store) refuseWaitersLocked() {
	for _, l := range []*waiterList{&s.callers.slabs, &s.callers.bigs} {
		for wt := l.first(); wt != nil; wt = l.first() {
			s.book.refused++
			wt.answerLocked(errClosed)
		}
	}
}

// lastResort passes records to Options.LastResort.
type lastResort struct {
	writes  *callback.Runner[[]byte]
	pending int // number of accepted records not yet written; 0 once Log.End has accounted for them
}

// lastResortQueue is the maximum number of records waiting for Options.LastResort.
const lastResortQueue = 256
