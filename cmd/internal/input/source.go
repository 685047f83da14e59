package input

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// A Config describes an input and how its lines are parsed.
type Config struct {
	Name    string         // "" if it is the only input
	Values  setting.Values // options from a configuration file
	At      dest.Positions // position of each key in the configuration file
	Secrets [32]byte       // checksum of the files with keys and passwords
	intake.Reading
	Kind Kind
}

// State returns the directory in which the input stores positions, or "".
func (c *Config) State() string {
	if c.Values.ByName == nil {
		return ""
	}
	return c.Values.Text("state")
}

// A Kind is an input that can be opened.
type Kind interface {
	// Open opens the source and creates its intakes. The caller has opened the outputs.
	Open(in *intake.Inlet) (Source, error)
}

// A Source reads an input and passes its lines to the intakes.
type Source interface {
	// Run reads until the input ends or Stop is called. It is called once.
	Run() error
	// Stop makes Run return soon. It may be called at any time, from any goroutine.
	Stop()
	// Finish is called after Run has returned and the outputs are closed. delivered reports whether
	// everything that was read was delivered, dropped with a reason, or kept.
	Finish(delivered bool) error
	// Close releases the resources of the source.
	Close()
	// Repeats returns the end of a message about undelivered lines. It describes the position from
	// which they are read again. If they are not read again, it returns "".
	Repeats() string
}
