package rivals

import (
	"errors"
	"io"
	"os"

	"github.com/forebay-log/forebay/bench/harness"
)

// File returns a contender that writes to the new file f. If the contender opens the file by its
// name, it closes f.
type File[T any] func(f *os.File) (T, error)

// Over returns a File that passes the open file to mk.
func Over(mk func(io.Writer) Writer) File[Writer] {
	return func(f *os.File) (Writer, error) { return mk(f), nil }
}

// A Pipe is a pipeline that writes to a destination.
type Pipe struct {
	Run   Run
	Drain func() error // nil if there is nothing to flush
	Close func() error // called after Drain, not measured; may be nil
}

// Reserved returns a File that reserves n bytes of disk space before the measurement begins.
func Reserved[T any](n int64, open File[T]) File[T] {
	return func(f *os.File) (T, error) {
		if err := reserve(f, n); err != nil {
			var none T
			return none, err
		}
		return open(f)
	}
}

// RecordsToFile returns a contender that writes records of size bytes through a buffering writer to
// a new file.
func RecordsToFile(name string, kind harness.Kind, note string, size int, open File[Writer]) harness.Contender {
	return harness.Contender{Name: name, Kind: kind, Note: note, New: func(env *harness.Env) (*harness.Subject, error) {
		rec := Record(size)
		return toFile(env, func(f *os.File) (*harness.Subject, error) {
			w, err := open(f)
			if err != nil {
				return nil, err
			}
			return &harness.Subject{Run: Repeat(w, rec), Drain: w.Drain}, nil
		}, func(f *os.File) (harness.Tally, error) { return FileBySize(f, size) })
	}}
}

// PipeToFile returns a contender that logs through a pipeline to a new file. Its tally counts the
// lines of the file.
func PipeToFile(name string, kind harness.Kind, note string, faults func() []string, open File[Pipe]) harness.Contender {
	return harness.Contender{Name: name, Kind: kind, Note: note, Faults: faults, New: func(env *harness.Env) (*harness.Subject, error) {
		return toFile(env, func(f *os.File) (*harness.Subject, error) {
			p, err := open(f)
			return &harness.Subject{Run: p.Run, Drain: p.Drain, Close: p.Close}, err
		}, FileByLine)
	}}
}

// toFile creates a file and a subject that writes to it. It adds the tally and the removal of the
// file to the subject.
func toFile(env *harness.Env, open func(*os.File) (*harness.Subject, error), tally func(*os.File) (harness.Tally, error)) (*harness.Subject, error) {
	f, err := env.TempFile()
	if err != nil {
		return nil, err
	}
	name := f.Name()
	remove := func() error {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
		return os.Remove(name)
	}
	s, err := open(f)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	s.Tally = func() (harness.Tally, error) {
		r, err := os.Open(name)
		if err != nil {
			return harness.Tally{}, err
		}
		defer r.Close()
		return tally(r)
	}
	if end := s.Close; end != nil {
		s.Close = func() error { return errors.Join(end(), remove()) }
	} else {
		s.Close = remove
	}
	return s, nil
}

// Repeat returns a loop that writes p n times.
func Repeat(w io.Writer, p []byte) Run {
	return func(_, n int) {
		for range n {
			w.Write(p) // errors are ignored, because the tally detects lost records
		}
	}
}

// Record returns a line of n bytes.
func Record(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = 'x'
	}
	p[n-1] = '\n'
	return p
}
