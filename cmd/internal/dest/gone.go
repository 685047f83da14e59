package dest

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
)

// continuing is a destination with retries whose reader may end. Its lines then go to the fallback or
// the spool, like lines of a destination that is down, or otherwise to the dead letters. Without
// them, the lines are dropped.
type continuing struct {
	deliver.Destination
	hold bool // there is a fallback or a spool
}

func (d continuing) Open(l deliver.Life) (deliver.Session, error) {
	return d.Destination.Open(continuingLife{l, d.hold})
}

// continuingLife replaces the advice that the destination is gone.
type continuingLife struct {
	deliver.Life
	hold bool
}

func (l continuingLife) Answer(b *batch.Batch, o batch.Outcome) {
	if errors.Is(o.Why, file.ErrGone) {
		if l.hold {
			o.Advice = batch.Hold
		} else {
			o = batch.Outcome{Refused: o.Open, Refusal: o.Why}
		}
	}
	l.Life.Answer(b, o)
}

// Outlet returns the destination of t for an outlet. If the reader of t may end and there is
// another place for its lines, the outlet continues.
func (c *Spec) Outlet(t *Target) deliver.Destination {
	hold := c.Text("fallback") != "" || c.Text("spool") != ""
	if _, is := t.Dest.(*file.Stdio); is && (hold || c.Text("dead-letter") != "") {
		return continuing{t.Dest, hold}
	}
	return t.Dest
}
