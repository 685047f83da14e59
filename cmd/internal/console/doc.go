// Package console writes messages to standard error, with one live line on a terminal, and formats
// errors for people.
//
//	c := &console.Console{W: os.Stderr, Name: "forebay"}
//	c.Show(console.LiveLine(before, now, time.Second, console.LiveWidth(os.Stderr)))
package console
