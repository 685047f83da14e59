package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A plotFile is opened before anything is driven, so that a path that cannot be
// written to is found at once. What it held stays until the plot is written.
type plotFile struct {
	f   *os.File // nil: no plot, or done with
	new bool     // there was no such file before
}

func openPlot(path string) (*plotFile, error) {
	if path == "" {
		return &plotFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		return &plotFile{f, true}, nil
	}
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the plot: --plot %s: %w", path, unpathed(err))
	}
	return &plotFile{f: f}, nil
}

// write replaces what the file held by what draw writes.
func (p *plotFile) write(draw func(io.Writer) error) (err error) {
	if p.f == nil {
		return nil
	}
	f := p.f
	p.f = nil
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("cannot write the plot: %w", err)
		}
	}()
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	return draw(f)
}

// discard ends without a plot; after write it does nothing.
func (p *plotFile) discard() {
	if p.f == nil {
		return
	}
	_ = p.f.Close()
	if p.new {
		_ = os.Remove(p.f.Name())
	}
	p.f = nil
}
