package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// These are the formats of the summary.
const (
	summaryText = "text"
	SummaryJSON = "json"
)

// NoControl is the value of --control that disables the control socket.
const NoControl = "none"

// Ops contains the options for monitoring a running program.
type Ops struct {
	Metrics string // address of the HTTP server; empty: no server
	Pprof   bool
	Summary setting.Choice
	Control string // path of the control socket; empty: a default path; NoControl: no socket
}

// Add adds flags for these options to cmd.
func (f *Ops) Add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.Metrics, "metrics", "", "serve metrics and health checks over HTTP on `ADDR`; :9090 accepts local connections only, 0.0.0.0:9090 all (default: off)")
	fs.BoolVar(&f.Pprof, "pprof", false, "serve /debug/pprof/ on the address of --metrics")
	fs.StringVar(&f.Control, "control", "", "listen on the socket `PATH` for forebay top; none: no socket (default: a path that top finds)")
	f.Summary = setting.Choice{Value: summaryText, Of: []string{summaryText, SummaryJSON}}
	f.Summary.Add(cmd, "summary", "", "format of the last line on standard error; json is printed with --quiet too")
}

func (f *Ops) check() error {
	if f.Pprof && f.Metrics == "" {
		return errors.New("--pprof needs --metrics")
	}
	if f.Metrics == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(f.Metrics)
	if err != nil {
		return fmt.Errorf("--metrics %s: use HOST:PORT, or :PORT for local connections only", f.Metrics)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("--metrics %s: the port must be 0 to 65535", f.Metrics)
	}
	return nil
}

// checkControlPath returns an error if the control socket cannot be created.
func (f *Ops) checkControlPath() error {
	if f.Control == "" || f.Control == NoControl {
		return nil
	}
	dir, base := filepath.Split(f.Control)
	if base == "" {
		return fmt.Errorf("--control %s is a directory; name a socket in it", f.Control)
	}
	if info, err := os.Stat(filepath.Clean(dir)); dir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("--control %s: there is no directory %s", f.Control, filepath.Clean(dir))
	}
	return nil
}
