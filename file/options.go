package file

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/forebay-log/forebay/internal/callback"
)

// defaultMode is the permission of files that Open creates: for the owner only,
// because logs tell more than one thinks.
const defaultMode fs.FileMode = 0o600

// Options configures a [File]. The zero value appends to one file for ever:
// each field states its default and unit.
type Options struct {
	// Mode is the permission of a file that Open creates, before the umask.
	// A file that exists keeps its own, and what rotation creates gets the mode
	// of the file it replaces. Default 0600.
	Mode fs.FileMode
	// MakeDirs creates missing parent directories, with mode 0700, also when they are deleted
	// or moved later. Default
	// false: a missing directory is an error, as it is often a typing error.
	MakeDirs bool
	// NoReserve leaves the space behind the end of the file alone. Default false: on
	// ext4 under Linux, a file of more than 8 MiB that belongs to the user of the
	// process has up to 8 MiB reserved behind its end, never beyond RotateBytes, which
	// makes appending cheaper. Its size tells nothing of that, du(1) does. Close,
	// rotation and Reopen release the space, or the next Open does, once no other
	// process has the file open.
	NoReserve bool

	// RotateBytes is the size in bytes that a file shall not exceed. The file
	// is moved aside before the Write that would take it there; a single Write
	// of more bytes makes a file of its own. An Output ends its Writes where the
	// file is full, with a record, so that only a record of more bytes does so.
	// Default 0: no limit.
	RotateBytes int64
	// RotateEvery begins a new file at the first Write of each such period.
	// Periods are counted in UTC, so that 24h is midnight UTC and a restart
	// changes nothing. At least a second; default 0: never.
	RotateEvery time.Duration

	// KeepFiles is how many old files to keep. Default 0: all.
	KeepFiles int
	// KeepFor is how long to keep old files, rounded up to whole days. They
	// are looked at by Open and whenever the file is rotated. Default 0: for
	// ever.
	KeepFor time.Duration
	// Compress is how old files are compressed: "", "gzip" or "zstd". Default
	// "": not at all.
	Compress string

	// Sync says when a Write is put on stable storage: "never" leaves the time to the
	// operating system and to calls of [File.Sync], "always" before Write returns, with
	// the names that the file needs. Until then what was written survives the death of the
	// process, but not that of the machine. "always" needs a regular file, and goes not
	// together with Compress: a compressed copy is not synced before the original is
	// removed. Default "never".
	Sync string

	// OnError is called when the file was moved or deleted, see Check, and when a rotation fails,
	// or a Reopen that had to wait for the end of a record: writing goes on in the old file. It runs on a goroutine of its own
	// behind a bounded queue, so it may log into this very file. Default nil: one
	// line on stderr.
	OnError func(error)
}

// The texts of Options.Sync, those of spool.Options.
const (
	syncNever  = "never"
	syncAlways = "always"
)

// rotates reports whether the options ask for rotation.
func (o *Options) rotates() bool { return o.RotateBytes > 0 || o.RotateEvery > 0 }

// resolve returns o with defaults filled in, or an error that names every field
// that is out of range.
func (o Options) resolve() (Options, error) {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("file: Options.%s is %v, must be %s", field, value, want))
	}
	if o.Mode == 0 {
		o.Mode = defaultMode
	}
	if o.Mode&^fs.ModePerm != 0 || o.Mode&0o200 == 0 {
		bad("Mode", o.Mode, "permission bits that let the owner write")
	}
	if o.OnError == nil {
		o.OnError = callback.ToStderr[error]
	}
	if o.RotateBytes < 0 {
		bad("RotateBytes", o.RotateBytes, "0 or more bytes")
	}
	if o.RotateEvery != 0 && o.RotateEvery < time.Second {
		bad("RotateEvery", o.RotateEvery, "a second or more")
	}
	if o.KeepFiles < 0 {
		bad("KeepFiles", o.KeepFiles, "0 or more files")
	}
	if o.KeepFor < 0 {
		bad("KeepFor", o.KeepFor, "0 or more")
	}
	switch o.Compress {
	case "", "gzip", "zstd":
	default:
		bad("Compress", fmt.Sprintf("%q", o.Compress), `"", "gzip" or "zstd"`)
	}
	switch o.Sync {
	case "":
		o.Sync = syncNever
	case syncNever:
	case syncAlways:
		if o.Compress != "" {
			bad("Compress", fmt.Sprintf("%q", o.Compress), `"" where Sync is "always": the compressed copy is not synced`)
		}
	default:
		bad("Sync", fmt.Sprintf("%q", o.Sync), `"never" or "always"`)
	}
	if !o.rotates() && len(errs) == 0 && (o.KeepFiles != 0 || o.KeepFor != 0 || o.Compress != "") {
		bad("RotateBytes", 0, "set, or RotateEvery, for KeepFiles, KeepFor and Compress to mean anything")
	}
	return o, errors.Join(errs...)
}
