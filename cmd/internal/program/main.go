// Package program contains the commands of forebay. cmd/forebay runs it with the core, and
// cmd/forebay-all adds destinations and inputs of other modules.
package program

// Main runs the command line and returns the exit code. Each With adds destinations and inputs.
// Main must be called once.
func Main(args []string, with ...With) int {
	for _, w := range with {
		w.add()
	}
	return execute(args)
}
