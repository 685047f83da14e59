//go:build unix

package program

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// controlled starts the program with a control socket and returns the path of the socket. The
// returned function look queries the state of the program until a condition is met.
func controlled(t *testing.T, args ...string) (p *child, socket string, look func(until func(*control.State) bool) *control.State) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fb") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	p = start(t, append(args, "--control", socket)...)
	return p, socket, func(until func(*control.State) bool) *control.State {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			s, err := control.Get(t.Context(), socket)
			if err == nil && until(s) {
				return s
			}
			if err != nil && !control.Ended(err) || time.Now().After(deadline) {
				t.Fatalf("%v; the state is %+v", err, s)
			}
		}
	}
}

func TestControlSocketServesState(t *testing.T) {
	dir := t.TempDir()
	p, socket, look := controlled(t, "pipe", "--drain-timeout", "1s", "--name", "shop", "--level", "info", "--max-record", "30",
		"--to", "file:"+filepath.Join(dir, "out"), "--to", "tcp://127.0.0.1:1?spool="+dir)
	p.write("level=info msg=a\nlevel=debug msg=b\nlevel=info msg=" + strings.Repeat("x", 30) + "\n")
	s := look(func(s *control.State) bool {
		return s.Input.Records == 3 && s.Outputs[0].Delivered == 1 && s.Outputs[0].Bytes == 17 && s.Outputs[1].LastError != "" && s.Outputs[1].Attempts+s.Outputs[1].Retries > 0
	})
	if want := (control.Input{Records: 3, Bytes: 81, Filtered: 1, Oversize: 1}); s.Input != want {
		t.Errorf("input %+v, want %+v", s.Input, want)
	}
	if s.Name != "shop" || s.Verb != "pipe" || s.PID != p.cmd.Process.Pid || s.Ending || s.Start.After(s.Now) {
		t.Errorf("%+v", s)
	}
	file, tcp := s.Outputs[0], s.Outputs[1]
	if file.To != "file:"+filepath.Join(dir, "out") || file.Accepted != 2 || file.Dropped["oversize"] != 1 || len(file.Dropped) != 1 ||
		file.Slabs.Count != 16 || file.Slabs.Bytes != 64<<10 || file.Circuit != "closed" || file.Spool != nil || file.Bytes != 17 {
		t.Errorf("%+v", file)
	}
	if tcp.Spool == nil || tcp.Spool.MaxBytes == 0 || tcp.FailingSince.IsZero() {
		t.Errorf("%+v", tcp)
	}
	if tcp.Pending.Slab+tcp.Pending.Spill+tcp.Pending.Inflight != 1 || tcp.Oldest.Wait <= 0 {
		t.Errorf("%+v", tcp)
	}
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	for path, want := range map[string]string{"/metrics": "forebay_read_records_total 3\n", "/-/ready": "ok\n", "/debug/pprof/": "not found"} {
		resp, err := web.Get("http://forebay" + path)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, %q", path, err, body)
		}
		resp.Body.Close()
	}
	p.in.Close()
	if code, _ := p.wait(); code != 75 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is still there")
	}
}

// Clients of the control socket that do not send or read delay neither the delivery nor the end of
// the program.
func TestControlSilentPeers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	p, socket, look := controlled(t, "pipe", "--to", "file:"+path)
	look(func(*control.State) bool { return true })
	for i := range 40 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			io.WriteString(c, "GET /state HTTP/1.1\r\nHost: x\r\n\r\nGET /met") // c does not read the response
		}
	}
	p.write("one\n")
	await(t, path, "one\n")
	p.signal(syscall.SIGTERM)
	if code, _ := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Without --control, the control socket is in the default directory. The program removes sockets of
// dead processes there.
func TestDefaultControlSocketIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	sockets := func(p *child) string {
		return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "forebay", "gone-"+strconv.Itoa(p.cmd.Process.Pid)+".sock")
	}
	p := start(t, "pipe", "--name", "gone", "--to", "file:"+path)
	p.write("one\n")
	await(t, path, "one\n")
	if _, err := control.Get(t.Context(), sockets(p)); err != nil {
		t.Error(err)
	}
	p.cmd.Process.Kill()
	p.wait()
	if _, err := os.Lstat(sockets(p)); err != nil {
		t.Fatal(err)
	}
	quiet := start(t, "pipe", "--control", "none", "--to", "file:"+path)
	quiet.write("two\n")
	await(t, path, "one\ntwo\n")
	if dir, err := os.ReadDir(filepath.Dir(sockets(p))); err != nil || strings.Contains(entryNames(dir), strconv.Itoa(quiet.cmd.Process.Pid)) {
		t.Errorf("%v, %v", dir, err)
	}
	quiet.in.Close()
	quiet.wait()
	next := start(t, "pipe", "--to", "file:"+path)
	next.write("three\n")
	await(t, path, "one\ntwo\nthree\n")
	if _, err := os.Lstat(sockets(p)); err == nil {
		t.Error("the socket of the process that was killed is still there")
	}
	next.in.Close()
	next.wait()
}

func entryNames(entries []os.DirEntry) string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
