package slab

// life is the state of a Writer.
//
//	accepting ──Shutdown──▶ closing ──the drain has ended──────────────────▶ closed
//	                           ├───the time is over: the rest stays on disk──▶ retained
//	                           └───the time is over: the rest is dropped─────▶ abandoned
//
// While it is closing, the Writer accepts no records, and the drain passes the remaining ones to
// the consumer. If there is not enough time for that, the drain retains the rest in the crash-safe
// file or, without one, drops it. Then it ends, and the Writer is closed. If the drain hangs in a
// call of the consumer, Shutdown does this instead, and later results of the consumer are ignored.
// Shutdown also retains records that the consumer has given back.
type life uint8

const (
	accepting life = iota
	closing
	closed    // nothing is left
	retained  // the rest is in the crash-safe file, for the next process
	abandoned // the rest is dropped{shutdown}; the drain may hang for ever
)

func (l life) String() string {
	return [...]string{"accepting", "closing", "closed", "retained", "abandoned"}[l]
}

// leadsTo reports whether next may follow l.
func (l life) leadsTo(next life) bool {
	return l == accepting && next == closing || l == closing && next > closing
}

// cutShort reports whether the rest is accounted for although it was not settled:
// nothing more is attempted.
func (l life) cutShort() bool { return l == retained || l == abandoned }

// become changes the state; all transitions go through it. It ignores a transition that is not in
// the drawing: a state at the end of the drawing is final.
func (l *life) become(next life) {
	if !l.leadsTo(next) {
		wrongLife(*l, next)
		return
	}
	*l = next
}

// wrongLife is called for a transition that is not in the drawing. The tests panic there.
var wrongLife = func(from, to life) {}
