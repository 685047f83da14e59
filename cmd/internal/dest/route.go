package dest

import (
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// A Route says which records an output gets.
type Route struct {
	From  []string        // the inputs; nil: all
	Where transform.Where // nil: all
}

// Takes reports whether the records of an input go this way.
func (r *Route) Takes(input string) bool { return r.From == nil || slices.Contains(r.From, input) }
