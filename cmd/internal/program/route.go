package program

import (
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// A route says which records an output gets.
type route struct {
	from  []string        // the inputs; nil: all
	where transform.Where // nil: all
}

// takes reports whether the records of an input go this way.
func (r *route) takes(input string) bool { return r.from == nil || slices.Contains(r.from, input) }
