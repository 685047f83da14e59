package program

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/otlp"
)

// With contains destinations and inputs of other modules, for a program that is larger than the
// core (ADR 51).
type With struct {
	Destinations []dest.Extension
	Inputs       []input.Extension

	// OTLPGRPC returns the driver of otlpgrpc:// and otlpgrpcs://, which have the options of
	// otlp://. It returns errors of packages otlp and otlpgrpc. nil means that the program has no
	// such driver.
	OTLPGRPC func(otlp.Config) (dest.OTLP, error)
}

// add registers the destinations and inputs. Main calls it before anything reads the tables of
// options.
func (w With) add() {
	for _, d := range w.Destinations {
		dest.AddExtension(d)
	}
	if w.OTLPGRPC != nil {
		dest.AddOTLPGRPC(w.OTLPGRPC)
	}
	for _, in := range w.Inputs {
		input.AddExtension(in)
	}
}
