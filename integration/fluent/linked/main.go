// Command linked is a program that contains the Forward client together with other clients or with
// a receiver. The build tags official, ibm and otel select them. All of them register the extension
// types of the protocol with package msgp. The command posts one event with each client to the
// server at the given address, and prints "started" after all clients have returned.
//
// The tag noforebay excludes the client of forebay.
package main

import (
	"fmt"
	"os"
)

// post contains the clients by name. Each posts one event to the server at addr.
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
