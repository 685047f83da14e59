// Command beside has the Forward client in one program with what the build tags
// official, ibm and otel name: clients and a receiver that register the extension
// types of the protocol with package msgp, each for itself. It posts one event with
// each of the clients to the server whose address is its argument, and prints
// "started" once they have arrived there.
//
// With the tag alone it is without ours.
package main

import (
	"fmt"
	"os"
)

// post are the clients, by name.
var post = map[string]func(addr string) error{}

func main() {
	for name, fn := range post {
		if err := fn(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
	}
	fmt.Println("started")
}
