package main

import (
	"bytes"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

const (
	name = "forebay"
	size = 256 // bytes of a line
)

// line returns a JSON line of size bytes.
func line() []byte {
	b := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"`)
	b = append(b, bytes.Repeat([]byte{'x'}, size-len(b)-3)...)
	return append(b, "\"}\n"...)
}

// written returns a subject that writes lines through an Output until all are stored. end frees the
// server.
func written(d deliver.Destination, stored func() uint64, end func() error) (*h.Subject, error) {
	out, err := deliver.NewOutput(d, &deliver.OutputOptions{
		Name: name, Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
		Slab: slab.Options{SlabBytes: 256 << 10, WhenFull: slab.Block()}, CloseTimeout: time.Minute,
	})
	rec := line()
	return &h.Subject{
		Run: func(_, n int) {
			for range n {
				out.Write(rec)
			}
		},
		Drain: func() error { return out.Close() },
		Tally: tally(stored),
		Close: end,
	}, err
}

// tally returns the count of stored lines as a harness expects it.
func tally(stored func() uint64) func() (h.Tally, error) {
	return func() (h.Tally, error) {
		n := stored()
		return h.Tally{Records: n, Bytes: n * size}, nil
	}
}
