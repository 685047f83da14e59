package slab

import (
	"io"
	"os"
)

// A vecWriter is a destination that takes several slabs in one system call, as
// writev(2) does. When slabs have queued up, the Writer hands it up to half of
// them at once, which costs a file about a third less than one write each. An
// *os.File that is a regular file is one by itself on Linux and macOS.
//
// Writev writes the buffers in order and returns the number of bytes written,
// with an error if that is not all of them. It must not keep them.
type vecWriter interface {
	Writev(bufs [][]byte) (int64, error)
}

// vecWriterFor returns how dst takes several slabs at once, nil if it does not.
func vecWriterFor(dst io.Writer) vecWriter {
	switch d := dst.(type) {
	case vecWriter:
		return d
	case *os.File:
		if st, err := d.Stat(); err == nil && st.Mode().IsRegular() && haveWritev {
			return fileVec{d}
		}
	}
	return nil
}

// fileVec is the vecWriter of a file.
type fileVec struct{ f *os.File }
