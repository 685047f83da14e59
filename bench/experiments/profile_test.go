package experiments

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/slab"
)

// BenchmarkProfile is what PROFILE.md is made of: 10 goroutines, a file.
//
//	GOWORK=off go -C bench test ./experiments -run '^$' -bench 'Profile/write' -benchtime 5s -cpuprofile cpu.out
func BenchmarkProfile(b *testing.B) {
	for name, one := range map[string]func(*deliver.Output) func(){
		"write": func(w *deliver.Output) func() {
			p := record()
			return func() { w.Write(p) }
		},
		"json": func(w *deliver.Output) func() {
			r, err := forebay.NewRouter(forebay.Route(encode.JSON(nil), forebay.Output(slog.LevelInfo, w)))
			if err != nil {
				b.Fatal(err)
			}
			l := r.Logger()
			return func() {
				l.Info("request served", slog.String("method", "GET"), slog.String("path", "/api/v1/items/1234567"),
					slog.Int("status", 200), slog.Int64("size", 12345), slog.Float64("load", 0.75))
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			w, err := deliver.NewOutput(deliver.ToWriter(f), &deliver.OutputOptions{Slab: slab.Options{WhenFull: slab.Block()}})
			if err != nil {
				b.Fatal(err)
			}
			call := one(w)
			b.ReportAllocs()
			b.SetParallelism(max(1, 10/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
			if err := w.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
