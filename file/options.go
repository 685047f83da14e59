package file

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/compression"
)

// defaultMode is the permission of files that Open creates. Only the owner has access, because logs
// often contain confidential data.
const defaultMode fs.FileMode = 0o600

// Options configures a [File]. With the zero value, the File appends to one file and never rotates
// it. Each field states its default and unit.
type Options struct {
	// Mode is the permission of a file that Open creates, before the umask. An existing
	// file keeps its permission, and a file created by rotation has the permission of the
	// file it replaces. Default 0600.
	Mode fs.FileMode
	// MakeDirs creates missing parent directories, with mode 0700. This applies to Open, and to
	// directories that are deleted or moved later. Default false: a missing directory is an error,
	// because it is often caused by a typing error.
	MakeDirs bool
	// NoReserve disables the reservation of disk space. Default false. Space is reserved on ext4
	// under Linux, after the end of a file that is larger than 8 MiB and belongs to the user of
	// the process. At most 8 MiB are reserved, and none beyond RotateBytes. The reservation makes
	// appending cheaper. The space is not part of the file size, but du(1) counts it. Close,
	// rotation, Reopen or the next Open release it, once no other process has the file open.
	NoReserve bool

	// RotateBytes is the maximum size of the file in bytes. The file is rotated before a Write
	// that would exceed it. A single Write of more bytes gets a separate file. A deliver.Output
	// divides its writes between records according to the free space of the file, so only a
	// record larger than RotateBytes exceeds it. Default 0: no limit.
	RotateBytes int64
	// RotateEvery rotates the file at the first Write of each period. Periods are counted in UTC:
	// with 24h the file rotates at midnight UTC. A restart does not change the periods. The minimum
	// is 1 s. Default 0: never.
	RotateEvery time.Duration

	// KeepFiles is the number of old files to keep. Default 0: all.
	KeepFiles int
	// KeepFor is how long to keep old files, rounded up to whole days. Old files are
	// removed by Open and at each rotation. Default 0: forever.
	KeepFor time.Duration
	// Compress is the compression of old files: "", "gzip", or "zstd" in a program that
	// imports package compress. Default "": none.
	Compress string

	// Sync determines when written data reaches stable storage. With "never", the operating system
	// or a call of [File.Sync] writes it. With "always", it is written before Write returns,
	// including the directory entries of the file. Data that is not synced survives a crash of the
	// process, but not of the machine. "always" requires a regular file. It excludes Compress,
	// because a compressed copy is not synced before the original is removed. Default "never".
	Sync string

	// OnError is called when the file was moved or deleted (see Check), when a rotation fails, or
	// when a delayed Reopen fails. The File then continues with the old file. OnError is also
	// called when an old file cannot be compressed or removed. It runs in a separate goroutine that
	// reads a bounded queue, so it may log to this File. Default nil: write one line to stderr.
	OnError func(error)
}

// The values of Options.Sync, the same as for spool.Options.
const (
	syncNever  = "never"
	syncAlways = "always"
)

// rotates reports whether rotation is configured.
func (o *Options) rotates() bool { return o.RotateBytes > 0 || o.RotateEvery > 0 }

// resolve returns o with defaults applied. The error lists every invalid field.
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
	case "":
	case "gzip", "zstd":
		if _, err := compression.Find(o.Compress); err != nil {
			errs = append(errs, fmt.Errorf("file: Options.Compress is %q: %w", o.Compress, err))
		}
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
		bad("RotateBytes", 0, "set, or RotateEvery, because KeepFiles, KeepFor and Compress apply to rotated files")
	}
	return o, errors.Join(errs...)
}
