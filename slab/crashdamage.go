package slab

import "github.com/forebay-log/forebay/internal/crashfile"

// A bigTable notes in the mapped file which records have a frame beside it, so that
// recovery knows what must be there. Guarded by Writer.mu.
type bigTable struct {
	at   map[uint64]int // by ticket: where it stands; -1: in bigMore
	free []int
	more uint64 // what bigMore says
}

func newBigTable() bigTable {
	t := bigTable{at: map[uint64]int{}, free: make([]int, crashfile.BigTracked)}
	for i := range t.free {
		t.free[i] = crashfile.BigTracked - 1 - i
	}
	return t
}

// expectBigLocked notes that the frame of a record is written.
func (w *Writer) expectBigLocked(ticket uint64) {
	w.guardLocked(func() {
		c := w.crash
		at := -1
		if k := len(c.free); k > 0 && ticket <= crashfile.MaxWord {
			at, c.free = c.free[k-1], c.free[:k-1]
			crashfile.StoreWord(&c.state.Big[at], ticket)
		} else {
			c.more++
			crashfile.StoreWord(&c.state.BigMore, c.more)
		}
		c.at[ticket] = at
	})
	if points {
		point(ptBigNotedLocked)
	}
}

// forgetBigLocked notes that the record is pending no more.
func (w *Writer) forgetBigLocked(ticket uint64) {
	w.guardLocked(func() {
		c := w.crash
		at, ok := c.at[ticket]
		if !ok {
			return
		}
		delete(c.at, ticket)
		if at < 0 {
			c.more--
			crashfile.StoreWord(&c.state.BigMore, c.more)
			return
		}
		crashfile.StoreWord(&c.state.Big[at], 0)
		c.free = append(c.free, at)
	})
}

// forgetSettledLocked forgets the records of pieces up to a ticket. That
// comes before the file says that they are settled: a process that dies between the two
// must not leave them expected.
func (w *Writer) forgetSettledLocked(pieces []*piece, ticket uint64) {
	if len(w.crash.at) == 0 {
		return
	}
	for _, p := range pieces {
		if p.blk.kind == oversize && p.first <= ticket {
			w.forgetBigLocked(p.first)
		}
	}
}
