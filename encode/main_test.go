package encode

import (
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

var pools = poolcheck.Use{Pool: &scratch, Make: newScratch}

// All tests of this package lend scratch memory in debug mode.
func TestMain(m *testing.M) { os.Exit(poolcheck.Tests(m, pools).Run()) }
