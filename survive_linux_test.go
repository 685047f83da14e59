package forebay

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/deliver"
)

// A program that ends in one of the ways of docs/CRASH-SAFETY.md while a record lies in
// memory: that of the process, or crash-safe memory on a tmpfs or a disk. The next start
// delivers what survived, and nothing else.
func TestSurvives(t *testing.T) {
	if how := os.Getenv("FOREBAY_END"); how != "" {
		endAs(how)
		return
	}
	// Where memory is short the runtime does not always get to say so.
	for how, says := range map[string]string{
		"close": "kept", "panic": "panic: on purpose", "os.Exit": "", "throw": "fatal error: concurrent map",
		"stack": "stack overflow", "limit": "", "SIGTERM": "", "SIGKILL": "",
	} {
		for _, where := range []string{"heap", "tmpfs", "disk"} {
			t.Run(how+"/"+where, func(t *testing.T) {
				safe, kept := "", 1
				switch where {
				case "heap":
					kept = 0
				case "tmpfs":
					dir, err := os.MkdirTemp("/dev/shm", "forebay-test-*")
					if err != nil {
						t.Skipf("SKIPPED: no tmpfs: %v", err)
					}
					t.Cleanup(func() { os.RemoveAll(dir) })
					safe = dir
				case "disk":
					safe = t.TempDir()
				}
				cmd := exec.Command(os.Args[0], "-test.run=^TestSurvives$")
				cmd.Dir = t.TempDir()
				// What the race detector says of a throw must not come into the middle of it.
				cmd.Env = append(os.Environ(), "FOREBAY_END="+how, "FOREBAY_SAFE="+safe, "GORACE=log_path="+filepath.Join(cmd.Dir, "race"))
				var stderr strings.Builder
				cmd.Stderr = &stderr
				if err := cmd.Run(); err == nil || strings.Contains(stderr.String(), "child:") {
					t.Fatalf("the child ended with %v: %s", err, &stderr)
				}
				says := says
				if safe == "" && how == "close" {
					says = "shutdown"
				}
				if !strings.Contains(stderr.String(), says) {
					t.Errorf("standard error %.500q lacks %q", &stderr, says)
				}
				if _, err := os.Stat(filepath.Join(cmd.Dir, "logged")); err != nil {
					t.Fatalf("%v: %s", err, &stderr)
				}
				if b, err := os.ReadFile(filepath.Join(cmd.Dir, "app.log")); err != nil || len(b) > 0 {
					t.Fatalf("delivered before the end: %q, %v", b, err)
				}
				var got lines
				log, err := New(quiet(), survivor(&got, safe))
				if err != nil {
					t.Fatal(err)
				}
				log.Info("after")
				if err := log.Close(); err != nil {
					t.Error(err)
				}
				all := strings.Join(got.all(), "")
				if n := strings.Count(all, `"before"`); n != kept {
					t.Errorf("%d records survived, want %d: %q", n, kept, all)
				}
				if n := strings.Count(all, `"after"`); n != 1 {
					t.Errorf("%q", all)
				}
			})
		}
	}
}

// survivor is an output that delivers nothing before Close.
func survivor(w interface{ Write([]byte) (int, error) }, safe string) OutputSpec {
	opts := []OutputOption{Name("app"), Delivery(func(o *deliver.OutputOptions) { o.Slab.FlushInterval = -1 })}
	if safe != "" {
		opts = append(opts, CrashSafe(safe))
	}
	return Writer(w, opts...)
}

// endAs runs in a process of its own.
func endAs(how string) {
	die := func(err error) {
		if err != nil {
			os.Stderr.WriteString("child: " + err.Error() + "\n")
			os.Exit(9)
		}
	}
	f, err := os.Create("app.log")
	die(err)
	log, err := New(survivor(writerFunc(func(p []byte) (int, error) {
		if how == "close" {
			select {}
		}
		return f.Write(p)
	}), os.Getenv("FOREBAY_SAFE")))
	die(err)
	log.Info("before")
	die(os.WriteFile("logged", nil, 0o600))
	switch how {
	case "close":
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		rep, _ := log.Router().Close(ctx)
		if rep.Outputs[0].Report.Kept() == 1 {
			os.Stderr.WriteString("kept\n")
		} else {
			os.Stderr.WriteString(rep.Outputs[0].Report.Dropped.String())
		}
		os.Exit(1)
	case "panic":
		panic("on purpose")
	case "os.Exit":
		os.Exit(3)
	case "throw": // the runtime ends the process, and nothing can catch that
		runtime.GOMAXPROCS(8) // with one, they hardly ever meet
		m := map[int]int{}
		for range 8 {
			go func() {
				for i := 0; ; i++ {
					m[i%8] = i
				}
			}()
		}
	case "stack":
		debug.SetMaxStack(1 << 20)
		var f func(n int) int
		f = func(n int) int { return f(n+1) + n }
		f(0)
	case "limit": // the next memory that the runtime asks for is refused
		die(unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		for n := 8 << 20; ; n *= 2 {
			runtime.KeepAlive(make([]byte, n))
		}
	case "SIGTERM":
		signal.Reset(syscall.SIGTERM)
		die(unix.Kill(os.Getpid(), unix.SIGTERM))
	case "SIGKILL":
		die(unix.Kill(os.Getpid(), unix.SIGKILL))
	}
	select {}
}
