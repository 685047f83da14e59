package slablog

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// life is the state of a Writer and its Log.
//
//	accepting ──Close──▶ closing ──End──▶ ended
//
// In the state closing, no record is accepted, and the consumer gets the remaining ones. Log.End
// retains the rest in the crash-safe file or, without such a file, drops it for the reason
// batch.Shutdown. From then on, results of the consumer are ignored: it may hang forever.
type life uint8

const (
	accepting life = iota
	closing
	ended
)

func (l life) String() string { return [...]string{"accepting", "closing", "ended"}[l] }

// errClosed is the error of a write after Close.
var errClosed = fmt.Errorf("slab: the writer is %w", batch.ErrClosed)

// become changes the state. All transitions are made here. It ignores transitions that are not in
// the diagram.
func (l *life) become(next life) {
	if next == *l+1 {
		*l = next
	} else {
		wrongLife(*l, next)
	}
}

// wrongLife is called for a transition that is not in the diagram. Tests make it panic.
var wrongLife = func(from, to life) {}
