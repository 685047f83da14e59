// Command forebay delivers the log lines of any program to files, networks and log servers. It
// buffers them in bounded memory, so that the program does not wait for a slow destination while
// there is room, and it accounts for every line.
//
//	myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB
//
// Run forebay help for the list of commands.
package main

import (
	"os"

	"github.com/forebay-log/forebay/cmd/internal/program"
)

func main() { os.Exit(program.Main(os.Args[1:])) }
