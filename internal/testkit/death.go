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

// Deaths are the ways in which a process can end itself so that nobody gets to close
// anything, each with what it says on its standard error. Where memory is short the
// runtime does not always get to say so.
var Deaths = map[string]string{
	"os.Exit": "", "panic": "panic: on purpose", "throw": "fatal error: concurrent map", "stack": "stack overflow",
	"limit": "", "SIGTERM": "", "SIGKILL": "",
}

// Die ends the process in one of Deaths.
func Die(how string) {
	switch how {
	case "os.Exit":
		os.Exit(3)
	case "panic":
		panic("on purpose")
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

// EatMemory takes memory, and touches all of it, until somebody ends the process.
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

// Must ends a child that cannot do its work: its parent sees that by Child.Failed.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, childFailed, err)
		os.Exit(9)
	}
}

const childFailed = "child:"

// A Child is a process of the test binary that is to die.
type Child struct {
	*exec.Cmd
	Said strings.Builder // on its standard error
}

// NewChild returns a child that runs the tests which match run, with more environment.
func NewChild(run string, env ...string) *Child {
	c := &Child{Cmd: exec.Command(os.Args[0], "-test.run="+run)}
	c.Env = append(os.Environ(), env...)
	c.Stderr = &c.Said
	return c
}

// RacesApart is the environment of a child whose race detector reports to a file: its
// report must not come into the middle of what a throw says.
func RacesApart(t *testing.T) string {
	t.Helper()
	return "GORACE=log_path=" + filepath.Join(t.TempDir(), "race")
}

// Failed reports whether the child could not do its work.
func (c *Child) Failed() bool { return strings.Contains(c.Said.String(), childFailed) }

// AwaitDeath waits until the child, which was started, has died, and fails the test if it
// ended well, could not do its work, or did not say what it should.
func (c *Child) AwaitDeath(t *testing.T, says string) {
	t.Helper()
	if err := c.Wait(); err == nil || c.Failed() || !strings.Contains(c.Said.String(), says) {
		t.Fatalf("the child ended with %v, and said %.500q, want %q in it", err, &c.Said, says)
	}
}

// InMemory returns a new directory on a tmpfs, or says why there is none.
func InMemory(t *testing.T) (dir string, err error) {
	t.Helper()
	dir, err = os.MkdirTemp("/dev/shm", "forebay-test-*")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	return dir, err
}
