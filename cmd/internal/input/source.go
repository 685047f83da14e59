package input

import (
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// A Config describes an input, and how its lines are parsed.
type Config struct {
	Name    string         // "" if it is the only input
	Values  setting.Values // options from a configuration file
	At      dest.Positions // position of each key in the configuration file
	Secrets [32]byte       // checksum of the files with keys and passwords
	intake.Reading
	Kind Kind
}

// State returns the directory in which the input stores its position, or "" if the input stores
// none.
func (c *Config) State() string {
	if c.Values.ByName == nil {
		return ""
	}
	return c.Values.Text("state")
}

// Repeats reports whether the input passes on records again that were not delivered at the end of
// the last run.
func (c *Config) Repeats() bool {
	return c.State() != "" || !slices.Contains([]string{"stdin", "tail", "journal", "syslog"}, c.Values.Text("type"))
}

// A Kind is an input that is configured but not open.
type Kind interface {
	// Open opens the source of the input. The outputs are already open.
	Open(in *intake.Inlet) (Source, error)
}

// A Source reads an input and passes its records to the outputs.
type Source interface {
	// Run reads until the input ends or Stop is called. Run is called once.
	Run() error
	// Stop makes Run return soon. It may be called at any time and on any goroutine.
	Stop()
	// Finish is called after Run has returned and the outputs are closed. If delivered is true,
	// everything that was read is delivered, dropped with a reason, or stored.
	Finish(delivered bool) error
	// Close releases the resources of the source.
	Close()
	// Repeats returns the end of a message about undelivered lines: the position from which the
	// next run reads them again. If they are not read again, it returns "".
	Repeats() string
}
