package rivals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/forebay-log/forebay/bench/harness"
)

// An Open returns a Writer to the new file f. If the Writer opens the file by its name, Open closes f.
type Open func(f *os.File) (Writer, error)

// Over returns an Open that passes the open file to mk.
func Over(mk func(io.Writer) Writer) Open {
	return func(f *os.File) (Writer, error) { return mk(f), nil }
}

// Reserved returns an Open that reserves n bytes of disk space before the measurement begins. The
// size of the file remains 0. It needs the command fallocate of Linux.
func Reserved(n int64, open Open) Open {
	return func(f *os.File) (Writer, error) {
		if out, err := exec.Command("fallocate", "--keep-size", "--length", fmt.Sprint(n), f.Name()).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot reserve %d bytes: %w: %s", n, err, out)
		}
		return open(f)
	}
}

// RecordsToFile returns a contender that writes records of size bytes through a buffering writer to
// a new file.
func RecordsToFile(name string, kind harness.Kind, note string, size int, open Open) harness.Contender {
	return ToFile(name, kind, note, func(f *os.File) (*harness.Subject, error) {
		w, err := open(f)
		if err != nil {
			return nil, err
		}
		return &harness.Subject{Run: Repeat(w, Record(size)), Drain: w.Drain}, nil
	})
}

// ToFile returns a contender whose subject writes lines to a new file. It adds the tally and the removal
// of the file to the subject that open returns. open may close the file.
func ToFile(name string, kind harness.Kind, note string, open func(*os.File) (*harness.Subject, error)) harness.Contender {
	return harness.Contender{Name: name, Kind: kind, Note: note, New: func(env *harness.Env) (*harness.Subject, error) {
		f, err := os.OpenFile(filepath.Join(env.Dir, "row.log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		s, err := open(f)
		if err != nil {
			return nil, err
		}
		s.Tally = func() (harness.Tally, error) { return Lines(f.Name()) }
		end := s.Close
		s.Close = func() (err error) {
			if end != nil {
				err = end()
			}
			f.Close() // open may have closed it already
			return errors.Join(err, os.Remove(f.Name()))
		}
		return s, nil
	}}
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
func Record(n int) []byte { return append(bytes.Repeat([]byte{'x'}, n-1), '\n') }
