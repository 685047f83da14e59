package forebay

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/stdio"
)

// A stream is the configuration of [Console] and [Writer].
type stream struct {
	w       io.Writer
	name    string
	console bool
	closes  bool
}

// openStream opens the destination of [Console] and [Writer].
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
	switch wc, ok := c.w.(io.WriteCloser); {
	case c.closes && !ok:
		return nil, errNoClose(c.w)
	case isFile:
		d := stdio.New(f, s.Name)
		if err := d.Check(); err != nil || !c.closes {
			return d, err
		}
		return closingFile{d, f}, nil
	case c.closes:
		return deliver.ToWriteCloser(wc), nil
	}
	return deliver.ToWriter(c.w), nil
}

// A closingFile is the destination for an *os.File that the Router closes.
type closingFile struct {
	*stdio.Stream
	f *os.File
}

// Close closes the file.
func (c closingFile) Close(context.Context) error { return c.f.Close() }
