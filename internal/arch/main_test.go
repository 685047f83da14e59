package arch

import (
	"fmt"
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// These tests read the repository on one goroutine. They run without the race detector, which takes
// three times as long, in `make plain`, a part of `make check`.
func TestMain(m *testing.M) {
	if race.Enabled {
		fmt.Println("SKIPPED: make plain runs it without the race detector")
		return
	}
	os.Exit(m.Run())
}
