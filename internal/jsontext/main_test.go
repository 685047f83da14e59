package jsontext

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// effort scales the work of a random test: n is for a plain run, the race
// detector does a tenth of it, and FOREBAY_TORTURE a hundred times as much.
func effort(n int) int {
	switch {
	case os.Getenv("FOREBAY_TORTURE") != "":
		return 100 * n
	case race.Enabled || testing.Short():
		return n / 10
	}
	return n
}
