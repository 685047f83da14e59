//go:build unix

package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/bubble"
)

// fileEvents collects the error texts of events with Op "file".
type fileEvents struct {
	mu    sync.Mutex
	texts []string
}

func (e *fileEvents) note(v batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v.Op == "file" {
		e.texts = append(e.texts, v.Err.Error())
	}
}

func (e *fileEvents) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.texts...)
}

// If a log file in use is deleted or moved, alone or with its directory, a new file with the same
// name gets the records flushed afterwards. One event reports the loss. The directory is created
// again only with MakeDirs. Without MakeDirs, records wait in memory if the directory was
// deleted. If the directory was moved, they are written to the old file.
func TestFileIsGone(t *testing.T) {
	type state struct {
		t               *testing.T
		dir, path, away string
	}
	remove := func(s state) error { return os.Remove(s.path) }
	move := func(s state) error { return os.Rename(s.path, s.away) }
	removeDir := func(s state) error { return os.RemoveAll(s.dir) }
	moveDir := func(s state) error { return os.Rename(s.dir, s.away) }
	for _, tt := range []struct {
		name     string
		gone     func(state) error
		makeDirs bool
		noDir    bool // the directory is missing afterwards
		moved    bool // the records are in the moved file
		report   string
	}{
		{"deleted", remove, false, false, false, "was deleted"},
		{"moved", move, false, false, false, "was moved"},
		{"directory deleted, made again", removeDir, true, false, false, "was deleted"},
		{"directory moved, made again", moveDir, true, false, false, "was moved"},
		{"directory deleted", removeDir, false, true, false, "was deleted"},
		{"directory moved", moveDir, false, true, true, "the old file stays in use"},
	} {
		for _, rotates := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/rotates=%v", tt.name, rotates), func(t *testing.T) {
				base := t.TempDir()
				s := state{t, filepath.Join(base, "logs"), filepath.Join(base, "logs", "app.log"), filepath.Join(base, "away")}
				if err := os.Mkdir(s.dir, 0o700); err != nil {
					t.Fatal(err)
				}
				var events fileEvents
				opts := []forebay.OutputOption{forebay.OnError(events.note)}
				o := &file.Options{MakeDirs: tt.makeDirs, OnError: func(err error) { events.note(batch.Event{Op: "file", Err: err}) }}
				if rotates {
					o.RotateBytes = 4 << 10 // the file rotates between the last records
				}
				var output forebay.OutputSpec
				if tt.makeDirs {
					f, err := file.Open(s.path, o)
					if err != nil {
						t.Fatal(err)
					}
					output = forebay.To(deliver.ToWriteCloser(f), opts...)
				} else {
					if rotates {
						opts = append(opts, forebay.Rotate(o.RotateBytes, 0))
					}
					output = forebay.File(s.path, opts...)
				}
				l, err := forebay.New(output)
				if err != nil {
					t.Fatal(err)
				}
				log := func(n int) {
					t.Helper()
					l.Info(strings.Repeat("m", 400), slog.Int("n", n))
					if tt.noDir && !tt.moved {
						return
					}
					if err := l.Router().Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
				for n := range 5 {
					log(n)
				}
				if err := tt.gone(s); err != nil {
					t.Fatal(err)
				}
				for n := 5; n < 40; n++ {
					log(n)
				}
				if tt.noDir {
					if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
						t.Error("the directory was made again")
					}
					if err := os.Mkdir(s.dir, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				rep, err := l.Router().Close(t.Context())
				if err != nil || rep.Outputs[0].Delivered != 40 {
					t.Error(err, rep)
				}
				dirs := []string{s.dir}
				if tt.moved {
					dirs = append(dirs, s.away)
				}
				var text strings.Builder
				for _, dir := range dirs {
					names, _ := filepath.Glob(filepath.Join(dir, "app*.log"))
					for _, name := range names {
						b, err := os.ReadFile(name)
						if err != nil {
							t.Fatal(err)
						}
						text.Write(b)
					}
				}
				for n := 5; n < 40; n++ {
					if strings.Count(text.String(), fmt.Sprintf(`"n":%d}`, n)) != 1 {
						t.Errorf("record %d is not in the file: %s", n, text.String())
						break
					}
				}
				texts := events.all()
				reports := strings.Count(strings.Join(texts, "\n"), tt.report)
				if reports != 1 || len(texts) > 2 {
					t.Errorf("reported %d times: %q", reports, texts)
				}
				if rotates && !tt.noDir {
					if _, err := os.Stat(s.path + ".lock"); err != nil {
						t.Error("no lock:", err)
					}
				}
			})
		}
	}
}

// The file is compared with its path every second, even if no records are written.
func TestIdleFileIsGone(t *testing.T) {
	for name, gone := range map[string]func(path string) error{
		"was deleted": os.Remove,
		"was moved":   func(path string) error { return os.Rename(path, path+".1") },
	} {
		bubble.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "logs", "app.log")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			var events fileEvents
			l, err := forebay.New(forebay.File(path, forebay.OnError(events.note)))
			if err != nil {
				t.Fatal(err)
			}
			l.Info("m")
			if err := l.Router().Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= 2; n++ {
				if err := gone(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(1400 * time.Millisecond) // the path is checked each second, never at the end of a Sleep
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
				if texts := events.all(); len(texts) != n || !strings.Contains(texts[n-1], name) {
					t.Errorf("reported %q", texts)
				}
			}
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			texts := events.all()
			if len(texts) != 4 || !strings.Contains(texts[3], "its directory does not exist") {
				t.Errorf("reported %q", texts)
			}
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second / 2)
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error("the file is made again after Close:", err)
			}
		})
	}
}

// A named pipe without a reader cannot be opened: New returns an error instead of waiting.
func TestPipeWithoutReaderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		l, err := forebay.New(forebay.File(path))
		if err == nil {
			l.Close()
		}
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "named pipe without a reader") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("New waits for a reader")
	}

	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := forebay.New(forebay.File(path))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 100<<10) // more than the buffer of a pipe
	l.Info("first")
	l.Info(line)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	var got []byte
	buf := make([]byte, 64<<10)
	for !strings.Contains(string(got), line) {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if err := <-closed; err != nil || !strings.Contains(string(got), "first") {
		t.Error(err)
	}
}

// The files of dead letters and of a fallback are created again if they are deleted or moved.
func TestDeletedDeadLetterFileIsRecreated(t *testing.T) {
	dir := t.TempDir()
	for name, o := range map[string]*deliver.OutputOptions{
		"letters":  {DeadLetterFile: filepath.Join(dir, "letters")},
		"fallback": {FallbackFile: filepath.Join(dir, "fallback")},
	} {
		refuse := name == "letters"
		o.OnError = func(batch.Event) {}
		o.Deliver.Breaker = &deliver.BreakerOptions{Failures: 1}
		out, err := deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
			if refuse {
				return batch.Outcome{Refused: batch.All(), Refusal: errors.New("no")}
			}
			return batch.FailedOutcome(errors.New("down"))
		}), o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		for n, gone := range []func() error{
			func() error { return nil },
			func() error { return os.Remove(path) },
			func() error { return os.Rename(path, path+".1") },
		} {
			if err := gone(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(out, "record %d", n)
			line := fmt.Sprintf("record %d", n)
			for begun := time.Now(); ; time.Sleep(time.Millisecond) {
				if b, _ := os.ReadFile(path); strings.Contains(string(b), line) {
					break
				}
				if time.Since(begun) > 10*time.Second {
					t.Fatalf("%s: %s is not in the file", name, line)
				}
			}
		}
		if err := out.Close(); err != nil {
			t.Error(name, err)
		}
	}
}
