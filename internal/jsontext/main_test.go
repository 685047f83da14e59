package jsontext

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// effort returns the number of cases of a random test: n, a tenth of n with the race detector or
// -short, and a hundred times n with FOREBAY_TORTURE=1.
func effort(n int) int {
	switch {
	case os.Getenv("FOREBAY_TORTURE") == "1":
		return 100 * n
	case race.Enabled || testing.Short():
		return n / 10
	}
	return n
}
