package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/forebay-log/forebay/batch"
	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// tmpfs is where crash-safe slabs are best kept: memory, if the machine has such a
// place.
func tmpfs(fallback string) string {
	if runtime.GOOS == "linux" {
		if dir, err := os.MkdirTemp("/dev/shm", "forebay-bench-*"); err == nil {
			return dir
		}
	}
	dir, err := os.MkdirTemp(fallback, "crash-*")
	if err != nil {
		panic(err)
	}
	return dir
}

// crashTo makes a contender that writes records of size bytes into crash-safe
// slabs in front of what open returns.
func crashTo(name string, kind h.Kind, note string, size int, file bool) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(env *h.Env) (*h.Subject, error) {
		dir := tmpfs(env.Dir)
		var dst io.Writer
		d := new(rivals.Discard)
		dst = d
		s := &h.Subject{Tally: func() (h.Tally, error) { return d.BySize(size) }, Close: func() error { return os.RemoveAll(dir) }}
		if file {
			f, err := env.TempFile()
			if err != nil {
				return nil, err
			}
			dst = own.NoSync(f)
			s.Tally = func() (h.Tally, error) { return rivals.FileBySize(f, size) }
			s.Close = func() error { return errors.Join(rivals.Remove(f), os.RemoveAll(dir)) }
		}
		w, err := deliver.NewOutput(deliver.ToWriter(dst), &deliver.OutputOptions{Slab: slab.Options{WhenFull: slab.Block(), Crash: &slab.Crash{Dir: dir, Required: true}}})
		if err != nil {
			return nil, err
		}
		s.Run, s.Drain = repeat(w, record(size)), own.Slab{Output: w}.Drain
		return s, nil
	}}
}

// onePerWrite is the only other way to the same promise: write(2) per record.
type onePerWrite struct{ io.Writer }

func (onePerWrite) Drain() error { return nil }

// recovery measures how long New and Close take to read 64 MiB of slabs that a
// process left behind, and to deliver them to a destination that counts.
func recovery(env *h.Env) (*h.Sample, error) {
	dir := tmpfs(env.Dir)
	defer os.RemoveAll(dir)
	total := 64 << 20
	if env.Quick {
		total = 4 << 20
	}
	block := make(chan struct{})
	stuck := writerFunc(func(p []byte) (int, error) { <-block; return len(p), nil })
	w, err := deliver.NewOutput(deliver.ToWriter(stuck), &deliver.OutputOptions{CloseTimeout: time.Millisecond, OnError: func(batch.Event) {},
		Slab: slab.Options{SlabBytes: 1 << 20, SlabCount: total >> 20, WhenFull: slab.DropNewest(), Crash: &slab.Crash{Dir: dir, Required: true}}})
	if err != nil {
		return nil, err
	}
	p := record(200)
	for w.Stats().Dropped.Total() == 0 {
		for range 1000 {
			w.Write(p)
		}
	}
	_ = w.Close() // out of time, on purpose: the records stay in the file
	close(block)
	kept := w.Account().Pending.Total()
	if kept == 0 {
		return nil, errors.New("nothing was left behind")
	}
	d := new(rivals.Discard)
	start := time.Now()
	r, err := deliver.NewOutput(deliver.ToWriter(d), &deliver.OutputOptions{Slab: slab.Options{SlabBytes: 1 << 20, Crash: &slab.Crash{Dir: dir, Required: true}}})
	if err != nil {
		return nil, err
	}
	rep, err := r.Shutdown(context.Background())
	took := time.Since(start)
	if err == nil && rep.Recovered != kept || rep.Delivered != kept {
		err = fmt.Errorf("%d records were kept, %d recovered, %d delivered", kept, rep.Recovered, rep.Delivered)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.slab"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d files left after recovery", len(left))
	}
	return &h.Sample{Value: took.Seconds() * 1e3, Ops: 1, More: map[string]float64{"records": float64(kept)}}, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func init() {
	const (
		safe = "crash-safe slabs"
		heap = "heap slabs"
		each = "write(2) per record"
	)
	h.Register(h.Row{
		Name: "crash/write-1g", What: "records of 200 B, tmpfs, 1 goroutine, discard, drain timed",
		Target: "≤ 15 ns more than heap slabs", Reference: heap,
		Contenders: []h.Contender{
			crashTo(safe, h.Ours, "SIGKILL loses nothing", 200, false),
			writerTo(heap, h.Reference, "SIGKILL loses what is pending", 200, newSlabs(64<<10, 8)),
		},
		Verdict: h.Difference(safe, heap, 15),
	})
	for _, g := range []struct {
		goroutines int
		factor     float64
		text       string
	}{{1, 1.0 / 8, "≥ 8 × faster than one write(2) per record"}, {10, 1.0 / 2, "≥ 2 × faster than one write(2) per record"}} {
		h.Register(h.Row{
			Name: fmt.Sprintf("crash/file-%dg", g.goroutines), What: fmt.Sprintf("records of 200 B, slabs on tmpfs, %d goroutines, file", g.goroutines),
			Target: g.text, Reference: each, Goroutines: g.goroutines, MaxOps: fileOps,
			Contenders: []h.Contender{
				crashTo(safe, h.Ours, "", 200, true),
				rivals.RecordsToFile(each, h.Reference, "the only other way to the same promise", 200,
					rivals.Over(func(w io.Writer) rivals.Writer { return onePerWrite{w} })),
			},
			Verdict: h.Versus(safe, each, g.factor),
		})
	}
	h.Register(h.Row{
		Name: "crash/recover-64MiB", What: "a full file of 64 MiB, records of 200 B, read and delivered to a destination that counts",
		Target: "< 200 ms", Unit: "ms", MaxCount: 5,
		Contenders: []h.Contender{{Name: "recover", Kind: h.Ours, Sample: recovery}},
		Verdict:    h.AtMost("recover", 200),
	})
}
