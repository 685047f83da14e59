package slab

// life is what a Writer still does.
//
//	accepting ──Shutdown──▶ closing ──the drain has ended──────────────────▶ closed
//	                           ├───the time is over: the rest stays on disk──▶ retained
//	                           └───the time is over: the rest is dropped─────▶ abandoned
//
// Closing, it takes nothing new, and the drain hands over what is left. If the drain has
// no time for that, it retains the rest itself where there is a crash-safe file, and
// drops it where there is none: then it ends, and the Writer is closed. A drain that
// hangs in a call of the borrower does neither, so that Shutdown does: whatever the
// borrower says later changes nothing. Shutdown also retains what the borrower gave back.
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

// become is the only way from one state to another. A step that is not in the drawing is
// not taken: what has ended stays as it is.
func (l *life) become(next life) {
	if !l.leadsTo(next) {
		wrongLife(*l, next)
		return
	}
	*l = next
}

// wrongLife is told of a step that is not in the drawing. The tests panic there.
var wrongLife = func(from, to life) {}
