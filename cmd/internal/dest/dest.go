package dest

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
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
)

// A Destination is a kind of destination for --to. To add one, write a type and add it to All.
type Destination interface {
	// Scheme returns the beginning of --to, without the colon.
	Scheme() string
	// Usage returns the form and a description, for --help.
	Usage() (form, what string)
	// Open opens the destination. rest is the text after the colon; the options are in c.
	Open(rest string, c *Spec) (*Target, error)
}

// A dryRunner is a destination that supports --dry-run.
type dryRunner interface{ canDryRun() }

// MayDryRun returns an error if --to names a destination without --dry-run, which would receive the
// records. It ignores unknown destinations.
func MayDryRun(dests []Destination, c *Spec) error {
	scheme, _, _ := strings.Cut(c.To, ":")
	for _, d := range dests {
		if _, can := d.(dryRunner); scheme == d.Scheme() && !can {
			return fmt.Errorf("--to %s: it does not support --dry-run: remove the flag or this destination", setting.Redact(c.Name))
		}
	}
	return nil
}

// All returns all kinds, in the order of --help.
func All() []Destination {
	return slices.Concat([]Destination{
		fileDest{},
		stdioDest{name: "stdout", what: "standard output"},
		stdioDest{name: "stderr", what: "standard error"},
	}, netDests(), forwardDests(), LokiDests(), otlpDests(), HttpDests(), extensionDests)
}

// An EncodeFunc appends an event to dst in some form. With a nil dst the record is valid
// until the next call.
type EncodeFunc func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error)

// A Target is an open destination.
type Target struct {
	Dest deliver.Destination // closed after everything is delivered, if it has a method Close

	// NewEncoder returns the encoder of the format that the destination requires instead of
	// --encode, for one goroutine; Codec reads the format. Nil: --encode selects the format.
	NewEncoder func() EncodeFunc
	Codec      batch.Codec

	// memory is the size of the slabs in bytes that its batches require, unless flags set their
	// number. 0: the defaults of the flags.
	memory int

	// Engine means that Dest is on the network: it always has retries, whatever the flags, and
	// records of every level wait for their batch, because a record sent at once would be a
	// separate request. Open must not make a request.
	Engine bool
	// Header means that the destination sends the time and the level of a record (batch.Meta)
	// separately.
	Header bool

	File   fs.FileInfo     // the regular file it writes to; nil: none
	Reopen func() error    // called at SIGHUP; nil: does nothing
	Asked  atomic.Uint64   // number of requests to reopen since the last reopening
	Gone   <-chan struct{} // closed when the destination has ended permanently; nil: never
	Tty    bool            // a terminal, on which the live line would interfere
}

// Dictionary returns the dictionary of the streams of t, or nil if there are none.
func (t *Target) Dictionary() batch.Dictionary { return t.Dest.Traits().Dictionary }

// Close closes a target that was opened and will not be used.
func (t *Target) Close() {
	if d, ok := t.Dest.(interface{ Close(context.Context) error }); ok {
		d.Close(context.Background())
	}
}

// hostOf returns the text after the // of an address of the given form.
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

// noUser is the error for a user in the address of a server.
func noUser(rest string) error {
	why := "it must not contain a user or password: use --user and --password-file"
	if strings.Contains(rest, "?") {
		why += "; write %40 for @ in an option"
	}
	return errors.New(why)
}

// SameFile reports whether both are the same regular file.
func SameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && a.Mode().IsRegular() && os.SameFile(a, b)
}

// IsGone reports whether the destination has ended permanently.
func (t *Target) IsGone() bool {
	select {
	case <-t.Gone: // nil: never
		return true
	default:
		return false
	}
}

// OpenAt opens the destination that is the value of a flag.
func OpenAt(dests []Destination, flag string, c *Spec) (*Target, error) {
	d, at, _, err := Locate(dests, flag, c.To)
	if err != nil {
		return nil, err
	}
	t, err := openIn(d, at[len(d.Scheme())+1:], c)
	if err != nil {
		text := fmt.Errorf("%s %s: %s", flag, setting.Redact(c.Name), strings.TrimPrefix(setting.RedactError(err, c.To), "file: "))
		if wrongOption(d, c) {
			return nil, exit.Usage(text)
		}
		return nil, text
	}
	return t, nil
}

// openIn opens a destination. Its errors name flags.
func openIn(d Destination, rest string, c *Spec) (*Target, error) {
	t, err := d.Open(rest, c)
	if err != nil {
		return nil, inFlags(err)
	}
	return t, nil
}

// Locate returns the kind of the destination that is the value of a flag, and splits the address
// from its query.
func Locate(dests []Destination, flag, to string) (d Destination, at, query string, err error) {
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
		if why = cmp.Or(setting.IsElsewhere(scheme), isHTTPServer(scheme)); why == "" {
			why = fmt.Sprintf("there is no destination %q", scheme)
		}
	}
	return nil, "", "", errors.New(flag + " " + quoteEmpty(to) + ": " + why + "\nDestinations are:\n" + strings.TrimRight(UsageOf(dests), "\n"))
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// UsageOf lists the destinations, one per line.
func UsageOf(dests []Destination) string {
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

// CodecFor returns the codec of records that an earlier run has stored.
func (t *Target) CodecFor(contentType string, _ uint32) batch.Codec {
	if t.Codec != nil && t.Codec.ContentType() == contentType {
		return t.Codec
	}
	c, _ := encode.CodecFor(contentType)
	return c
}
