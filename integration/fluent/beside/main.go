// Command beside links the Forward client with other clients or a receiver, selected by the
// build tags official, ibm and otel. All of them register the extension types of the protocol
// with package msgp. The command posts one event with each client to the server at the given
// address, and prints "started" after the events have arrived.
//
// The tag alone excludes our client.
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
