//go:build unix

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// useEmptyDir makes a new directory the default directory of control sockets. Its path is short,
// because the length of a socket's path is limited.
func useEmptyDir(t *testing.T) (dir string) {
	t.Helper()
	top, err := os.MkdirTemp("", "fb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	t.Setenv("XDG_RUNTIME_DIR", top)
	return filepath.Join(top, "forebay")
}

func mustListen(t *testing.T, path, name string) net.Listener {
	t.Helper()
	ln, err := Listen(path, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// leaveSocket creates a socket without a listener, as a killed process leaves it.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// findIn calls Find and ignores sockets outside dir, because other programs may run on the machine.
func findIn(t *testing.T, dir string) (states []*State, failed []string) {
	t.Helper()
	found, errs := Find(t.Context())
	for _, r := range found {
		if filepath.Dir(r.Path) == dir {
			states = append(states, r.State)
		}
	}
	for _, err := range errs {
		if strings.Contains(err.Error(), dir) {
			failed = append(failed, err.Error())
		}
	}
	return states, failed
}

func TestFindReturnsStateOfListener(t *testing.T) {
	dir := useEmptyDir(t)
	ln := mustListen(t, "", "a name/../ü\x1b")
	path := ln.Addr().String()
	if want := filepath.Join(dir, fmt.Sprintf("a_name_..___-%d.sock", os.Getpid())); path != want {
		t.Errorf("%s, want %s", path, want)
	}
	for name, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, path: fs.ModeSocket | 0o600} {
		if st, err := os.Lstat(name); err != nil || st.Mode() != want {
			t.Errorf("%v, mode %v, want %v", err, st.Mode(), want)
		}
	}
	at := time.Unix(1e9, 0).UTC()
	srv := Serve(ln, func() State { return State{Name: "shop", PID: 7, Now: at} }, http.NotFoundHandler())
	defer srv.Close()

	dead := filepath.Join(dir, "x-1.sock")
	leaveSocket(t, dead)
	other := filepath.Join(dir, "other.sock")
	odd, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	go func() {
		for c, err := odd.Accept(); err == nil; c, err = odd.Accept() {
			io.WriteString(c, "220 mail.example ESMTP\r\n")
			c.Close()
		}
	}()
	states, failed := findIn(t, dir)
	if len(states) != 1 || states[0].Name != "shop" || states[0].PID != 7 || !states[0].Now.Equal(at) {
		t.Errorf("found %+v", states)
	}
	if len(failed) != 1 || !strings.HasPrefix(failed[0], other+": ") {
		t.Errorf("failed %q", failed)
	}
	if exists(dead) {
		t.Error("the socket of a dead process is still there")
	}
	srv.Close()
	if exists(path) {
		t.Error("it is still there after Close")
	}
	if _, err := Get(t.Context(), path); !Ended(err) {
		t.Errorf("after Close: %v", err)
	}
}

// Listen does not use a directory that other users can write to, or that is a symbolic link.
func TestListenRejectsUnsafeDirectory(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"link": func(dir string) error {
			elsewhere := dir + "2"
			return errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(elsewhere, dir))
		},
		"mode": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) },
		"file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"user": func(dir string) error {
			if os.Geteuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := useEmptyDir(t)
			if err := spoil(dir); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("only root can give a directory to another user")
			} else if err != nil {
				t.Fatal(err)
			}
			ln, err := Listen("", "x")
			if err != nil {
				return // Listen has no other directory to use
			}
			defer ln.Close()
			if strings.HasPrefix(ln.Addr().String(), filepath.Dir(dir)) {
				t.Errorf("it listens on %s", ln.Addr())
			}
		})
	}
}

func TestListenReplacesOnlyDeadSockets(t *testing.T) {
	useEmptyDir(t)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	path := filepath.Join(dir, "s")
	leaveSocket(t, path)
	leaveSocket(t, filepath.Join(dir, ".s"))
	ln := mustListen(t, path, "")
	if st, err := os.Lstat(path); err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Fatal(err, st.Mode())
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		path:                                 "another process listens there",
		file:                                 "the file exists and is not a socket; name another path",
		dir:                                  "the file exists and is not a socket; name another path",
		dir + "/":                            "it is a directory; name a socket in it",
		filepath.Join(dir, "none", "s"):      "no such file or directory",
		"/tmp/" + strings.Repeat("long", 30): fmt.Sprintf("the name of a socket has at most %d bytes", maxPath-1),
	} {
		if ln, err := Listen(path, ""); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v, want %s", path, ln, err, want)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	// Close does not remove a newer socket at the same path.
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	leaveSocket(t, path)
	ln.Close()
	if !exists(path) {
		t.Error("Close has removed another socket")
	}
}

// Listen removes the sockets of dead processes, and leaves other files.
func TestListenRemovesDeadSockets(t *testing.T) {
	dir := useEmptyDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	dead := filepath.Join(dir, fmt.Sprintf("x-%d.sock", gone.Process.Pid))
	lives := filepath.Join(dir, fmt.Sprintf("y-%d.sock", os.Getpid()))
	leaveSocket(t, dead)
	leaveSocket(t, lives)
	mustListen(t, "", "z")
	if exists(dead) || !exists(lives) {
		t.Errorf("dead %v, lives %v", exists(dead), exists(lives))
	}
}

// Clients that neither send nor read can occupy at most maxConns connections.
func TestSilentClientsAreLimited(t *testing.T) {
	useEmptyDir(t)
	ln := mustListen(t, "", "x")
	srv := Serve(ln, func() State { return State{PID: 1, Now: time.Unix(1, 0)} }, http.NotFoundHandler())
	defer srv.Close()
	var conns []net.Conn
	for range maxConns {
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	c, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /state HTTP/1.1\r\nHost: x\r\n\r\n") // may fail, because the server may have closed the connection
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("one too many gets an answer: %d bytes", n)
	}
	conns[0].Close()
	for ctx := t.Context(); ; {
		if _, err := Get(ctx, ln.Addr().String()); err == nil {
			break // the server has noticed that a connection was closed
		}
	}
}

func TestAnswersAreSpaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var limiter rateLimiter
		start := time.Now()
		for range 11 {
			if !limiter.wait(t.Context()) {
				t.Fatal("no turn")
			}
		}
		if took := time.Since(start); took != 10*pace {
			t.Errorf("11 turns take %v", took)
		}
		limiter.wait(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if limiter.wait(ctx) {
			t.Error("a turn for one who is gone")
		}
	})
}

// Get returns an error if the process does not answer in time. It reads only a limited part of an
// answer.
func TestGetLimitsTimeAndSize(t *testing.T) {
	useEmptyDir(t)
	for name, answer := range map[string]string{
		"long":     "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", maxState+10),
		"header":   "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n{}",
		"redirect": "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"status":   "HTTP/1.1 500 \x1b[2J\r\nContent-Length: 0\r\n\r\n",
		"nothing":  "",
	} {
		t.Run(name, func(t *testing.T) {
			ln := mustListen(t, filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), name), "")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
					io.WriteString(c, answer)
					c.Close()
				}
			}()
			s, err := Get(t.Context(), ln.Addr().String())
			if err == nil || Ended(err) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%+v, %v", s, err)
			}
			ln.Close()
			<-done
		})
	}
	ln := mustListen(t, filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "silent"), "")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := Get(ctx, ln.Addr().String()); err == nil || err.Error() != "it does not answer" {
		t.Error(err)
	}
}
