//go:build unix

package program

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/run"
)

// The pages of --metrics, the notifications for the service manager and the JSON summary have the
// expected content.
func TestMetricsNotifyAndSummary(t *testing.T) {
	dir, err := os.MkdirTemp("", "ops") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	told := func(want string) {
		t.Helper()
		manager.SetReadDeadline(time.Now().Add(time.Minute))
		for buf := make([]byte, 100); ; {
			n, err := manager.Read(buf)
			if got := string(buf[:n]); err != nil || got == want {
				if err != nil {
					t.Fatalf("the manager is not told %s: %v", want, err)
				}
				return
			} else if got != "WATCHDOG=1" {
				t.Fatalf("the manager is told %q, want %s", got, want)
			}
		}
	}
	out := filepath.Join(dir, "out")
	p, stderr := startLogged(t, []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "s"), "WATCHDOG_USEC=20000"},
		"pipe", "--to", "file:"+out, "--metrics", "127.0.0.1:0", "--pprof", "--summary", "json", "--level", "info")
	told("READY=1")
	told("WATCHDOG=1")
	get := getter(t, stderr)
	p.write("level=info msg=a\nlevel=debug msg=b\nlevel=warn msg=c\n")
	await(t, out, "level=info msg=a\nlevel=warn msg=c\n")
	for until := time.Now().Add(time.Minute); !strings.Contains(get("/metrics", 200), "forebay_records_delivered_total{output=\"file:"+out+"\"} 2\n"); {
		if time.Now().After(until) {
			t.Fatal(get("/metrics", 200))
		}
	}
	page := get("/metrics", 200)
	for _, want := range []string{
		"forebay_read_records_total 3\n", "forebay_read_filtered_total 1\n", "forebay_read_bytes_total 52\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	doc, err := os.ReadFile("../../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	read := regexp.MustCompile(`forebay_read_\w+`)
	if served, named := sortedNames(read, page), sortedNames(read, string(doc)); !slices.Equal(served, named) {
		t.Errorf("metrics of the input: the program serves %q, docs/OPERATING.md has %q", served, named)
	}
	for path, want := range map[string]string{"/health": `"status":"ok"`, "/-/healthy": "ok", "/-/ready": "ok", "/debug/pprof/": "goroutine"} {
		if got := get(path, 200); !strings.Contains(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	get("/nothing", 404)
	p.in.Close()
	told("STOPPING=1")
	if code, _ := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text, err := os.ReadFile(stderr)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var sum run.Summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil || len(lines) != 2 {
		t.Fatalf("%v: %q", err, text)
	}
	if sum.Records != 3 || sum.Filtered != 1 || sum.Bytes != 52 || sum.Exit != 0 || len(sum.Outputs) != 1 || sum.Outputs[0].Delivered != 2 || sum.Outputs[0].To != "file:"+out {
		t.Errorf("%+v", sum)
	}
}

// startLogged starts the program with env added to its environment. It returns the path of the file
// to which the program writes its messages.
func startLogged(t *testing.T, env []string, args ...string) (p *child, stderr string) {
	t.Helper()
	stderr = filepath.Join(t.TempDir(), "stderr")
	return startWith(t, func(_ *child, cmd *exec.Cmd) {
		f, err := os.Create(stderr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		cmd.Stderr, cmd.Env = f, append(cmd.Env, env...)
	}, args...), stderr
}

// getter waits until the address of the metrics is in the file stderr. It returns a function that
// requests a page from this address and checks the status.
func getter(t *testing.T, stderr string) (get func(path string, status int) string) {
	t.Helper()
	var where []byte
	for until := time.Now().Add(time.Minute); where == nil; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(stderr)
		if err != nil || time.Now().After(until) {
			t.Fatalf("no address of the metrics was printed: %q, %v", text, err)
		}
		if m := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)\n`).FindSubmatch(text); m != nil {
			where = m[1]
		}
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string, status int) string {
		t.Helper()
		resp, err := client.Get(string(where) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || status != 0 && resp.StatusCode != status {
			t.Errorf("%s: %s, %v: %s", path, resp.Status, err, body)
		}
		return string(body)
	}
}

// While the program stops, /-/healthy succeeds and /-/ready fails.
func TestNotReadyWhileStopping(t *testing.T) {
	p, stderr := startLogged(t, nil, "pipe", "--to", "unix:"+filepath.Join(t.TempDir(), "none"), "--metrics", "127.0.0.1:0", "--drain-timeout", "1h")
	get := getter(t, stderr)
	get("/-/ready", 200)
	p.write("one\n")
	until := time.Now().Add(time.Minute)
	for !regexp.MustCompile(`forebay_records_accepted_total\{.*\} 1\n`).MatchString(get("/metrics", 200)) {
		if time.Now().After(until) {
			t.Fatal("the line is not read")
		}
	}
	p.signal(syscall.SIGTERM) // the program cannot stop, because it has an undelivered record
	for !strings.Contains(get("/-/ready", 0), "stop") {
		if time.Now().After(until) {
			t.Fatal("it is ready")
		}
	}
	get("/-/ready", 503)
	get("/-/healthy", 200)
	p.signal(syscall.SIGINT) // a second SIGTERM would be ignored, because it follows soon after the first
	if code, _ := p.wait(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// sortedNames returns the distinct matches of re in text, sorted.
func sortedNames(re *regexp.Regexp, text string) []string {
	names := re.FindAllString(text, -1)
	slices.Sort(names)
	return slices.Compact(names)
}

// The message about a port that cannot be opened ends with a remedy.
func TestUnavailablePortHasRemedy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := ln.Addr().String()
	const used, away = "another program listens there: end it, or use another port$", "this machine does not have the address: use 127.0.0.1 or 0.0.0.0$"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pipe", "--metrics", at}, used},
		{[]string{"pipe", "--metrics", "192.0.2.1:9090"}, away},
		{[]string{"receive", "--loki=" + at}, used},
		{[]string{"receive", "--syslog=udp://192.0.2.1:5514"}, away},
	} {
		p := start(t, c.args...)
		p.in.Close()
		code, stderr := p.wait()
		if code != exit.ConfigCode {
			t.Errorf("%q: exit code %d", c.args, code)
		}
		wantMatch(t, stderr, `cannot listen.*; `+c.want)
	}
}
