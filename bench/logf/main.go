// Command logf measures the rows that logf is a rival in. No registry has logf v2, so its
// source is the user's:
//
//	make bench-logf LOGF=/path/to/logf [ROWS=regexp]
//
// The rows then name its commit, and the results are in the same file as all others.
// Without the source they are "not measured", and the targets of the other rows stand.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	_ "github.com/forebay-log/forebay/bench/utc"
	"github.com/forebay-log/forebay/slab"
)

// commit is that of logf. The linker sets it.
var commit = "unknown"

const (
	slabBytes  = 64 << 10 // of both sides
	slabCount  = 8
	bufferSize = 256 << 10
	fileOps    = 400_000 // records of one sample into a file: 100 MB

	ours = "forebay"
	laid = ", laid out"
	six  = rivals.Six
)

func main() {
	h.Register(rows()...)
	os.Exit(h.Program(results, 100*time.Millisecond, nil))
}

func rows() (rows []h.Row) {
	const (
		slabW  = "slab.Write"
		theirs = "logf SlabWriter"
		buf    = "bufio+mutex"
	)
	by := "; logf at " + commit
	o := &slab.Options{SlabBytes: slabBytes, SlabCount: slabCount}
	bufio := func(w io.Writer) rivals.Writer { return rivals.NewBufio(w, bufferSize) }
	for _, size := range []int{256, 200} {
		whole := int64(size) * fileOps
		name := "logf/slab-file-10g"
		if size != 256 {
			name += fmt.Sprintf("-%d", size)
		}
		rows = append(rows, h.Row{
			Name: name, What: fmt.Sprintf("records of %d B, slabs 8 × 64 KiB, 10 goroutines, file, drain timed, no fsync; ", size) +
				"\"laid out\": the whole file was reserved beforehand" + by,
			Target: "≤ 0.8 × logf's SlabWriter, on a plain file and with both laid out", Reference: theirs,
			Goroutines: 10, MaxOps: fileOps,
			Contenders: []h.Contender{
				rivals.RecordsToFile(slabW, h.Ours, "as an io.Writer, before file.Open, Close included", size, own.ToFile(o)),
				rivals.RecordsToFile(slabW+laid, h.Ours, "", size, rivals.Laid(whole, own.ToFile(o))),
				rivals.RecordsToFile(theirs, h.Rival, "", size, openSlab),
				rivals.RecordsToFile(theirs+laid, h.Reference, "", size, rivals.Laid(whole, openSlab)),
				rivals.RecordsToFile(buf, h.Rival, "256 KiB", size, rivals.Over(bufio)),
			},
			Verdict: h.Verdict(h.Versus(slabW, theirs, 0.8), h.Versus(slabW+laid, theirs+laid, 0.8)),
		})
	}

	const zerolog, phuslu, own6 = "zerolog+logf", "phuslu+logf", "logf"
	rows = append(rows, h.Row{
		Name: "logf/pipeline-file-10g", What: "whole pipeline, drain timed, every record counted, 6 scalar fields, file on disk, no fsync, 10 goroutines" + by,
		Target: "≤ 0.8 × the best valid rival, logf's slab included", Goroutines: 10, MaxOps: fileOps / 2,
		Contenders: []h.Contender{
			pipe(ours, h.Ours, "New(File(path)), Logger.Info, Flush", own.Native, func(f *os.File) (rivals.Pipe, error) {
				if err := f.Close(); err != nil {
					return rivals.Pipe{}, err
				}
				return own.Door(f.Name(), six)
			}),
			pipe(zerolog, h.Rival, "over SlabWriter", rivals.Zerolog, overSlab(rivals.Zerolog)),
			pipe(phuslu, h.Rival, "over SlabWriter", rivals.Phuslu, overSlab(rivals.Phuslu)),
			pipe(own6, h.Rival, "Router, SlabWriter, no caller", native, overSlab(native)),
			pipe("zerolog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Zerolog, func(f *os.File) (rivals.Pipe, error) {
				w := bufio(f)
				return rivals.Pipe{Run: rivals.Zerolog(w, six), Drain: w.Drain}, nil
			}),
		},
		Verdict: h.Verdict(h.VersusFastest(ours, 0.8), h.Versus(ours, zerolog, 0.8), h.Versus(ours, own6, 0.8)),
	})
	return rows
}

// pipe makes a contender of six fields into a fresh file. A logger that is not there has no
// output to find fault with.
func pipe(name string, kind h.Kind, note string, l rivals.Native, open rivals.File[rivals.Pipe]) h.Contender {
	faults := func() []string { return rivals.Check(l, six) }
	if l == nil {
		faults = nil
	}
	return rivals.PipeToFile(name, kind, note, faults, open)
}

// overSlab logs through logf's SlabWriter.
func overSlab(l rivals.Native) rivals.File[rivals.Pipe] {
	return func(f *os.File) (rivals.Pipe, error) {
		w, err := openSlab(f)
		if err != nil {
			return rivals.Pipe{}, err
		}
		return rivals.Pipe{Run: l(w, six), Drain: w.Drain}, nil
	}
}
