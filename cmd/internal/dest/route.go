package dest

import (
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// A Route selects the records that an output receives.
type Route struct {
	From  []string        // names of inputs; nil selects all inputs
	Where transform.Where // nil selects all records
}

// Selects reports whether the output receives records from the named input.
func (r *Route) Selects(input string) bool { return r.From == nil || slices.Contains(r.From, input) }
