// Package program is the program forebay: its commands, and the destinations and inputs that need
// no separate module.
package program

// Main runs the command line and returns the exit code. Each With adds destinations and inputs to
// the core. Main must be called once.
func Main(args []string, with ...With) int {
	for _, w := range with {
		w.add()
	}
	return execute(args)
}
