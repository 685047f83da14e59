package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/callback"
)

// A closeFailer is a file whose method Close closes it and returns errClose, so that every rotation
// fails.
type closeFailer struct{ *os.File }

var errClose = errors.New("Close fails")

func (s closeFailer) Close() error {
	s.File.Close()
	return errClose
}

// mustOpenUnrotatable opens a file whose rotations all fail.
func mustOpenUnrotatable(t *testing.T, path string, onError func(error)) *File {
	t.Helper()
	f, err := openWith(path, &Options{RotateBytes: 10, OnError: onError},
		system{open: func(name string, flag int, perm fs.FileMode) (handle, error) {
			h, err := os.OpenFile(name, flag, perm)
			return closeFailer{h}, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// OnError runs in a different goroutine from the Write that reports an error. That Write returns,
// with its records in the file, even if OnError calls the file, panics or blocks.
func TestWriteDoesNotWaitForOnError(t *testing.T) {
	for name, on := range map[string]func(f *File, release chan struct{}){
		"writes":  func(f *File, _ chan struct{}) { f.Write([]byte("from OnError\n")) },
		"syncs":   func(f *File, _ chan struct{}) { f.Sync() },
		"panics":  func(*File, chan struct{}) { panic("boom") },
		"goexits": func(*File, chan struct{}) { runtime.Goexit() },
		"hangs":   func(_ *File, release chan struct{}) { <-release },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x.log")
				release := make(chan struct{})
				var f *File
				reports := 0
				f = mustOpenUnrotatable(t, path, func(err error) {
					if !errors.Is(err, errClose) {
						t.Errorf("OnError got %v", err)
					}
					reports++
					on(f, release)
				})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					write(t, f, "the first line\n")
					write(t, f, "the second\n") // starts a rotation
				}()
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Fatal("Write waits for OnError")
				}
				want := "the first line\nthe second\n"
				if name == "writes" {
					want += "from OnError\n"
				}
				wantFile(t, path, want)
				start := time.Now()
				f.Close()
				if d := time.Since(start); d > callback.Grace {
					t.Errorf("Close took %v", d)
				}
				if reports != 1 {
					t.Errorf("OnError was called %d times", reports)
				}
				close(release)
			})
		})
	}
}

// Close waits until OnError has received all errors reported earlier.
func TestCloseWaitsForOnError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reported := false
		f := mustOpenUnrotatable(t, filepath.Join(t.TempDir(), "x.log"), func(error) {
			time.Sleep(callback.Grace / 2)
			reported = true
		})
		write(t, f, "the first line\n")
		write(t, f, "the second\n")
		f.Close()
		if !reported {
			t.Error("Close did not wait for OnError")
		}
	})
}
