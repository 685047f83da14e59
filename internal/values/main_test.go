package values

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

// All tests of this package use scratch memory in debug mode.
func TestMain(m *testing.M) {
	os.Exit(poolcheck.Tests(m, poolcheck.Use{Pool: &Scratch, Make: NewScratch}).Run())
}
