package dest

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
)

// outlived is a destination behind retries whose reader may go. Without them its lines
// are lost then. Here they go where those of a destination that is down
// go or, if there is no such place, where refused ones go.
type outlived struct {
	deliver.Destination
	hold bool // there is a fallback or a spool
}

func (d outlived) Open(l deliver.Life) (deliver.Session, error) {
	return d.Destination.Open(outlivedLife{l, d.hold})
}

// outlivedLife follows other advice than that the destination is gone.
type outlivedLife struct {
	deliver.Life
	hold bool
}

func (l outlivedLife) Answer(b *batch.Batch, o batch.Outcome) {
	if errors.Is(o.Why, file.ErrGone) {
		if l.hold {
			o.Advice = batch.Hold
		} else {
			o = batch.Outcome{Refused: o.Open, Refusal: o.Why}
		}
	}
	l.Life.Answer(b, o)
}

// Outlet returns the destination of t for an outlet: one that goes on if the reader of t
// can go and there is another place for lines.
func (c *Spec) Outlet(t *Target) deliver.Destination {
	hold := c.Text("fallback") != "" || c.Text("spool") != ""
	if _, is := t.Dest.(*file.Stdio); is && (hold || c.Text("dead-letter") != "") {
		return outlived{t.Dest, hold}
	}
	return t.Dest
}
