package arch

import (
	"fmt"
	"os"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

// These tests read the repository in one goroutine. The race detector would triple their time and
// find nothing. Therefore they run only in `make plain`, a part of `make check`.
func TestMain(m *testing.M) {
	if race.Enabled {
		fmt.Println("SKIPPED: make plain runs it without the race detector")
		return
	}
	os.Exit(m.Run())
}
