// Command forebay takes the log lines of any program to where they belong,
// without the program ever waiting for the disk.
//
//	myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB
//
// Run forebay help for the rest.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:])) }
