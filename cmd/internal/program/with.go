package program

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/otlp"
)

// With contains the destinations and inputs that a program adds to those of this module, because
// they need other modules (ADR 51).
type With struct {
	Destinations []dest.Extension
	Inputs       []input.Extension

	// OTLPGRPC returns the driver for otlpgrpc:// and otlpgrpcs://, which have the options of
	// otlp://. Its errors come from packages otlp and otlpgrpc. If OTLPGRPC is nil, the program
	// does not have these destinations.
	OTLPGRPC func(otlp.Config) (dest.OTLP, error)
}

// add registers the destinations and inputs. Main calls it before the tables of options are used.
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
