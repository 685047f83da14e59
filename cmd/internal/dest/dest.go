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

// A Destination is a kind of destination that --to can name. To add a kind, write a type that
// implements Destination and list it in All.
type Destination interface {
	// Scheme returns the part of the address before the colon.
	Scheme() string
	// Usage returns the format of the address and a description for --help.
	Usage() (form, what string)
	// Open opens a destination with the options of c. rest is the part of the address after the
	// colon.
	Open(rest string, c *Spec) (*Target, error)
}

// A dryRunner is a Destination that supports --dry-run.
type dryRunner interface{ canDryRun() }

// MayDryRun returns an error if the destination of c would really receive the records of a dry run.
// It ignores unknown destinations.
func MayDryRun(dests []Destination, c *Spec) error {
	scheme, _, _ := strings.Cut(c.To, ":")
	for _, d := range dests {
		if _, can := d.(dryRunner); scheme == d.Scheme() && !can {
			return fmt.Errorf("--to %s: it does not support --dry-run: remove the flag or this destination", setting.Redact(c.Name))
		}
	}
	return nil
}

// An EncodeFunc appends the encoded event to dst. If dst is nil, the result is in an internal
// buffer and valid until the next call.
type EncodeFunc func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error)

// A Target is an open destination of an output, a fallback or a replay.
type Target struct {
	Dest deliver.Destination // its method Close, if it has one, is called after everything was delivered

	// NewEncoder returns an encoder for one goroutine, and Codec decodes its format. Both are nil
	// if --encode selects the format.
	NewEncoder func() EncodeFunc
	Codec      batch.Codec

	// memory is the size of the output's memory that the batches of the destination require, in
	// bytes. If it is 0, the defaults of the flags apply. Flags on the command line have
	// precedence.
	memory int

	// Remote means that Dest is on the network. Deliveries to it are retried, whatever the flags.
	// Records of every level wait for their batch, because each batch is a separate request. The
	// driver must not make requests in its method Open.
	Remote bool
	// SendsMeta means that the destination sends the time and the level of a record (batch.Meta),
	// and not only its text.
	SendsMeta bool

	File           fs.FileInfo     // the file to which the destination writes, if it is a regular file
	Reopen         func() error    // called at SIGHUP; may be nil
	ReopenRequests atomic.Uint64   // number of requests to reopen after the last reopening
	Gone           <-chan struct{} // closed when the destination cannot accept records any more; nil if that never happens
	Tty            bool            // the destination is a terminal, so there is no live line
}

// Dictionary returns the dictionary of the destination's streams, or nil if the destination has no
// streams.
func (t *Target) Dictionary() batch.Dictionary { return t.Dest.Traits().Dictionary }

// Close closes a target that is not used by an output.
func (t *Target) Close() {
	if d, ok := t.Dest.(interface{ Close(context.Context) error }); ok {
		d.Close(context.Background())
	}
}

// hostOf returns the part of the address after "//". If this part is missing, the error shows form,
// the format of the address.
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

// noUser returns the error for an address that contains a user name.
func noUser(rest string) error {
	why := "it must not contain a user or password: use --user and --password-file"
	if strings.Contains(rest, "?") {
		why += "; write %40 for @ in an option"
	}
	return errors.New(why)
}

// SameFile reports whether a and b are the same regular file.
func SameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && a.Mode().IsRegular() && os.SameFile(a, b)
}

// IsGone reports whether the destination cannot accept records any more.
func (t *Target) IsGone() bool {
	select {
	case <-t.Gone: // a nil channel is never ready
		return true
	default:
		return false
	}
}

// CodecFor returns the codec for records that an earlier run has stored with contentType.
func (t *Target) CodecFor(contentType string, _ uint32) batch.Codec {
	if t.Codec != nil && t.Codec.ContentType() == contentType {
		return t.Codec
	}
	c, _ := encode.CodecFor(contentType)
	return c
}
