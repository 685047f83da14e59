//go:build linux || darwin

package testkit

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const envDeath = "FOREBAY_DEATH"

// Die ends the process in each of the ways in Deaths, with the expected text.
func TestEachDeathEndsTheProcess(t *testing.T) {
	if how := os.Getenv(envDeath); how != "" {
		defer func() { os.Stderr.WriteString("deferred") }()
		Die(how)
	}
	for how, says := range Deaths {
		t.Run(how, func(t *testing.T) {
			c := NewChild("^TestEachDeathEndsTheProcess$", envDeath+"="+how, RacesApart(t))
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			c.AwaitDeath(t, says)
			want := map[string]unix.Signal{"SIGTERM": unix.SIGTERM, "SIGKILL": unix.SIGKILL}[how]
			if ws := c.ProcessState.Sys().(syscall.WaitStatus); want != 0 && (!ws.Signaled() || ws.Signal() != want) {
				t.Errorf("it ended with %v", c.ProcessState)
			}
			if how != "panic" && strings.Contains(c.Said.String(), "deferred") {
				t.Errorf("it ran a deferred call: %s", &c.Said)
			}
		})
	}
	c := NewChild("^TestEachDeathEndsTheProcess$", envDeath+"=boredom")
	if err := c.Run(); err == nil || !c.Failed() {
		t.Errorf("a child that cannot die ended with %v: %s", err, &c.Said)
	}
}
