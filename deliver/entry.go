package deliver

import (
	"github.com/forebay-log/forebay/batch"
)

// An entry is one batch in the custody of a Keeper, outside the spill or handed
// out by it.
//
//	queued ──Start──▶ started ──done(nil)──▶ answered
//	   ▲                 │
//	   │                 └──done(error)──▶ failed
//	   └── all behind one that is sent again ──┘
type entry struct {
	k    *Keeper
	b    *batch.Batch // &mem.b, or the spill's
	mem  copied
	done func(error) // what Start is given; made once

	// Keeper.mu guards the rest.
	state entryState
	err   error
	seq   uint64 // number in the spill; 0: not from there
	no    uint64 // number among those taken from producers
	n     uint64 // records that count
	over  uint64 // records of them that are accounted for
	moved bool   // out of the window, into the spill
	ceded bool   // the spill has a copy that counts in its place
}

type entryState uint8

const (
	queued entryState = iota
	started
	answered
	failedEntry
)

// unsettled returns the number of records that are not accounted for.
func (e *entry) unsettled() uint64 { return e.n - e.over }

// freeLocked returns an entry to fill.
func (k *Keeper) freeLocked() *entry {
	if n := len(k.spare); n > 0 {
		e := k.spare[n-1]
		k.spare[n-1] = nil
		k.spare = k.spare[:n-1]
		return e
	}
	e := &entry{k: k}
	e.done = func(err error) { e.k.finish(e, err) }
	return e
}

// recycleLocked takes back an entry that nobody reads any more.
func (k *Keeper) recycleLocked(e *entry) {
	e.b, e.err = nil, nil
	e.seq, e.no, e.n, e.over, e.state, e.moved = 0, 0, 0, 0, queued, false
	if len(k.spare) <= k.window {
		k.spare = append(k.spare, e)
	}
}

// popLocked takes the first entry out of ring.
func popLocked(ring *[]*entry) *entry {
	r := *ring
	e := r[0]
	copy(r, r[1:])
	r[len(r)-1] = nil
	*ring = r[:len(r)-1]
	return e
}

// settleLocked accounts for all records of e that are not yet: as t says, the
// others as delivered. What t.Taken names went into the spill.
func (k *Keeper) settleLocked(e *entry, t batch.Tally) {
	k.countLocked(e, e.unsettled(), t)
}

// countLocked accounts for n records of e.
func (k *Keeper) countLocked(e *entry, n uint64, t batch.Tally) {
	if t.Settled() > n {
		t = batch.Tally{}
	}
	k.acc.Delivered += n - t.Settled()
	k.acc.Handled += t.Handled
	k.acc.Dropped.Add(t.Dropped)
	e.over += n
	if e.seq != 0 {
		k.overSpill += n
	}
}
