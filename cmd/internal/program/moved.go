package program

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// newMoved returns a hidden command that only reports that it was moved to the module bench. It
// will be removed after one release.
func newMoved(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Moved to the benchmarks",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return exit.Usage(fmt.Errorf("forebay %s moved to the benchmarks; run this in a clone of forebay: GOWORK=off go -C bench run ./%s", name, name))
		},
	}
}
