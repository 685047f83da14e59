package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/secrets"
)

// A destination is a kind of place that --to can name. To add one, write a type
// and add it to destinations.
type destination interface {
	// Scheme is what --to begins with, without the colon.
	Scheme() string
	// Usage is its form and what it does, for --help.
	Usage() (form, what string)
	// Open opens what follows the colon, as its options say.
	Open(rest string, c *outputConfig) (*target, error)
}

// A dryRunner is a destination that can show what it would send instead, with
// --dry-run.
type dryRunner interface{ canDryRun() }

// mayDryRun returns an error if --to names a destination without a dry run: it
// would be written to. A destination that does not exist is not its matter.
func mayDryRun(dests []destination, c *outputConfig) error {
	scheme, _, _ := strings.Cut(c.To, ":")
	for _, d := range dests {
		if _, can := d.(dryRunner); scheme == d.Scheme() && !can {
			return fmt.Errorf("--to %s: it does not support --dry-run: remove the flag or this destination", setting.Redact(c.name))
		}
	}
	return nil
}

// destinations returns all kinds, in the order of --help.
func destinations() []destination {
	return slices.Concat([]destination{
		fileDest{},
		stdioDest{name: "stdout", what: "standard output"},
		stdioDest{name: "stderr", what: "standard error"},
	}, netDests(), forwardDests(), lokiDests(), otlpDests(), httpDests(), moreDests)
}

// An encodeFunc appends an event to dst in some form. With a nil dst the record is valid
// until the next call.
type encodeFunc func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error)

// A target is a destination that was opened.
type target struct {
	dest deliver.Destination // closed when all is delivered, if it has a method Close

	// newEncoder returns what writes the wire form that the destination wants, in place
	// of --encode, for one goroutine; codec reads it. Nil: --encode decides.
	newEncoder func() encodeFunc
	codec      batch.Codec

	// memory is how many bytes of slabs its batches want, unless flags say how many
	// there are. 0: what the flags' defaults say will do.
	memory int

	// engine means that dest is across a network: retries are put in front of it, whatever the
	// flags, and records of every level wait for their batch, because one that is sent at once
	// is a request. Open must not make one.
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

// hostOf returns what follows the // of an address of the given form.
func hostOf(rest, form string) (string, error) {
	host, ok := strings.CutPrefix(rest, "//")
	if !ok || host == "" {
		return "", errors.New("the server is missing: write " + form)
	}
	if strings.Contains(host, "@") {
		return "", noUser(rest)
	}
	return host, nil
}

// readPassword returns what the file of --password-file holds, "" without one.
func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	password, err := secrets.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	return password, nil
}

// noUser is the error for a user in the address of a server.
func noUser(rest string) error {
	why := "it must not contain a user or password: use --user and --password-file"
	if strings.Contains(rest, "?") {
		why += "; write %40 for @ in an option"
	}
	return errors.New(why)
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

// openAt opens the destination that a flag names.
func openAt(dests []destination, flag string, c *outputConfig) (*target, error) {
	d, at, _, err := locate(dests, flag, c.To)
	if err != nil {
		return nil, err
	}
	t, err := openIn(d, at[len(d.Scheme())+1:], c)
	if err != nil {
		text := fmt.Errorf("%s %s: %s", flag, setting.Redact(c.name), strings.TrimPrefix(setting.RedactError(err, c.To), "file: "))
		if wrongOption(d, c) {
			return nil, exit.Usage(text)
		}
		return nil, text
	}
	return t, nil
}

// openIn opens a destination; its error names flags.
func openIn(d destination, rest string, c *outputConfig) (*target, error) {
	t, err := d.Open(rest, c)
	if err != nil {
		return nil, inFlags(err)
	}
	return t, nil
}

// locate finds the kind of the destination that a flag names, and cuts off its query.
func locate(dests []destination, flag, to string) (d destination, at, query string, err error) {
	scheme, _, found := strings.Cut(to, ":")
	for _, d := range dests {
		if found && scheme == d.Scheme() {
			at, query, _ = setting.CutQuery(to)
			return d, at, query, nil
		}
	}
	to = setting.Redact(to)
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
			why = fmt.Sprintf("it has no scheme; for a file, write file:%s", to)
		}
	default:
		if why = cmp.Or(isElsewhere(scheme), isHTTPServer(scheme)); why == "" {
			why = fmt.Sprintf("there is no destination %q", scheme)
		}
	}
	return nil, "", "", errors.New(flag + " " + quoteEmpty(to) + ": " + why + "\nDestinations are:\n" + strings.TrimRight(usageOf(dests), "\n"))
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
