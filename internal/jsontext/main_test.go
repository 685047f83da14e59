package jsontext

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// effort returns the cases of a random test: n in a plain run, a tenth with the race
// detector or -short, and a hundred times as many with FOREBAY_TORTURE=1.
func effort(n int) int {
	switch {
	case os.Getenv("FOREBAY_TORTURE") == "1":
		return 100 * n
	case race.Enabled || testing.Short():
		return n / 10
	}
	return n
}
