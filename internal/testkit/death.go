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

// Deaths maps the ways in which a process can die without closing anything to the text each
// prints on standard error. If memory is short, the runtime may be unable to print it.
var Deaths = map[string]string{
	"os.Exit": "", "panic": "panic: on purpose", "throw": "fatal error: concurrent map", "stack": "stack overflow",
	"limit": "", "SIGTERM": "", "SIGKILL": "",
}

// Die ends the process in one of the ways in Deaths.
func Die(how string) {
	switch how {
	case "os.Exit":
		os.Exit(3)
	case "panic":
		panic("on purpose")
	case "throw": // the runtime ends the process; this cannot be recovered
		runtime.GOMAXPROCS(8) // with a single P the conflicting accesses rarely meet
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
	case "limit": // the runtime's next request for memory fails
		Must(unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		EatMemory()
	case "SIGTERM":
		signal.Reset(unix.SIGTERM)
		Must(unix.Kill(os.Getpid(), unix.SIGTERM))
	case "SIGKILL":
		Must(unix.Kill(os.Getpid(), unix.SIGKILL))
	default:
		Must(fmt.Errorf("nobody dies of %q", how))
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

// Must ends a child that cannot do its work. The parent detects that with Child.Failed.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, childFailed, err)
		os.Exit(9)
	}
}

const childFailed = "child:"

// A Child is a process of the test binary that is expected to die.
type Child struct {
	*exec.Cmd
	Said strings.Builder // standard error of the process
}

// NewChild returns a child that runs the tests matching run, with additional environment
// variables.
func NewChild(run string, env ...string) *Child {
	c := &Child{Cmd: exec.Command(os.Args[0], "-test.run="+run)}
	c.Env = append(os.Environ(), env...)
	c.Stderr = &c.Said
	return c
}

// RacesApart returns the environment for a child whose race detector reports to a file, so
// that the report does not interleave with the output of a throw.
func RacesApart(t *testing.T) string {
	t.Helper()
	return "GORACE=log_path=" + filepath.Join(t.TempDir(), "race")
}

// Failed reports whether the child could not do its work.
func (c *Child) Failed() bool { return strings.Contains(c.Said.String(), childFailed) }

// AwaitDeath waits until the started child has died. It fails the test if the child
// succeeded, could not do its work, or did not print the expected text.
func (c *Child) AwaitDeath(t *testing.T, says string) {
	t.Helper()
	if err := c.Wait(); err == nil || c.Failed() || !strings.Contains(c.Said.String(), says) {
		t.Fatalf("the child ended with %v, and said %.500q, want %q in it", err, &c.Said, says)
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
