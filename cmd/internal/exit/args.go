package exit

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs returns an error if a command that has no arguments was called with arguments. The error
// suggests a fix.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	const head = "%s has no arguments, but %q is given; "
	switch path, arg := cmd.CommandPath(), args[0]; cmd.Name() {
	case "pipe":
		return Usage(fmt.Errorf(head+"redirect the input (< %s), and give destinations with --to", path, arg, arg))
	case "size":
		return Usage(fmt.Errorf(head+"to measure a file, write --measure %s", path, arg, arg))
	default:
		return Usage(fmt.Errorf(head+"use its flags", path, arg))
	}
}

// NeedsCommand is the action of a command that only has subcommands. It returns a usage error.
func NeedsCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("there is no %s %s", cmd.CommandPath(), args[0]))
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	last := len(names) - 1
	return Usage(fmt.Errorf("%s does nothing by itself: add %s or %s", cmd.CommandPath(), strings.Join(names[:last], ", "), names[last]))
}
