package program

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// build is what the program knows of itself.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"` // of the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildInfo() build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func version() string {
	b := buildInfo()
	return fmt.Sprintf("%s %s %s/%s", b.Version, b.Go, b.OS, b.Arch)
}

func printVersion(cmd *cobra.Command) { fmt.Fprintf(cmd.OutOrStdout(), "forebay %s\n", version()) }

func newVersion() *cobra.Command {
	output := setting.Choice{Value: "text", Of: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of forebay",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output.Value == "text" {
				printVersion(cmd)
				return nil
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(buildInfo())
		},
	}
	output.Add(cmd, "output", "o", "output format")
	return cmd
}
