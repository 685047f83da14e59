package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

// crashSlabs returns an Output with crash-safe slabs in a new directory, which is on tmpfs if the
// machine has one, and else in parent. remove deletes the directory.
func crashSlabs(parent string, dst io.Writer) (w own.Slab, remove func() error, err error) {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() && runtime.GOOS == "linux" {
		parent = "/dev/shm"
	}
	dir, err := os.MkdirTemp(parent, "forebay-bench-*")
	if err != nil {
		return w, nil, err
	}
	return own.NewSlab(dst, &slab.Options{WhenFull: slab.Block(), Crash: &slab.Crash{Dir: dir, Required: true}}),
		func() error { return os.RemoveAll(dir) }, nil
}

func init() {
	const (
		safe = "crash-safe slabs"
		heap = "heap slabs"
		each = "write(2) per record"
	)
	h.Register(h.Row{
		Name: "crash/write-1g", What: "records of 200 B, tmpfs, 1 goroutine, discard, drain timed",
		Reference: heap,
		Contenders: []h.Contender{
			{Name: safe, Kind: h.Ours, Note: "SIGKILL loses nothing", New: func(env *h.Env) (*h.Subject, error) {
				d := new(rivals.Discard)
				w, remove, err := crashSlabs(env.Dir, d)
				return &h.Subject{Run: rivals.Repeat(w, rivals.Record(200)), Drain: w.Drain, Close: remove,
					Tally: func() (h.Tally, error) { return d.BySize(200) }}, err
			}},
			writerTo(heap, h.Reference, "SIGKILL loses waiting records", 200, newSlabs),
		},
		Targets: []h.Target{h.Above(safe, heap, h.Time, 15)},
	}, h.Row{
		Name: "crash/file-1g", What: "records of 200 B, slabs on tmpfs, 1 goroutine, file",
		Reference: each, MaxOps: fileOps,
		Contenders: []h.Contender{
			rivals.ToFile(safe, h.Ours, "", func(f *os.File) (*h.Subject, error) {
				w, remove, err := crashSlabs(filepath.Dir(f.Name()), f)
				return &h.Subject{Run: rivals.Repeat(w, rivals.Record(200)), Drain: w.Drain, Close: remove}, err
			}),
			rivals.RecordsToFile(each, h.Reference, "the only other way to the same promise", 200,
				rivals.Over(func(w io.Writer) rivals.Writer { return rivals.Unbuffered{Writer: w} })),
		},
		Targets: []h.Target{h.Versus(safe, each, 1./8)},
	})
}
