package dest

import (
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// A Route selects the records that an output receives.
type Route struct {
	From  []string        // names of inputs; nil selects all
	Where transform.Where // conditions; nil selects all records
}

// Selects reports whether the output receives records from the input with the given name.
func (r *Route) Selects(input string) bool { return r.From == nil || slices.Contains(r.From, input) }
