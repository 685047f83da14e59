package dest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
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

// CodecFor returns the codec of records that an earlier run has stored.
func (t *Target) CodecFor(contentType string, _ uint32) batch.Codec {
	if t.Codec != nil && t.Codec.ContentType() == contentType {
		return t.Codec
	}
	c, _ := encode.CodecFor(contentType)
	return c
}
