package program

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

func version() string {
	b := process.BuildInfo()
	return fmt.Sprintf("%s %s %s/%s", b.Version, b.Go, b.OS, b.Arch)
}

func printVersion(cmd *cobra.Command) { fmt.Fprintf(cmd.OutOrStdout(), "forebay %s\n", version()) }

func newVersion() *cobra.Command {
	output := setting.Choice{Value: "text", Of: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of forebay",
		Args:  exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output.Value == "text" {
				printVersion(cmd)
				return nil
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(process.BuildInfo())
		},
	}
	output.Add(cmd, "output", "o", "output format")
	return cmd
}
