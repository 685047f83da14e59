//go:build linux || darwin

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The keys of Deaths are the ways in which a process can end without closing its resources. The
// values are the texts that it then prints on standard error. If memory is short, the runtime may
// be unable to print the text.
var Deaths = map[string]string{
	"os.Exit": "", "panic": "panic: on purpose", "throw": "fatal error: concurrent map", "stack": "stack overflow",
	"limit": "", "SIGTERM": "", "SIGKILL": "",
}

// Die ends the process in the given way, a key of Deaths.
func Die(how string) {
	switch how {
	case "os.Exit":
		os.Exit(3)
	case "panic":
		panic("on purpose")
	case "throw": // the runtime ends the process, which cannot be recovered
		runtime.GOMAXPROCS(8) // the conflicting accesses must run in parallel
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
	case "limit": // the next memory request of the runtime fails
		Must(unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		EatMemory()
	case "SIGTERM":
		signal.Reset(unix.SIGTERM)
		Must(unix.Kill(os.Getpid(), unix.SIGTERM))
	case "SIGKILL":
		Must(unix.Kill(os.Getpid(), unix.SIGKILL))
	default:
		Must(fmt.Errorf("unknown way to end the process: %q", how))
	}
	select {}
}

// EatMemory allocates and touches memory until the process is killed.
func EatMemory() {
	for eaten := [][]byte{}; ; {
		p := make([]byte, 8<<20)
		for i := 0; i < len(p); i += 4096 {
			p[i] = 1
		}
		eaten = append(eaten, p)
		runtime.KeepAlive(eaten)
	}
}

// Must ends the process with a message if err is not nil. It is for child processes, whose parent
// detects the message with Child.Failed.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, childFailed, err)
		os.Exit(9)
	}
}

const childFailed = "child:"

// A Child is a process of the test binary that is expected to end like a crash.
type Child struct {
	*exec.Cmd
	Said strings.Builder // standard error of the process
}

// NewChild returns a Child that runs the tests matching the pattern run, with additional
// environment variables.
func NewChild(run string, env ...string) *Child {
	c := &Child{Cmd: exec.Command(os.Args[0], "-test.run="+run)}
	c.Env = append(os.Environ(), env...)
	c.Stderr = &c.Said
	return c
}

// RacesApart returns an environment variable for a Child. It makes the race detector write its
// reports to a file, separate from the output of the runtime.
func RacesApart(t *testing.T) string {
	t.Helper()
	return "GORACE=log_path=" + filepath.Join(t.TempDir(), "race")
}

// Failed reports whether the Child called Must with an error.
func (c *Child) Failed() bool { return strings.Contains(c.Said.String(), childFailed) }

// AwaitDeath waits until the started Child has ended. It fails the test if the Child exited
// successfully, called Must with an error, or did not print the expected text.
func (c *Child) AwaitDeath(t *testing.T, want string) {
	t.Helper()
	if err := c.Wait(); err == nil || c.Failed() || !strings.Contains(c.Said.String(), want) {
		t.Fatalf("the child ended with %v and wrote %.500q to standard error, want text with %q", err, &c.Said, want)
	}
}

// InMemory returns a new directory on a tmpfs, or an error if there is none.
func InMemory(t *testing.T) (dir string, err error) {
	t.Helper()
	dir, err = os.MkdirTemp("/dev/shm", "forebay-test-*")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	return dir, err
}
