// Package console writes messages to standard error, with one live line on a terminal, and formats
// errors for people.
//
//	c := &console.Console{W: os.Stderr, Name: "forebay"}
//	c.Say("%s: %s", name, console.Plain(err))
package console
