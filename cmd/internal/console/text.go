package console

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// Plain returns the text of an error without the names of packages, and without the prefix that
// deliver.ErrOpen adds while the circuit is open.
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

// PathFirst returns the text of an error about a path, with the path first.
func PathFirst(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// BareNet returns the cause of a network error without the operation and the address. It is for
// messages that already contain the operation and the address.
func BareNet(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}

// Amount formats a number with a noun, such as "2 records".
func Amount(n uint64, noun string) string {
	return units.Count(n) + " " + plural.Noun(n, noun)
}

// InWords joins names with commas and, before the last name, with conjunction: "a, b and c".
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
	// f.Fd is not used, because it would switch the file to blocking mode, also for other processes
	// that share it.
	c.Control(func(fd uintptr) { tty = term.IsTerminal(int(fd)) })
	return tty
}
