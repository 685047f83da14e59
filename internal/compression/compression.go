// Package compression finds compression formats by name.
//
//	fluent, loki, httpsink, file ──NewWriter──┐
//	                                          ├──► gzip: compress/gzip
//	listeners, test servers ──────NewReader───┘    zstd, and a faster gzip: module compress, if imported
//
// The gzip of the standard library is always present. A program that imports module compress also
// has zstd and a faster gzip: the import registers them, like the formats of package image.
package compression

import (
	"compress/gzip"
	"fmt"
	"io"
	"sync"
)

// A Level is a compromise between speed and size.
type Level uint8

const (
	Fast  Level = iota // for requests: fast, with at most 128 KiB of history
	Small              // for files: small
)

// A Writer compresses the data written between Reset and Close.
type Writer interface {
	io.WriteCloser
	Reset(io.Writer)
}

// A Reader decompresses data. It is ready after Reset. It holds only memory, so it need not be
// closed.
type Reader interface {
	io.Reader
	Reset(io.Reader) error
}

// A Format is a compression format.
type Format struct {
	Suffix    string // suffix of the names of compressed files, with the period
	NewWriter func(Level) Writer
	NewReader func() Reader
}

var (
	mu      sync.RWMutex
	formats = map[string]Format{"gzip": {Suffix: ".gz", NewWriter: gzipWriter, NewReader: func() Reader { return new(gzip.Reader) }}}
)

// Register adds a format. It replaces a format with the same name.
func Register(name string, f Format) {
	mu.Lock()
	defer mu.Unlock()
	formats[name] = f
}

// Find returns the format with the given name. If it is not registered, the error names the package
// to import.
func Find(name string) (Format, error) {
	mu.RLock()
	defer mu.RUnlock()
	f, ok := formats[name]
	if !ok {
		return f, fmt.Errorf("%s is not part of this program: import github.com/forebay-log/forebay/compress", name)
	}
	return f, nil
}

// NewGzip returns a gzip writer of level Fast, which is ready after Reset.
func NewGzip() Writer {
	f, _ := Find("gzip")
	return f.NewWriter(Fast)
}

func gzipWriter(l Level) Writer {
	level := gzip.DefaultCompression
	if l == Fast {
		level = gzip.BestSpeed
	}
	w, _ := gzip.NewWriterLevel(nil, level) // the error is nil, because the level is valid
	return w
}
