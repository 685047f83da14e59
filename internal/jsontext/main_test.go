package jsontext

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// effort scales the work of a random test: n for a plain run, a tenth with the race
// detector, and a hundred times as much with FOREBAY_TORTURE.
func effort(n int) int {
	switch {
	case os.Getenv("FOREBAY_TORTURE") != "":
		return 100 * n
	case race.Enabled || testing.Short():
		return n / 10
	}
	return n
}
