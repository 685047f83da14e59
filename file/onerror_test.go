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

// A stubborn handle is closed, and says that it is not: its file cannot be rotated.
type stubborn struct{ *os.File }

var errStubborn = errors.New("will not be closed")

func (s stubborn) Close() error {
	s.File.Close()
	return errStubborn
}

// mustOpenStubborn opens a file of which no rotation works.
func mustOpenStubborn(t *testing.T, path string, onError func(error)) *File {
	t.Helper()
	f, err := openWith(path, &Options{RotateBytes: 10, OnError: onError},
		system{open: func(name string, flag int, perm fs.FileMode) (handle, error) {
			h, err := os.OpenFile(name, flag, perm)
			return stubborn{h}, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// OnError runs apart from the call that found something to report: whatever it does,
// that call ends, and everything is in the file.
func TestOnErrorRunsApart(t *testing.T) {
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
				told := 0
				f = mustOpenStubborn(t, path, func(err error) {
					if !errors.Is(err, errStubborn) {
						t.Errorf("told %v", err)
					}
					told++
					on(f, release)
				})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					write(t, f, "the first line\n")
					write(t, f, "the second\n") // would rotate
				}()
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Fatal("OnError holds the call that reports")
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
				if told != 1 {
					t.Errorf("told %d times", told)
				}
				close(release)
			})
		})
	}
}

// What was reported is told before Close returns.
func TestCloseTellsErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := false
		f := mustOpenStubborn(t, filepath.Join(t.TempDir(), "x.log"), func(error) {
			time.Sleep(callback.Grace / 2)
			told = true
		})
		write(t, f, "the first line\n")
		write(t, f, "the second\n")
		f.Close()
		if !told {
			t.Error("Close did not wait for OnError")
		}
	})
}
