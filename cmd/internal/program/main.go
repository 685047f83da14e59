// Package program contains the commands of forebay. The program cmd/forebay uses only this package;
// cmd/forebay-all adds destinations and inputs from other modules.
package program

// Main runs the command line args and returns the exit code. The parameter with contains
// destinations and inputs that the program adds to the ones in this module. A process may call Main
// only once.
func Main(args []string, with ...With) int {
	for _, w := range with {
		w.add()
	}
	return execute(args)
}
