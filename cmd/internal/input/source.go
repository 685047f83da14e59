package input

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// A Config describes an input and the reading of its lines.
type Config struct {
	Name    string         // "": the only input
	Values  setting.Values // from a configuration file
	At      dest.Positions // positions of its keys in that file
	Secrets [32]byte       // a checksum of the files with keys and passwords
	intake.Reading
	Kind Kind
}

// State returns the directory with the positions of an input in a configuration file, or "" if
// there is none.
func (c *Config) State() string {
	if c.Values.ByName == nil {
		return ""
	}
	return c.Values.Text("state")
}

// A Kind is an input that has not been opened yet.
type Kind interface {
	// Open opens the source of in and creates its intakes. The outputs are open already.
	Open(in *intake.Inlet) (Source, error)
}

// A Source reads the lines of an inlet.
type Source interface {
	// Run reads until the source ends, or Stop is called. It is called once.
	Run() error
	// Stop makes Run return soon. It may be called at any time, from any goroutine.
	Stop()
	// Finish is called after Run, when the outputs are closed. delivered reports whether they have
	// delivered, dropped for a reason, or kept everything that was read.
	Finish(delivered bool) error
	// Close releases the resources of the source.
	Close()
	// Repeats returns the place from which lines that were read and not delivered are read again,
	// or "" if they are not.
	Repeats() string
}
