package main

import (
	"fmt"
	"io"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

const (
	bufferSize = 256 << 10 // buffer of competitors
	fileOps    = 400_000   // number of records of a sample that is written to a file: 100 MB
)

// writerTo returns a contender that writes records of size bytes through a buffering writer to a
// destination that counts them.
func writerTo(name string, kind h.Kind, note string, size int, mk func(io.Writer) rivals.Writer) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		d := new(rivals.Discard)
		w := mk(d)
		s := &h.Subject{Run: rivals.Repeat(w, rivals.Record(size)), Drain: w.Drain,
			Tally: func() (h.Tally, error) { return d.BySize(size) }}
		if kind == h.Reference { // such as mutex+copy, which delivers nothing
			s.Tally = nil
		}
		return s, nil
	}}
}

// slabs8 contains the slab options of most rows.
var slabs8 = &slab.Options{SlabBytes: 64 << 10, SlabCount: 8}

func newSlabs(w io.Writer) rivals.Writer { return own.NewSlab(w, slabs8) }

func newBufio(w io.Writer) rivals.Writer { return rivals.NewBufio(w, bufferSize) }

func newSource(w io.Writer) rivals.Writer { return rivals.NewSourceSlab(w, 64<<10, 8) }

func newBWS(w io.Writer) rivals.Writer { return rivals.NewBWS(w, bufferSize) }

func init() {
	const (
		write    = "slab.Write"
		floor    = "mutex+copy"
		buf      = "bufio+mutex"
		zapBWS   = "zap BWS"
		reserved = ", reserved"
		source   = "source slab"
		bigBuf   = "256 KiB"
	)
	h.Register(h.Row{
		Name: "slab/discard-1g", What: "records of 256 B, slabs 8 × 64 KiB, 1 goroutine, discard, drain timed",
		Reference: floor,
		Contenders: []h.Contender{
			writerTo(write, h.Ours, "as an io.Writer", 256, newSlabs),
			writerTo(floor, h.Reference, "lock and copy into 64 KiB, nothing delivered", 256,
				func(io.Writer) rivals.Writer { return new(rivals.MutexCopy) }),
			writerTo(buf, h.Rival, bigBuf, 256, newBufio),
			writerTo(zapBWS, h.Rival, bigBuf, 256, newBWS),
			writerTo(source, h.Rival, "8 × 64 KiB", 256, newSource),
		},
		Targets: []h.Target{h.Versus(write, floor, 1.2)},
	})
	for _, r := range []struct {
		name string
		size int
	}{{"slab/file-10g", 256}, {"slab/file-10g-200", 200}} {
		whole := int64(r.size) * fileOps
		h.Register(h.Row{
			Name: r.name, What: fmt.Sprintf("records of %d B, slabs 8 × 64 KiB, 10 goroutines, file, drain timed, no fsync; ", r.size) +
				"\"reserved\": the blocks of the whole file were reserved in advance",
			Reference: buf, Goroutines: 10, MaxOps: fileOps,
			Contenders: []h.Contender{
				rivals.RecordsToFile(write, h.Ours, "as an io.Writer, before file.Open, Close included", r.size, own.ToFile(slabs8)),
				rivals.RecordsToFile(buf, h.Rival, bigBuf, r.size, rivals.Over(newBufio)),
				rivals.RecordsToFile(zapBWS, h.Rival, bigBuf, r.size, rivals.Over(newBWS)),
				rivals.RecordsToFile(source, h.Rival, "8 × 64 KiB", r.size, rivals.Over(newSource)),
				rivals.RecordsToFile(write+reserved, h.Ours, "as "+write, r.size, rivals.Reserved(whole, own.ToFile(slabs8))),
				rivals.RecordsToFile(source+reserved, h.Reference, "", r.size, rivals.Reserved(whole, rivals.Over(newSource))),
				rivals.RecordsToFile(buf+reserved, h.Reference, bigBuf, r.size, rivals.Reserved(whole, rivals.Over(newBufio))),
			},
			Targets: []h.Target{h.Versus(write, buf, 0.7), h.Versus(write+reserved, buf+reserved, 0.8), h.Versus(write, zapBWS, 0.75),
				h.Versus(write, source, 0.8), h.Versus(write+reserved, source+reserved, 0.8)},
		})
	}
}
