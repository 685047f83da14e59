package main

import (
	"fmt"
	"io"
	"os"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
)

// A pipe returns a whole pipeline that writes to dst: a loop that logs the records of one scenario,
// and the drain.
type pipe func(dst io.Writer) (rivals.Run, func() error)

// buffered returns a pipe with a native logger and a buffering writer.
func buffered(l rivals.Native, s rivals.Scenario, mk func(io.Writer) rivals.Writer) pipe {
	return func(dst io.Writer) (rivals.Run, func() error) {
		w := mk(dst)
		return l(w, s), w.Drain
	}
}

// direct returns a pipe with a native logger and without a buffer.
func direct(l rivals.Native, s rivals.Scenario) pipe {
	return func(dst io.Writer) (rivals.Run, func() error) { return l(dst, s), nil }
}

// zapLocked is like rivals.Zap, with a lock for several goroutines.
func zapLocked(dst io.Writer, s rivals.Scenario) rivals.Run {
	return rivals.Zap(rivals.ZapLocked(dst), s)
}

// pipeToFile returns a contender that logs through a pipe to a new file. Its tally counts the lines
// of the file.
func pipeToFile(name string, kind h.Kind, note string, l rivals.Native, s rivals.Scenario, mk pipe) h.Contender {
	return rivals.PipeToFile(name, kind, note, func() []string { return faults(l, s) }, func(f *os.File) (rivals.Pipe, error) {
		run, drain := mk(f)
		return rivals.Pipe{Run: run, Drain: drain}, nil
	})
}

// namedToFile is like pipeToFile, for a logger that opens the file by its name.
func namedToFile(name string, kind h.Kind, note string, l rivals.Native, s rivals.Scenario,
	open func(string, rivals.Scenario) (rivals.Pipe, error)) h.Contender {
	return rivals.PipeToFile(name, kind, note, func() []string { return faults(l, s) }, func(f *os.File) (rivals.Pipe, error) {
		if err := f.Close(); err != nil {
			return rivals.Pipe{}, err
		}
		return open(f.Name(), s)
	})
}

func init() {
	const six = rivals.Six
	const what = "6 scalar fields, file on disk, no fsync"
	for _, r := range []struct {
		name, what string
		goroutines int
	}{
		{"file/unbuffered-1g", "1 goroutine", 1},
		{"file/unbuffered-10g", "10 goroutines", 10},
	} {
		h.Register(h.Row{
			Name: r.name, What: "every record in the kernel when the call returns, " + what + ", " + r.what,
			Target: "fastest", Goroutines: r.goroutines, MaxOps: fileOps / 4,
			Contenders: []h.Contender{
				pipeToFile(ours, h.Ours, "Route straight to the file", own.Native, six, direct(own.Native, six)),
				pipeToFile("zap", h.Rival, "zapcore.Lock", rivals.Zap, six, direct(zapLocked, six)),
				pipeToFile("zerolog", h.Rival, "", rivals.Zerolog, six, direct(rivals.Zerolog, six)),
				pipeToFile("phuslu", h.Rival, "IOWriter", rivals.Phuslu, six, direct(rivals.Phuslu, six)),
				pipeToFile(slogStd, h.Rival, "JSONHandler", rivals.Slog, six, direct(rivals.Slog, six)),
			},
			Verdict: h.VersusFastest(ours, 1),
		})
	}
	h.Register(h.Row{
		Name: "pipeline/file-10g", What: "whole pipeline, drain timed, every record counted, " + what + ", 10 goroutines",
		Target: "≤ 0.75 × the fastest valid competitor, by the clock and by processor time", Goroutines: 10, MaxOps: fileOps / 2,
		Contenders: []h.Contender{
			namedToFile(ours, h.Ours, "New(File(path)), Logger.Info, Flush", own.Native, six, own.LogToFile),
			namedToFile("slog→forebay", h.Ours, "New(File(path)), slog.Logger.LogAttrs, Flush", rivals.Handler(own.Handler), six, own.SlogToFile),
			pipeToFile("zap+BWS", h.Rival, "256 KiB", rivals.Zap, six, buffered(rivals.Zap, six, newBWS)),
			pipeToFile("zerolog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Zerolog, six, buffered(rivals.Zerolog, six, newBufio)),
			pipeToFile("zerolog+source slab", h.Rival, "8 × 64 KiB", rivals.Zerolog, six, buffered(rivals.Zerolog, six, newSource)),
			pipeToFile("phuslu+bufio", h.Rival, "mutexed, 256 KiB", rivals.Phuslu, six, buffered(rivals.Phuslu, six, newBufio)),
			pipeToFile("slog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Slog, six, buffered(rivals.Slog, six, newBufio)),
			pipeToFile("zerolog+slab", h.Reference, "a competitor's encoder over our writer", rivals.Zerolog, six,
				buffered(rivals.Zerolog, six, newSlabs(64<<10, 8))),
		},
		Verdict: h.All(h.VersusFastest(ours, 0.75), h.CPUVersusFastest(ours, 0.75)),
	})

	steps := []int{1, 4, 8, 16, 32, 64}
	var steady []h.Verdict // no step is slower than the one before
	name := func(g int) string { return fmt.Sprintf("%s, %dg", ours, g) }
	scale := h.Row{
		Name: "pipeline/scale", What: "whole pipeline, drain timed, every record counted, " + what + ", 1 to 64 goroutines, 8 processors or more",
		Target:    "throughput never falls from 4 goroutines on (each step ≤ 1.05 × the one before); ≥ 3 × that of one goroutine at 16",
		Reference: name(1), MinCPU: 8, MaxOps: fileOps / 2,
	}
	for i, g := range steps {
		c := namedToFile(name(g), h.Ours, "New(File(path)), Logger.Info, Flush", own.Native, six, own.LogToFile)
		c.Goroutines = g
		scale.Contenders = append(scale.Contenders, c)
		if g > 4 {
			steady = append(steady, h.Versus(c.Name, name(steps[i-1]), 1.05))
		}
	}
	scale.Verdict = h.All(append(steady, h.Versus(name(16), name(1), 1./3))...)
	h.Register(scale)
}
