package program

import (
	"errors"
	"slices"
	"strings"

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

// outlet returns the destination of t for an outlet: one that goes on if the reader of t
// can go and there is another place for lines.
func (c *outputConfig) outlet(t *target) deliver.Destination {
	hold := c.Text("fallback") != "" || c.Text("spool") != ""
	if _, is := t.dest.(*file.Stdio); is && (hold || c.Text("dead-letter") != "") {
		return outlived{t.dest, hold}
	}
	return t.dest
}

// isGone reports whether the reader of the output is gone.
func (out *output) isGone() bool {
	select {
	case <-out.t.gone: // nil: it has none
		return true
	default:
		return false
	}
}

// goneText says what becomes of an output whose reader is gone.
func (out *output) goneText() string {
	if to := out.otherPlace(); to != "" {
		return "its lines now go to " + to
	}
	return "this output is closed"
}

// otherPlace is where the lines of an output go whose reader is gone; "": nowhere.
func (out *output) otherPlace() string {
	switch {
	case out.fallback != nil:
		return "--fallback " + out.fallback.to
	case out.c.Text("spool") != "":
		return "--spool " + out.c.Text("spool")
	case out.c.Text("dead-letter") != "":
		return "--dead-letter " + out.c.Text("dead-letter")
	}
	return ""
}

// tellAllGone says that reading ends because no output has a reader, where something else
// was said of an output.
func (p *pipeline) tellAllGone() {
	var places []string
	for _, out := range p.outs {
		if to := out.otherPlace(); to != "" && !slices.Contains(places, to) {
			places = append(places, to)
		}
	}
	if places != nil {
		p.con.Say("no output has a reader: reading stops; lines already read go to %s", strings.Join(places, " and "))
	}
}
