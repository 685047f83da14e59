package tail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A Line is one record: a line, or several lines combined by Options.Join.
type Line struct {
	Text   []byte // ends in '\n'; valid until Put returns
	Source *Source
	Stream string    // stdout or stderr if a container runtime wrote the line
	Time   time.Time // time recorded by a container runtime; zero for other lines

	// Cut reports that the line has no newline in the file. Such a line is passed when
	// Options.PartialWait is over or the file has ended.
	Cut bool

	// TooLong is the length of a line that exceeds Options.MaxRecord, and 0 for other lines. Text
	// is empty if TooLong is not 0.
	TooLong int64
}

// A Sink receives lines. Begin, Put and End are called by one goroutine; other goroutines may call
// Commit at the same time.
type Sink interface {
	// Begin is called before the first of several calls of Put, and End after the last. The Tailer
	// does not wait for files between Begin and End, so the Sink may hold a lock.
	Begin()
	End()
	// Put accepts a line. It may block until there is room for the line. If Put returns an error,
	// it has not accepted the line, and Run returns the error. The line is valid until Put returns.
	Put(*Line) error
	// Commit returns nil if every line that was passed to Put before the call is delivered or
	// stored in a spool. If Commit returns an error, the Tailer calls it again later.
	Commit(context.Context) error
}

// Options select the files to follow and the way to read them.
type Options struct {
	// Patterns are the paths of files. They may contain *, ? and [] as in filepath.Match.
	Patterns []string
	// Dir is the directory in which positions are stored. "" means that they are not stored.
	Dir string
	// From is where to begin in files that exist at the start and have no stored position. Files
	// that appear later are read from their start. Default FromStart.
	From From
	// Before is an earlier Tailer with the same Dir, or nil. It must have ended. A file that
	// matches the patterns of Before is read from its stored position. If it has no stored
	// position, it has appeared after Before searched for files, and is read from its start. From
	// does not apply to such files. Default nil.
	Before *Tailer
	// Once makes Run return when the files that exist at the start are read. Default false.
	Once bool
	// MaxRecord is the maximum length of a line in bytes, without its newline. It applies to the
	// line in the file and to the line in UTF-8. Default 1 MiB.
	MaxRecord int
	// Charset is the charset of files without a byte order mark. Lines are passed in UTF-8.
	// Default: UTF-8.
	Charset *charset.Charset
	// Join contains the rules that combine several lines to one record. Default: each line is a
	// record.
	Join *join.Rules
	// JoinWait is the maximum time that a record waits for more lines. Default 1 s.
	JoinWait time.Duration
	// JoinLines is the maximum number of lines of a record. Default 1000.
	JoinLines int
	// PartialWait is how long the last line of a file waits for its newline. After that it is
	// delivered without one. Default: forever.
	PartialWait time.Duration
	// Poll is the interval at which the size of a changing file is examined. The interval grows to
	// ten times Poll for a file that does not change. If the operating system reports a change, the
	// file is examined at once. Default 100 ms.
	Poll time.Duration
	// Rescan is the interval at which the Tailer searches for new files. If the operating system
	// reports a new file, the Tailer finds it at once. Default 1 s.
	Rescan time.Duration
	// CommitEvery is the interval at which positions are committed. A commit starts earlier if 1
	// MiB was read. Default 1 s.
	CommitEvery time.Duration
	// RotateWait is how long to keep reading a file after it is renamed or deleted, counted from its
	// last change. Default 5 s.
	RotateWait time.Duration
	// MaxOpen is the maximum number of open files, not counting files that were renamed or deleted.
	// Default 512, or half of the system's limit if that is less.
	MaxOpen int
	// MaxGenerations is the maximum number of unread generations (rotated contents) of a path. If
	// there are more, the oldest ones are abandoned and reported as lost. Default 64.
	MaxGenerations int
	// Lost is called when a part of a file was not read and can no longer be read, such as after a
	// truncation. bytes is the size of this part. Any goroutine may call Lost. It must not block.
	// Default: no call.
	Lost func(bytes int64)
	// Say receives messages for the operator. Default: no messages.
	Say func(text string)

	now func() time.Time // time.Now, or the clock of a test
}

// A From is a place in a file at which reading begins.
type From uint8

const (
	FromStart From = iota
	FromEnd
	FromEndOnce // the end if no positions are stored, and otherwise the start
)

// ErrStopped is returned by Run after Stop.
var ErrStopped = errors.New("tail: stopped")

// setDefault sets *v to d if *v is zero.
func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// CheckPattern returns an error if p is not a valid pattern.
func CheckPattern(p string) error {
	if _, err := filepath.Match(p, ""); err != nil {
		return errors.New("a [ has no ]; write \\[ for a literal [")
	}
	if before, after, found := strings.Cut(p, "**"); found && IsPattern(p) {
		return fmt.Errorf("** is not supported; write a pattern for each depth, such as %s and %s", before+strings.TrimPrefix(after, "/"), before+"*"+after)
	}
	return nil
}

// absolute returns p as an absolute pattern. Special characters in the name of the working
// directory are escaped.
func absolute(p string) (string, error) {
	if err := CheckPattern(p); err != nil {
		return "", fmt.Errorf("%s: %w", p, err)
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p), nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if IsPattern(p) && filepath.Separator == '/' {
		dir = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
	}
	return filepath.Join(dir, p), nil
}

// IsPattern reports whether p can match several files. The path of an existing file is not a
// pattern, even if it contains *, ?, [ or \.
func IsPattern(p string) bool {
	if !strings.ContainsAny(p, `*?[\`) {
		return false
	}
	_, err := os.Lstat(p)
	return err != nil
}

// matches reports whether one of the patterns matches path.
func (o *Options) matches(path string) bool {
	return slices.ContainsFunc(o.Patterns, func(p string) bool {
		ok, _ := filepath.Match(p, path)
		return ok || p == path
	})
}

// report formats a message and passes it to Options.Say.
func (o *Options) report(format string, args ...any) { o.Say(fmt.Sprintf(format, args...)) }

// waitingSuffix returns the end of a message about a missing file. With Options.Once it is empty,
// because Run does not wait for the file.
func (o *Options) waitingSuffix() string {
	if o.Once {
		return ""
	}
	return " yet; waiting for one"
}

// unreadableText returns the message about a file or directory that cannot be read because of err.
func (o *Options) unreadableText(err error) string {
	text := "cannot be read: " + vfs.Cause(err).Error()
	if !o.Once {
		text += "; retrying"
	}
	if errors.Is(err, fs.ErrPermission) {
		text += fmt.Sprintf("; give the user %d read permission, and search permission for its directories", os.Geteuid())
	}
	return text
}

// reportLost reports that n bytes of the file of s can no longer be read, and passes n to
// Options.Lost.
func (o *Options) reportLost(s *series, n int64) {
	if n > 0 {
		o.Lost(n)
		o.report("%s: %d bytes of it are lost: they were not read, and no copy of them exists", s.path, n)
	}
}
