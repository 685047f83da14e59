package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/record"
)

// A destination is a kind of place that --to can name. To add one, write a type
// and add it to destinations.
type destination interface {
	// Scheme is what --to begins with, without the colon.
	Scheme() string
	// Usage is its form and what it does, for --help.
	Usage() (form, what string)
	// Flags defines the flags of this kind of destination.
	Flags(cmd *cobra.Command)
	// Open opens what follows the colon. It is called after the flags were
	// parsed, once for each --to.
	Open(rest string) (*target, error)
}

// A dryRunner is a destination that can show what it would send instead, with
// --dry-run.
type dryRunner interface{ canDryRun() }

// addText defines a flag with a text, once for all kinds of destinations that know it.
func addText(cmd *cobra.Command, name, value, usage string) {
	if cmd.Flags().Lookup(name) == nil {
		cmd.Flags().String(name, value, usage)
	}
}

// addSwitch is addText for a flag without a value.
func addSwitch(cmd *cobra.Command, name, usage string) {
	if cmd.Flags().Lookup(name) == nil {
		cmd.Flags().Bool(name, false, usage)
	}
}

// addLogin defines the flags of destinations that know users.
func addLogin(cmd *cobra.Command) {
	addText(cmd, "user", "", "forward, loki: `NAME` of the user at the server")
	addText(cmd, "password-file", "", "forward, loki: `FILE` with the password of --user")
}

// addDryRun defines the flag of every [dryRunner].
func addDryRun(cmd *cobra.Command) {
	addSwitch(cmd, "dry-run", "forward, loki: show on standard output what would be sent, and send nothing")
}

// mayDryRun returns an error if --to names a destination without a dry run: it
// would be written to. A destination that does not exist is not its matter.
func mayDryRun(dests []destination, to string) error {
	scheme, _, _ := strings.Cut(to, ":")
	for _, d := range dests {
		if _, can := d.(dryRunner); scheme == d.Scheme() && !can {
			return fmt.Errorf("--to %s: it has no --dry-run: it would be written to", redact(strings.TrimSuffix(to, ":")))
		}
	}
	return nil
}

// destinations returns all kinds, in the order of --help. Each call returns
// values of their own, because they hold flags.
func destinations() []destination {
	return slices.Concat([]destination{
		new(fileDest),
		stdioDest{name: "stdout", what: "standard output"},
		stdioDest{name: "stderr", what: "standard error"},
	}, netDests(), forwardDests(), lokiDests())
}

// A target is a destination that was opened.
type target struct {
	dest deliver.Destination // closed when all is delivered, if it has a method Close

	// encode writes the wire form that the destination wants, in place of
	// --encode, and codec reads it. Nil: --encode decides.
	encode func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error)
	codec  batch.Codec

	// memory is how many bytes of slabs its batches want, unless flags say how many
	// there are. 0: what the flags' defaults say will do.
	memory int

	// engine puts retries in front of dest, whatever the flags: it is
	// across a network. Open must not make one.
	engine bool
	// header says that the destination shows the time and the level of a record
	// (batch.Meta) beside the record.
	header bool

	file   fs.FileInfo     // the regular file it writes to; nil: none
	reopen func() error    // at SIGHUP; nil: nothing to do
	asked  atomic.Uint64   // how often it was asked for, since it was done last
	gone   <-chan struct{} // closed when the destination takes no more, ever; nil: never
	tty    bool            // it is a terminal, so the live line would be in the way
}

// dictionary returns the dictionary of the streams of t, nil for none.
func (t *target) dictionary() batch.Dictionary { return t.dest.Traits().Dictionary }

// close gives up a target that was opened and is not used.
func (t *target) close() {
	if d, ok := t.dest.(interface{ Close(context.Context) error }); ok {
		d.Close(context.Background())
	}
}

// sameFile reports whether both are the same regular file.
func sameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && a.Mode().IsRegular() && os.SameFile(a, b)
}

// isGone reports whether the destination takes no more, ever.
func (t *target) isGone() bool {
	select {
	case <-t.gone: // nil: never
		return true
	default:
		return false
	}
}

// openTarget opens what --to says.
func openTarget(dests []destination, to string) (*target, error) {
	return openAt(dests, "--to", to)
}

// openAt opens the destination that a flag names.
func openAt(dests []destination, flag, to string) (*target, error) {
	scheme, rest, found := strings.Cut(to, ":")
	for _, d := range dests {
		if found && scheme == d.Scheme() {
			t, err := d.Open(rest)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %s", flag, strings.TrimSuffix(redact(to), ":"), strings.TrimPrefix(redactError(err, to), "file: "))
			}
			return t, nil
		}
	}
	to = redact(to)
	var why string
	switch {
	case to == "":
		why = "it is empty"
	case to == "-":
		why = "for standard output, write stdout:"
	case found && (len(scheme) == 1 || strings.ContainsAny(scheme, `/\.`)), !found && strings.ContainsAny(to, `/\.`):
		why = fmt.Sprintf("for a file, write file:%s", to)
	case !found:
		for _, d := range dests {
			if to == d.Scheme() {
				form, _ := d.Usage()
				why = fmt.Sprintf("write %s, with the colon", form)
			}
		}
		if why == "" {
			why = fmt.Sprintf("it names no kind of destination; for a file, write file:%s", to)
		}
	case scheme == "http":
		why = "for Loki, write loki:" + strings.TrimPrefix(to, "http:")
	case scheme == "https":
		why = "for Loki, write loki+https:" + strings.TrimPrefix(to, "https:")
	default:
		why = fmt.Sprintf("no destination is called %q", scheme)
	}
	return nil, errors.New(flag + " " + quoteEmpty(to) + ": " + why + "\nDestinations are:\n" + strings.TrimRight(usageOf(dests), "\n"))
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// usageOf lists the destinations, one per line.
func usageOf(dests []destination) string {
	width := 0
	for _, d := range dests {
		form, _ := d.Usage()
		width = max(width, len(form))
	}
	var sb strings.Builder
	for _, d := range dests {
		form, what := d.Usage()
		fmt.Fprintf(&sb, "  %-*s  %s\n", width, form, what)
	}
	return sb.String()
}
