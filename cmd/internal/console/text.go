package console

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// Plain returns the text of an error without names of packages, and without the prefix that
// deliver.ErrOpen adds.
func Plain(err error) string {
	if err == nil {
		return "unknown"
	}
	s := strings.TrimPrefix(err.Error(), deliver.ErrOpen.Error()+": ")
	for _, prefix := range []string{"file: ", "slab: ", "spool: ", "deliver: ", "netsink: ", "fluent: ", "loki: ", "otlp: ", "httpsink: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.Replace(s, "it is older than max_age (", "it is older than --max-age (", 1)
}

// PlainOf is like Plain, for a message that begins with the name of a thing: if the error begins with
// that name too, it is left out.
func PlainOf(thing string, err error) string { return strings.TrimPrefix(Plain(err), thing+": ") }

// PathFirst returns the text of an error. If the error is about a path, the text begins with the
// path.
func PathFirst(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// Amount formats a number with a noun, such as "2 records".
func Amount(n uint64, noun string) string {
	return units.Count(n) + " " + plural.Noun(n, noun)
}

// InWords joins names as in "a, b and c". conjunction is the word before the last name.
func InWords(names []string, conjunction string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + " " + conjunction + " " + names[n]
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	tty := false
	// Do not use f.Fd, which would make f blocking for all processes that share it.
	c.Control(func(fd uintptr) { tty = term.IsTerminal(int(fd)) })
	return tty
}
