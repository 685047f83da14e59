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
type pipe func(dst io.Writer) *h.Subject

// buffered returns a pipe with a native logger and a buffering writer.
func buffered(l rivals.Native, s rivals.Scenario, mk func(io.Writer) rivals.Writer) pipe {
	return func(dst io.Writer) *h.Subject {
		w := mk(dst)
		return &h.Subject{Run: l(w, s), Drain: w.Drain}
	}
}

// direct returns a pipe with a native logger and without a buffer.
func direct(l rivals.Native, s rivals.Scenario) pipe {
	return func(dst io.Writer) *h.Subject { return &h.Subject{Run: l(dst, s)} }
}

// zapLocked is like rivals.Zap, with a lock for several goroutines.
func zapLocked(dst io.Writer, s rivals.Scenario) rivals.Run {
	return rivals.Zap(rivals.ZapLocked(dst), s)
}

// logToFile returns a contender that logs six fields to a new file, whose lines it counts. l is the
// logger whose output is checked.
func logToFile(name string, kind h.Kind, note string, l rivals.Native, open func(*os.File) (*h.Subject, error)) h.Contender {
	c := rivals.ToFile(name, kind, note, open)
	c.Faults = func() []string { return rivals.Check(l, rivals.Six) }
	return c
}

// pipeToFile returns a contender that logs through a pipe to a new file.
func pipeToFile(name string, kind h.Kind, note string, l rivals.Native, mk pipe) h.Contender {
	return logToFile(name, kind, note, l, func(f *os.File) (*h.Subject, error) { return mk(f), nil })
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
			Goroutines: r.goroutines, MaxOps: fileOps / 4,
			Contenders: []h.Contender{
				pipeToFile(ours, h.Ours, "Route straight to the file", own.Native, direct(own.Native, six)),
				pipeToFile("zap", h.Rival, "zapcore.Lock", rivals.Zap, direct(zapLocked, six)),
				pipeToFile("zerolog", h.Rival, "", rivals.Zerolog, direct(rivals.Zerolog, six)),
				pipeToFile("phuslu", h.Rival, "IOWriter", rivals.Phuslu, direct(rivals.Phuslu, six)),
				pipeToFile(slogStd, h.Rival, "JSONHandler", rivals.Slog, direct(rivals.Slog, six)),
			},
			Targets: []h.Target{h.VersusFastest(ours, 1)},
		})
	}
	h.Register(h.Row{
		Name: "pipeline/file-10g", What: "whole pipeline, drain timed, every record counted, " + what + ", 10 goroutines",
		Goroutines: 10, MaxOps: fileOps / 2,
		Contenders: []h.Contender{
			logToFile(ours, h.Ours, "New(File(path)), Logger.Info, Flush", own.Native, own.LogToFile(six, false)),
			logToFile("slog→forebay", h.Ours, "New(File(path)), slog.Logger.LogAttrs, Flush", rivals.Handler(own.Handler), own.LogToFile(six, true)),
			pipeToFile("zap+BWS", h.Rival, "256 KiB", rivals.Zap, buffered(rivals.Zap, six, newBWS)),
			pipeToFile("zerolog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Zerolog, buffered(rivals.Zerolog, six, newBufio)),
			pipeToFile("zerolog+source slab", h.Rival, "8 × 64 KiB", rivals.Zerolog, buffered(rivals.Zerolog, six, newSource)),
			pipeToFile("phuslu+bufio", h.Rival, "mutexed, 256 KiB", rivals.Phuslu, buffered(rivals.Phuslu, six, newBufio)),
			pipeToFile("slog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Slog, buffered(rivals.Slog, six, newBufio)),
			pipeToFile("zerolog+slab", h.Reference, "a competitor's encoder over our writer", rivals.Zerolog,
				buffered(rivals.Zerolog, six, newSlabs)),
		},
		Targets: []h.Target{h.VersusFastest(ours, 0.75), h.CPUVersusFastest(ours, 0.75)},
	})

	steps := []int{1, 4, 8, 16, 32, 64}
	name := func(g int) string { return fmt.Sprintf("%s, %dg", ours, g) }
	scale := h.Row{
		Name: "pipeline/scale", What: "whole pipeline, drain timed, every record counted, " + what + ", 1 to 64 goroutines, 8 processors or more",
		Reference: name(1), MinCPU: 8, MaxOps: fileOps / 2,
	}
	for i, g := range steps {
		c := logToFile(name(g), h.Ours, "New(File(path)), Logger.Info, Flush", own.Native, own.LogToFile(six, false))
		c.Goroutines = g
		scale.Contenders = append(scale.Contenders, c)
		if g > 4 {
			scale.Targets = append(scale.Targets, h.Versus(c.Name, name(steps[i-1]), 1.05))
		}
	}
	scale.Targets = append(scale.Targets, h.Versus(name(16), name(1), 1./3))
	h.Register(scale)
}
