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

// Console returns an output of human-readable lines to w, in color if w is a terminal. w is
// usually os.Stderr; the Router does not close it. Callers do not wait for a slow terminal:
// records are buffered, for at most 100 ms if w keeps up. Records of level ERROR are written
// at once.
func Console(w io.Writer, opts ...OutputOption) OutputSpec {
	return Driver("forebay.Console", stream{w, "console", true}, openStream, opts...)
}

// Writer returns an output of JSON lines to w; the option [Encoder] sets another format. One
// goroutine writes to w; see deliver.ToWriter. Records are buffered in memory until w has
// accepted them. The Router does not close w. For one Write per record in the calling
// goroutine use [Output].
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

// File returns an output that appends to the file at path, one JSON object per line; the
// option [Encoder] sets another format. The file is created if it is missing; its directory
// must exist. [Rotate], [RotateEvery] and [Compress] bound the space used on disk. By default
// the file does not rotate.
//
// The file has mode 0600. If it rotates, there is a lock file path.lock in the same directory,
// which is not removed. For another mode, or to create directories, pass file.Open to [To]; see
// package file.
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
		return nil, errors.New("Compress applies to rotated files; add Rotate or RotateEvery")
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

// Rotate starts a new file before the current one would exceed maxBytes, and keeps the given
// number of old files (0: all). The records of one write stay in one file. A write has up to
// 64 KiB (one slab, see [Buffer]), so a smaller limit has no further effect. By default the
// file does not rotate because of its size.
func Rotate(maxBytes int64, keep int) OutputOption {
	return DriverOption("forebay.Rotate", func(c *logFile) error {
		if maxBytes <= 0 {
			return fmt.Errorf("%d bytes is not a file size; give the maximum size of a file", maxBytes)
		}
		c.RotateBytes = maxBytes
		return c.keep(keep)
	})
}

// RotateEvery starts a new file in each period, counted in UTC, and keeps the given number of
// old files (0: all). With 24*time.Hour, files rotate at midnight UTC. By default the file
// does not rotate because of its age.
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

// Compress sets the compression of old files: "gzip" or "zstd". By default they are not
// compressed.
func Compress(form string) OutputOption {
	return DriverOption("forebay.Compress", func(c *logFile) error {
		if form != "gzip" && form != "zstd" {
			return fmt.Errorf("%q is not a compression; use gzip or zstd", form)
		}
		c.Options.Compress = form
		return nil
	})
}

// To returns an output to a custom destination; see deliver.Destination. deliver.SendFunc
// makes the simplest one. The Router closes dest.
func To(dest deliver.Destination, opts ...OutputOption) OutputSpec {
	open := func(c *deliver.Destination, s *Setup) (deliver.Destination, error) {
		if isNil(*c) {
			return nil, errors.New("the destination is nil; give one, or leave the output out")
		}
		return *c, nil
	}
	return Driver("forebay.To", dest, open, opts...)
}
