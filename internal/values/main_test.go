package values

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

// The tests of this package use scratch memory in debug mode, which detects misuse of its buffers.
func TestMain(m *testing.M) {
	os.Exit(poolcheck.Tests(m, poolcheck.Use{Pool: &Scratch, Make: NewScratch}).Run())
}
