package slablog

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// life is the state of a Writer and its Log.
//
//	accepting ──Close──▶ closing ──nothing is left────────────────────▶ closed
//	                        ├─────the rest stays in the crash-safe file──▶ retained
//	                        └─────the rest is dropped, the consumer hangs──▶ abandoned
//
// In the state closing, no record is accepted, and the consumer gets the remaining ones. Log.End
// ends this state: it retains the rest in the crash-safe file or, without such a file, drops it.
// From then on, results of the consumer are ignored.
type life uint8

const (
	accepting life = iota
	closing
	closed    // nothing is left, or the rest is dropped for the reason batch.Shutdown
	retained  // the rest is in the crash-safe file, for the next process
	abandoned // the rest is dropped for the reason batch.Shutdown; the consumer may hang forever
)

func (l life) String() string {
	return [...]string{"accepting", "closing", "closed", "retained", "abandoned"}[l]
}

// errClosed is the error of a write after Close.
var errClosed = fmt.Errorf("slab: the writer is %w", batch.ErrClosed)

// ended reports whether Log.End has accounted for the unsettled records. There are no further
// attempts to deliver them.
func (l life) ended() bool { return l > closing }

// become changes the state. All transitions are made here. It ignores transitions that are not in
// the diagram. The states closed, retained and abandoned are final.
func (l *life) become(next life) {
	if *l == accepting && next == closing || *l == closing && next > closing {
		*l = next
	} else {
		wrongLife(*l, next)
	}
}

// wrongLife is called for a transition that is not in the diagram. Tests make it panic.
var wrongLife = func(from, to life) {}
