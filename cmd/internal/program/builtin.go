package program

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// strict makes the commands "completion" and "help" return an error for an invalid command line.
// Cobra's defaults print a help text and succeed. Call strict after all other commands were added.
func strict(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	root.SetFlagErrorFunc(explainFlag)
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.RunE = exit.NeedsCommand
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("there is no %s %s", about.CommandPath(), rest[0])
				}
				return err
			}
		}
	}
}

// explainFlag is called for an error about a flag of cmd. If the flag is unknown, it adds the most
// similar flag to the error.
func explainFlag(cmd *cobra.Command, err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "bool" {
		value := invalid.GetValue()
		return fmt.Errorf("invalid argument %q for %q flag: %q is neither true nor false", value, "--"+invalid.GetFlag().Name, value)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 3 {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	name := unknown.GetSpecifiedName()
	if near := conf.Nearest(name, names); conf.Alike(name, near) {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
