package program

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/otlp"
)

// With contains destinations and inputs that a program adds to the ones in this module. They are in
// other modules, because of their dependencies (ADR 51).
type With struct {
	Destinations []dest.Extension
	Inputs       []input.Extension

	// OTLPGRPC returns the driver for otlpgrpc:// and otlpgrpcs://, which have the same options as
	// otlp://. Its errors come from packages otlp and otlpgrpc. If OTLPGRPC is nil, the program
	// does not support these destinations.
	OTLPGRPC func(otlp.Config) (dest.OTLP, error)
}

// add registers the destinations and inputs. Main calls it first, because the tables of options
// depend on them.
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
