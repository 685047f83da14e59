package jsontext_test

import (
	"math"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// effort returns the number of cases of a random test: n, or a tenth of n with the race detector,
// multiplied by FOREBAY_TORTURE.
func effort(n int) int { return testkit.Scale(race.Fewer(n, 10), math.MaxInt) }
