package dest

import (
	"errors"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
)

// continuing is a destination whose reader may end, such as a pipe. After that its records are
// treated like those of a failing destination: they are held for the fallback or the spool or,
// without these, refused, which writes them to the dead-letter file.
type continuing struct {
	deliver.Destination
	hold bool // the output has a fallback or a spool
}

func (d continuing) Open(l deliver.Life) (deliver.Session, error) {
	return d.Destination.Open(continuingLife{l, d.hold})
}

// continuingLife changes outcomes that report the end of the reader.
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

// Outlet returns the destination that the outlet of t uses. If the reader of t may end and the
// output has a fallback, a spool or a dead-letter file, the outlet continues after that end.
func (c *Spec) Outlet(t *Target) deliver.Destination {
	hold := c.Text("fallback") != "" || c.Text("spool") != ""
	if _, is := t.Dest.(*file.Stdio); is && (hold || c.Text("dead-letter") != "") {
		return continuing{t.Dest, hold}
	}
	return t.Dest
}
