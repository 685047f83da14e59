//go:build unix

package program

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C ends it at once, in the middle of what would take minutes, with the
// figures up to then.
func TestSpikeInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		var said [2]interface {
			io.Reader
			io.Closer
		}
		p := startWith(t, func(p *process, cmd *exec.Cmd) {
			pipe := p.pipe()
			said[0], said[1] = pipe[0], pipe[1]
			cmd.Stderr = pipe[1]
		}, "spike", "--latency", "10ms", "--duration", "10m", "--stall", "4m", "--every", "5m", "--slabs", "8", "--compare", "sync")
		said[1].Close()
		notes := bufio.NewReader(said[0])
		for line := ""; !strings.HasPrefix(line, "driving sync"); {
			var err error
			if line, err = notes.ReadString('\n'); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		p.signal(sig)
		table, _ := io.ReadAll(p.out)
		rest, _ := io.ReadAll(notes)
		code, _ := p.wait()
		if code != exitRuntime || !strings.Contains(string(rest), "interrupted while driving sync") || !strings.Contains(string(table), "caller waits") {
			t.Errorf("%v: exit code %d, it said %q and printed %.200q", sig, code, rest, table)
		}
	}
}
