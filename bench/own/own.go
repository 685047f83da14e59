// Package own contains the contenders of forebay.
package own

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/vectors"
	"github.com/forebay-log/forebay/slab"
)

// router returns a Router with one JSON output to w. It panics on an error; the harness reports the
// panic.
func router(w io.Writer, level slog.Level) *forebay.Router {
	r, err := forebay.NewRouter(forebay.Route(encode.JSON(nil), forebay.Writer(w, forebay.Direct(), forebay.Level(level))))
	if err != nil {
		panic(err)
	}
	return r
}

// Native logs the records of s through a forebay.Logger with a direct output to w.
func Native(w io.Writer, s rivals.Scenario) rivals.Run {
	return logger(router(w, s.Level()).Logger(), s)
}

// Handler returns forebay's slog handler with a direct output to w.
func Handler(w io.Writer) slog.Handler { return router(w, slog.LevelInfo) }

// Buffered logs the records of s through a forebay.Logger that writes to dst through slabs.
func Buffered(dst io.Writer, s rivals.Scenario) *harness.Subject {
	w := NewSlab(dst, &slab.Options{})
	return &harness.Subject{Run: Native(w.Output, s), Drain: w.Drain}
}

// LogToFile logs the records of s through forebay.New with forebay.File, which opens the file by its
// name. If viaSlog is true, it logs through a slog.Logger. Its Drain calls Flush instead of Close,
// because Close syncs the file, which no competitor does.
func LogToFile(s rivals.Scenario, viaSlog bool) func(*os.File) (*harness.Subject, error) {
	return func(f *os.File) (*harness.Subject, error) {
		f.Close() // forebay.File reserves space only if no one else has the file open
		log, err := forebay.New(forebay.File(f.Name()))
		if err != nil {
			return nil, err
		}
		run := logger(log, s)
		if viaSlog {
			run = rivals.ViaSlog(log.Slog().Handler(), s)
		}
		drain := func() error { return log.Router().Flush(context.Background()) }
		return &harness.Subject{Run: run, Drain: drain, Close: log.Close}, nil
	}
}

// ToFile returns an Open that reopens the given file by its name as a file.File, and writes to it
// through slabs.
func ToFile(o *slab.Options) rivals.Open {
	return func(f *os.File) (rivals.Writer, error) {
		f.Close()
		dst, err := file.Open(f.Name(), nil)
		if err != nil {
			return nil, err
		}
		return newSlab(deliver.ToWriteCloser(unsynced{dst}), o)
	}
}

// NoSync returns w without its method Sync, which an Output would call when it closes. No
// competitor syncs.
func NoSync(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && vectors.Have {
		return bare{f}
	}
	return w
}

// A bare is an *os.File without the method Sync.
type bare struct{ f *os.File }

func (b bare) Write(p []byte) (int, error)         { return b.f.Write(p) }
func (b bare) Writev(bufs [][]byte) (int64, error) { return vectors.Write(b.f, bufs) }

// An unsynced is a file.File without the method Sync.
type unsynced struct{ f *file.File }

func (u unsynced) Write(p []byte) (int, error)         { return u.f.Write(p) }
func (u unsynced) Writev(bufs [][]byte) (int64, error) { return u.f.Writev(bufs) }
func (u unsynced) Close() error                        { return u.f.Close() }

// A Slab is a deliver.Output that writes to an io.Writer. It has the methods of rivals.Writer.
type Slab struct{ *deliver.Output }

// NewSlab returns a Slab that writes to dst. It panics on an error; the harness reports the panic.
func NewSlab(dst io.Writer, o *slab.Options) Slab {
	w, err := newSlab(deliver.ToWriter(NoSync(dst)), o)
	if err != nil {
		panic(err)
	}
	return w
}

func newSlab(dst deliver.Destination, o *slab.Options) (Slab, error) {
	w, err := deliver.NewOutput(dst, &deliver.OutputOptions{Slab: *o})
	return Slab{w}, err
}

// Drain closes the writer, and returns an error if records were not delivered.
func (w Slab) Drain() error {
	rep, err := w.Shutdown(context.Background())
	if err == nil && rep.Undelivered() > 0 {
		err = fmt.Errorf("%s", rep.Account)
	}
	return err
}

// logger logs the records of s with attributes of slog. Slices and objects are passed by pointer.
func logger(l *forebay.Logger, s rivals.Scenario) rivals.Run {
	if s == rivals.ContextTen {
		l = l.With(
			slog.String("host", rivals.Host), slog.String("region", rivals.Region),
			slog.String("trace", rivals.Trace), slog.String("path", rivals.Path),
			slog.Int("port", rivals.Port), slog.Int("attempt", rivals.Attempt), slog.Int64("size", rivals.Size),
			slog.Float64("load", rivals.Load), slog.Bool("cached", rivals.Cached), slog.Duration("elapsed", rivals.Elapsed))
	}
	msg, key, value := s.Strings()
	return func(_, n int) {
		for range n {
			switch s {
			case rivals.Two, rivals.Disabled:
				l.Info(rivals.Text, slog.String("method", rivals.Method), slog.Int("status", rivals.Status))
			case rivals.Six:
				l.Info(rivals.Text, slog.String("method", rivals.Method), slog.String("path", rivals.Path),
					slog.Int("status", rivals.Status), slog.Int64("size", rivals.Size),
					slog.Duration("elapsed", rivals.Elapsed), slog.Bool("cached", rivals.Cached))
			case rivals.TenMixed:
				l.Info(rivals.Text,
					slog.Int("status", rivals.Status), slog.Int64("size", rivals.Size), slog.Float64("load", rivals.Load),
					slog.Bool("cached", rivals.Cached), slog.String("path", rivals.Path), slog.Duration("elapsed", rivals.Elapsed),
					slog.Time("at", rivals.At), slog.Any("err", rivals.Err), slog.Any("ints", &rivals.Ints), slog.Any("user", rivals.Someone))
			case rivals.Plain1K, rivals.UTF81K, rivals.Stack1K, rivals.BadUTF8, rivals.BadKey, rivals.Controls:
				l.Info(msg, slog.String(key, value))
			case rivals.NaN:
				l.Info(rivals.Text, slog.Float64("load", rivals.Nan))
			default:
				l.Info(rivals.Text)
			}
		}
	}
}
