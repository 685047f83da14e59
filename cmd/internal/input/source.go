package input

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// An Config says where lines come from, and how they are read.
type Config struct {
	Name    string         // "": it is the only one
	Values  setting.Values // of a configuration file
	At      dest.Positions // of its keys there
	Secrets [32]byte       // a sum of the files with keys and passwords
	intake.Reading
	Kind Kind
}

// State returns the directory of positions of an input in a configuration file; "": none.
func (c *Config) State() string {
	if c.Values.ByName == nil {
		return ""
	}
	return c.Values.Text("state")
}

// An Kind is a kind of input, and what is to be known of one.
type Kind interface {
	// open opens the source of in. The outputs are open. It makes the intakes of in.
	Open(in *intake.Inlet) (Source, error)
}

// A Source reads the lines of an inlet.
type Source interface {
	// Run reads until the source ends, or Stop is called. It is called once.
	Run() error
	// Stop makes Run return soon. It may be called at any time, from any goroutine.
	Stop()
	// Finish is called after Run, when the outputs are closed. delivered is true if they
	// have delivered, dropped for a reason, or kept everything that was read.
	Finish(delivered bool) error
	// Close releases the resources of the source.
	Close()
	// Repeats names the place from which a line comes again that was read and not delivered;
	// "": it does not come again.
	Repeats() string
}
