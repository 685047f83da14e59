package dest

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/stdio"
)

// continuing is a destination whose reader may exit, such as a pipe. After that, its records are
// held for the fallback or the spool of the output. If the output has neither, the records are
// refused and become dead letters.
type continuing struct {
	deliver.Destination
	hold bool // the output has a fallback or a spool
}

func (d continuing) Open(l deliver.Life) (deliver.Session, error) {
	return d.Destination.Open(continuingLife{l, d.hold})
}

// continuingLife passes the results of a session to the outlet. After the reader of the destination
// has exited, it changes the results: the outlet holds the records for the fallback or the spool.
// If the output has neither, they are refused.
type continuingLife struct {
	deliver.Life
	hold bool
}

func (l continuingLife) Answer(b *batch.Batch, o batch.Outcome) {
	if errors.Is(o.Why, stdio.ErrGone) {
		if l.hold {
			o.Advice = batch.Hold
		} else {
			o = batch.Outcome{Refused: o.Open, Refusal: o.Why}
		}
	}
	l.Life.Answer(b, o)
}

// Outlet returns the destination to which an output with the target t delivers. If the reader of t
// may exit, and the output has a fallback, a spool or a dead-letter file, the output continues
// after the exit.
func (c *Spec) Outlet(t *Target) deliver.Destination {
	hold := c.Text("fallback") != "" || c.Text("spool") != ""
	if _, is := t.Dest.(*stdio.Stream); is && (hold || c.Text("dead-letter") != "") {
		return continuing{t.Dest, hold}
	}
	return t.Dest
}
