package forebay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
)

// Console is an output for people: lines of text to w, in colours if w is a terminal.
// w is usually os.Stderr, and stays open. Records lie in memory until w has taken them,
// at most 100 ms where w keeps up, so that callers do not wait for a slow terminal; those
// of level ERROR are written at once.
func Console(w io.Writer, opts ...OutputOption) OutputSpec {
	return Driver("forebay.Console", stream{w, "console", true}, openStream, opts...)
}

// Writer is an output to any io.Writer, which stays open: JSON lines, unless [Encoder]
// says otherwise. w is written to by one goroutine, see deliver.ToWriter. Records lie in
// memory until w has taken them. For one Write per record in the caller see [Output].
func Writer(w io.Writer, opts ...OutputOption) OutputSpec {
	return Driver("forebay.Writer", stream{w, "writer", false}, openStream, opts...)
}

// stream configures Console and Writer.
type stream struct {
	w       io.Writer
	name    string
	console bool
}

func openStream(c *stream, s *Setup) (deliver.Destination, error) {
	if isNil(c.w) {
		return nil, fmt.Errorf("the writer is nil (%T); give one such as os.Stderr, or leave the output out", c.w)
	}
	if s.Name == "" {
		s.Name = c.name
	}
	f, isFile := c.w.(*os.File)
	if c.console && s.Encoder == nil {
		s.Encoder = encode.Console(&encode.Options{Color: isFile && encode.ColorTerminal(f)})
	}
	if !isFile {
		return deliver.ToWriter(c.w), nil
	}
	d := file.NewStdio(f, s.Name)
	return d, d.Check()
}

// File is an output that appends to the file at path, one JSON object per line unless
// [Encoder] says otherwise. The file is made if it is missing; its directory must be
// there. [Rotate], [RotateEvery] and [Compress] bound what it takes on the disk.
//
// The file is readable for its owner alone (mode 0600), and one that rotates has a lock
// beside it, named path.lock, which stays. For another mode, or to have directories made,
// give [To] a file.Open: see package file.
func File(path string, opts ...OutputOption) OutputSpec {
	return Driver("forebay.File", logFile{path: path}, openFile, opts...)
}

// logFile configures File.
type logFile struct {
	path string
	file.Options
}

func openFile(c *logFile, s *Setup) (deliver.Destination, error) {
	if s.Name == "" {
		s.Name = "file:" + filepath.Base(c.path)
	}
	if err := s.claim("file", c.path); err != nil {
		return nil, err
	}
	if c.Options.Compress != "" && c.RotateBytes == 0 && c.Options.RotateEvery == 0 {
		return nil, errors.New("Compress is for old files, and there will be none; give Rotate or RotateEvery, too")
	}
	if s.OnError != nil {
		post, name := s.OnError, s.Name
		c.OnError = func(err error) { post(batch.Event{Output: name, Op: "file", Err: err}) }
	}
	f, err := file.Open(c.path, &c.Options)
	if err != nil {
		return nil, err
	}
	return deliver.ToWriteCloser(f), nil
}

// Rotate begins a new file when one would grow beyond maxBytes, and keeps so many old
// ones (0: all). What is written at once stays in one file. That is up to 64 KiB (a slab,
// see [Buffer]), so a smaller limit has no effect of its own.
func Rotate(maxBytes int64, keep int) OutputOption {
	return DriverOption("forebay.Rotate", func(c *logFile) error {
		if maxBytes <= 0 {
			return fmt.Errorf("%d bytes are no size; give the largest size of a file", maxBytes)
		}
		c.RotateBytes = maxBytes
		return c.keep(keep)
	})
}

// RotateEvery begins a new file in each period, counted in UTC, and keeps so many old
// ones (0: all). 24*time.Hour is midnight.
func RotateEvery(period time.Duration, keep int) OutputOption {
	return DriverOption("forebay.RotateEvery", func(c *logFile) error {
		if period < time.Second {
			return fmt.Errorf("%v is too short; give a second or more", period)
		}
		c.Options.RotateEvery = period
		return c.keep(keep)
	})
}

func (c *logFile) keep(n int) error {
	if n < 0 {
		return fmt.Errorf("%d old files cannot be kept; give 0 for all", n)
	}
	c.KeepFiles = n
	return nil
}

// Compress compresses old files: "gzip" or "zstd".
func Compress(form string) OutputOption {
	return DriverOption("forebay.Compress", func(c *logFile) error {
		if form != "gzip" && form != "zstd" {
			return fmt.Errorf("%q is no form of compression; give gzip or zstd", form)
		}
		c.Options.Compress = form
		return nil
	})
}

// To is an output to a destination of your own: see deliver.Destination, of which
// deliver.SendFunc makes the simplest. The Router closes it.
func To(dest deliver.Destination, opts ...OutputOption) OutputSpec {
	open := func(c *deliver.Destination, s *Setup) (deliver.Destination, error) {
		if isNil(*c) {
			return nil, errors.New("the destination is nil; give one, or leave the output out")
		}
		return *c, nil
	}
	return Driver("forebay.To", dest, open, opts...)
}
