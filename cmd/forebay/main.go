// Command forebay takes the log lines of any program to where they belong. It holds
// them in a bounded pool of memory, so that the program does not wait for the disk
// while there is room, and it accounts for every line.
//
//	myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB
//
// Run forebay help for the rest.
package main

import (
	"os"

	"github.com/forebay-log/forebay/cmd/internal/program"
)

func main() { os.Exit(program.Main(os.Args[1:])) }
