package forebay_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
)

// A countingWriter discards its input. It replaces io.Discard, which the code under test may treat
// specially.
type countingWriter struct{ n int }

func (s *countingWriter) Write(p []byte) (int, error) { s.n++; return len(p), nil }

func benchRouter(b *testing.B, w io.Writer) *forebay.Router {
	r, err := forebay.NewRouter(forebay.Route(encode.JSON(nil), forebay.Writer(w, forebay.Direct())))
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkLogger(b *testing.B) {
	l := benchRouter(b, &countingWriter{}).Logger()
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Info("a message of some words")
		}
	})
	b.Run("two", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Info("a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
		}
	})
	b.Run("off", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Debug("a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
		}
	})
}

func BenchmarkSlog(b *testing.B) {
	ctx := context.Background()
	for _, h := range []struct {
		name string
		h    slog.Handler
	}{{"forebay", benchRouter(b, &countingWriter{})}, {"std", slog.NewJSONHandler(&countingWriter{}, nil)}} {
		l := slog.New(h.h)
		b.Run("two/"+h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.LogAttrs(ctx, slog.LevelInfo, "a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
			}
		})
		b.Run("off/"+h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.LogAttrs(ctx, slog.LevelDebug, "a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
			}
		})
	}
}

func BenchmarkDirectFile(b *testing.B) {
	for _, procs := range []int{1, 10} {
		name := map[int]string{1: "1g", 10: "10g"}[procs]
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			l := benchRouter(b, f).Logger()
			b.ReportAllocs()
			b.SetParallelism(procs)
			if procs == 1 {
				for b.Loop() {
					l.Info("a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Info("a message of some words", slog.String("user", "gopher"), slog.Int("n", 42))
				}
			})
		})
	}
}

// BenchmarkScope measures only the encoding. BenchmarkHandle includes it.
func BenchmarkScope(b *testing.B) {
	s := encode.JSON(nil).Scope()
	rec := &encode.Record{Time: time.Now(), Message: "a message of some words"}
	var buf []byte
	for b.Loop() {
		buf, _, _ = s.Append(buf[:0], rec)
	}
}
