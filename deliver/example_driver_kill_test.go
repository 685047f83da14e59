//go:build linux || darwin

package deliver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

const (
	envDriverDir    = "FOREBAY_DRIVER_DIR"
	envDriverServer = "FOREBAY_DRIVER_SERVER"
	envDriverFirst  = "FOREBAY_DRIVER_FIRST"
)

// ackedOutput returns an Output for the driver of Example_driver with crash-safe memory and a spool
// in dir.
func ackedOutput(dir, server string) (*deliver.Output, error) {
	return deliver.NewOutput(acked{server}, &deliver.OutputOptions{
		CrashDir: filepath.Join(dir, "slabs"), SpoolDir: filepath.Join(dir, "spool"),
		Slab: slab.Options{SlabBytes: 4 << 10, SlabCount: 4, FlushInterval: time.Millisecond, WhenFull: slab.Spill()},
		Deliver: deliver.Options{
			Retry:   &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond},
			Breaker: &deliver.BreakerOptions{Failures: 2, OpenMin: time.Millisecond, OpenMax: 5 * time.Millisecond},
		},
		OnError: func(batch.Event) {},
	})
}

// writeNumbers writes numbered lines until the process is killed, and prints each number after
// its Write has returned.
func writeNumbers() error {
	for _, dir := range []string{"slabs", "spool"} {
		if err := os.MkdirAll(filepath.Join(os.Getenv(envDriverDir), dir), 0o700); err != nil {
			return err
		}
	}
	out, err := ackedOutput(os.Getenv(envDriverDir), os.Getenv(envDriverServer))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv(envDriverFirst))
	for ; err == nil; n++ {
		if _, err = fmt.Fprintln(out, n); err == nil {
			_, err = fmt.Println(n)
		}
	}
	return err
}

// numbers is a server that acknowledges lines while it is up and closes connections while it is down.
type numbers struct {
	net.Listener
	mu    sync.Mutex
	up    bool
	first []int // first copies, in the order of arrival
	known map[int]bool
}

func (s *numbers) serve() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		for in := bufio.NewScanner(conn); in.Scan() && s.store(in.Text()); {
			if _, err := conn.Write([]byte("+")); err != nil {
				break
			}
		}
		conn.Close()
	}
}

func (s *numbers) store(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(line)
	if err != nil || !s.up {
		return false
	}
	if !s.known[n] {
		s.known[n] = true
		s.first = append(s.first, n)
	}
	return true
}

func (s *numbers) set(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = up
}

// Processes that use the driver of Example_driver are killed while the server is down or up. Each
// line whose Write had returned arrives. Lines may arrive twice, but their first copies arrive in
// order.
func TestExampleDriverSurvivesKills(t *testing.T) {
	if os.Getenv(envDriverDir) != "" {
		t.Fatal(writeNumbers())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &numbers{Listener: l, known: map[int]bool{}}
	served := make(chan struct{})
	go func() { defer close(served); server.serve() }()
	defer func() { l.Close(); <-served }()

	dir, written := t.TempDir(), 0
	for process, up := range []bool{false, true, false, true} {
		server.set(up)
		cmd := exec.Command(os.Args[0], "-test.run=^TestExampleDriverSurvivesKills$")
		cmd.Env = append(os.Environ(), envDriverDir+"="+dir, envDriverServer+"="+l.Addr().String(), envDriverFirst+"="+strconv.Itoa(written+1))
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		until := written + 400*(process+1)
		for in := bufio.NewScanner(stdout); in.Scan(); { // reads to the end, because the process may have printed numbers before the kill
			n, err := strconv.Atoi(in.Text())
			if err != nil || n != written+1 {
				t.Errorf("process %d: %q after line %d", process, in.Text(), written)
				break
			}
			if written = n; n == until {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if !stuck.Stop() || written < until {
			t.Fatalf("process %d: ended at line %d, not killed at %d", process, written, until)
		}
	}

	server.set(true)
	out, err := ackedOutput(dir, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a, err := out.Shutdown(ctx)
	if err := errors.Join(err, a.Check()); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	for n := 1; n <= written; n++ {
		if !server.known[n] {
			t.Fatalf("line %d of %d is lost; %v", n, written, a.Account)
		}
	}
	for i, n := range server.first {
		if i > 0 && n < server.first[i-1] {
			t.Fatalf("line %d arrived first after line %d", n, server.first[i-1])
		}
	}
}
