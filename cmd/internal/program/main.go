// Package program is the program forebay: its verbs, and the destinations and inputs that
// need no module of their own.
package program

// Main runs the command line and returns the exit code. The program has what each With has,
// besides the core. It is called once.
func Main(args []string, with ...With) int {
	for _, w := range with {
		w.add()
	}
	return execute(args)
}
