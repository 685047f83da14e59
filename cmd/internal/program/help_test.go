package program

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// For each flag with a value, the help states the default, the meaning of 0, or that the flag is
// required.
func TestFlagsStateDefaults(t *testing.T) {
	root := newRoot(os.Stdin, os.Stdout, os.Stderr)
	flags := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() != "help" && cmd.Name() != "completion" && cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			flags++
			shown := f.DefValue != "" && f.DefValue != "0" && f.DefValue != "[]"
			if !shown && !strings.Contains(f.Usage, "default") && !strings.Contains(f.Usage, "0: ") && !strings.Contains(f.Usage, "(required)") {
				t.Errorf("%s --%s states no default: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if flags < 150 {
		t.Errorf("only %d flags were found", flags)
	}
}
