package forebay

import (
	"fmt"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/plural"
)

// A Report describes the outcome of the records of a [Router]; see [Router.Close].
type Report struct {
	Outputs []OutputReport // in the order of routes and their outputs
	// Refused is the number of records logged after Close began.
	Refused uint64
}

// OutputReport describes the outcome of the records of one output.
type OutputReport struct {
	Name string
	batch.Report
	// Unfinished reports whether the output was still flushing or closing when the
	// context ended. The operation continues in the background.
	Unfinished bool
	// Err is the error from flushing or closing the output.
	Err error
}

// Kept returns the number of records stored on disk for the next start. A record kept by
// several outputs is counted once for each of them.
func (r Report) Kept() (n uint64) {
	for _, o := range r.Outputs {
		n += o.Kept()
	}
	return n
}

// String returns the report as text, one line per output.
func (r Report) String() string {
	lines := make([]string, 0, len(r.Outputs))
	for _, o := range r.Outputs {
		line := o.Name + ": " + o.Account.String()
		if o.Unknown > 0 {
			line += fmt.Sprintf(" unknown=%d", o.Unknown)
		}
		if o.KeptIn != "" {
			line += fmt.Sprintf(", %s kept in %s", plural.Records(o.Kept()), o.KeptIn)
		}
		if o.Unfinished {
			line += " unfinished"
		}
		if o.Err != nil {
			line += fmt.Sprintf(": %v", o.Err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
