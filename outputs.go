package forebay

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/units"
)

// Console returns an output of human-readable lines to w, in color if w is a terminal. w is
// usually os.Stderr; the Router does not close it. Callers do not wait for a slow terminal:
// records are buffered, for at most 100 ms if w keeps up. Records of level ERROR are written
// at once.
func Console(w io.Writer, opts ...OutputOption) OutputSpec {
	return Driver("forebay.Console", stream{w: w, name: "console", console: true}, openStream, opts...)
}

// Writer returns an output of JSON lines to w; the option [Encoder] sets another format. Records
// are buffered in memory until w has accepted them, and one goroutine writes to w; see
// deliver.ToWriter. With [Direct], the calling goroutine writes each record instead. The Router
// does not close w, unless [CloseWriter] is given.
//
// If w has a method WriteRecord(p []byte, m batch.Meta) error, it has its own memory, and the
// output passes each record to that method. A deliver.Output and a [SlabWriter] are such
// writers. If w waits without limit when it is full (slab.Block), a hanging destination blocks the
// caller, and the caller's record does not reach the remaining outputs. With the default
// (slab.BlockFor) the wait ends after one timeout.
//
// w may provide the encoder. If neither a Route nor the option Encoder sets one, the result of its
// method Encoder() encode.Encoder is used. This applies if w has a method WriteRecord, or if the
// option Direct is given.
func Writer(w io.Writer, opts ...OutputOption) OutputSpec {
	o := newSpec(OutputSpec{kind: writerKind}, opts)
	if _, ok := w.(recorder); ok || o.direct {
		o.w = unwrapWriter(w)
		return o
	}
	o.driver = driverOf[stream]{stream{w: w, name: "writer", closes: o.closes}, openStream}
	return o
}

// Direct makes [Writer] write each record with one Write in the calling goroutine: the record is in
// the operating system when the call returns, and the output needs no memory and no goroutine. The
// options of memory and delivery do not apply to it. [BusyTimeout] limits the wait for a Write that
// does not return. By default, Writer buffers records. Direct has no effect on a writer with a
// method WriteRecord.
//
// Writes are serialized, even if w is given to several outputs. To detect this, the Router compares
// writers, so the type of w must be comparable: pass a pointer instead of a function or a struct
// with slices. The Write of w must not retain its argument.
//
// A direct output completes short writes. A failed write is not repeated, and the record is
// counted as dropped{failed}. If part of the record was written, the remainder is tried once
// more. If that fails as well, the record remains incomplete. If records end with a newline, a
// newline is written before the next record, so that only the incomplete record is damaged.
func Direct() OutputOption {
	return writerOption(func(o *OutputSpec) { o.direct = true })
}

// CloseWriter makes [Router.Close] close the writer of [Writer], which must have a method Close. By
// default the Router does not close it.
func CloseWriter() OutputOption {
	return writerOption(func(o *OutputSpec) { o.closes = true })
}

// A writerOption is an option that applies to [Writer] only.
type writerOption func(*OutputSpec)

func (f writerOption) applyOutput(o *OutputSpec) { f(o) }

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

// A logFile is the configuration of [File].
type logFile struct {
	path string
	file.Options
}

// openFile opens the destination of [File]. It registers the path, because two outputs that rotate
// the same file would lose records.
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
// number of old files (0: all). The unit of maxBytes is the byte: Rotate(100<<20, 7) keeps files of
// 100 MiB. The minimum is 4 KiB. Only a single record larger than maxBytes makes a file exceed
// maxBytes. By default the file does not rotate because of its size.
func Rotate(maxBytes int64, keep int) OutputOption {
	return DriverOption("forebay.Rotate", func(c *logFile) error {
		var err error
		if maxBytes < units.MinFileSize {
			err = fmt.Errorf("%d bytes is too small for a file; give its maximum size in bytes, %d or more, such as 100<<20 for 100 MiB", maxBytes, units.MinFileSize)
		} else {
			c.RotateBytes = maxBytes
		}
		return errors.Join(err, c.keep(keep))
	})
}

// RotateEvery starts a new file in each period, counted in UTC, and keeps the given number of
// old files (0: all). With 24*time.Hour, files rotate at midnight UTC. By default the file
// does not rotate because of its age.
func RotateEvery(period time.Duration, keep int) OutputOption {
	return DriverOption("forebay.RotateEvery", func(c *logFile) error {
		var err error
		if period < time.Second {
			err = fmt.Errorf("%v is too short; give a second or more", period)
		} else {
			c.Options.RotateEvery = period
		}
		return errors.Join(err, c.keep(keep))
	})
}

// keep sets the number of old files to keep.
func (c *logFile) keep(n int) error {
	if n < 0 {
		return fmt.Errorf("%d old files cannot be kept; give 0 for all", n)
	}
	c.KeepFiles = n
	return nil
}

// Compress sets the compression of old files: "gzip", or "zstd" in a program that imports package
// compress. By default they are not compressed.
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
