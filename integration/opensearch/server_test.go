//go:build linux

package opensearch

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// name is the name of the directory for the jars in the user's cache. All checkouts share it.
const name = "opensearch-2.19.6"

// jars returns the class path of a node. If the jars are not available, it skips the test.
func jars(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("SKIPPED: no Java: ", err)
	}
	dir := os.Getenv("FOREBAY_OPENSEARCH_JARS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("SKIPPED: no directory for the jars of OpenSearch: ", err)
		}
		dir = filepath.Join(cache, "forebay", name)
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("FOREBAY_OPENSEARCH_BUILD") == "" {
			t.Skipf("SKIPPED: there is no %s; FOREBAY_OPENSEARCH_BUILD=1 downloads them with Maven", dir)
		}
		part := dir + ".part"
		cmd := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+part)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: the jars of OpenSearch cannot be downloaded: %v\n%.2000s", err, out)
		}
		if err := os.Rename(part, dir); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "*")
}

// A node is a process of OpenSearch. It can be killed and restarted with the same data.
type node struct {
	path, home string
	addr       string
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	mu         sync.Mutex
	log        bytes.Buffer
}

func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(p)
}

var shared *node

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.kill()
		os.RemoveAll(shared.home)
	}
	os.Exit(code)
}

// start returns the node that the tests share, and deletes its indexes. Tests must undo other
// changes.
func start(t testing.TB) *node {
	t.Helper()
	if n := shared; n != nil {
		n.do(t, http.MethodDelete, "/_data_stream/*", "", nil)
		n.do(t, http.MethodDelete, "/*", "", nil)
		return n
	}
	n := &node{path: jars(t)}
	var err error
	if n.home, err = os.MkdirTemp("", "forebay-opensearch"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(n.home, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = l.Addr().String()
	l.Close()
	shared = n
	n.up(t)
	return n
}

// up starts the process and waits until it answers.
func (n *node) up(t testing.TB) {
	t.Helper()
	_, port, _ := strings.Cut(n.addr, ":")
	n.cmd = exec.Command("java", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", n.path, "Server.java", n.home, port)
	n.cmd.Stdout, n.cmd.Stderr = n, n
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatalf("OpenSearch does not start: %v", err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if res, err := http.Get("http://" + n.addr + "/_cluster/health?wait_for_status=yellow&timeout=30s"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			n.mu.Lock()
			defer n.mu.Unlock()
			t.Fatalf("OpenSearch does not answer: %s", n.log.Bytes())
		}
	}
}

// kill kills the process with SIGKILL, as the OOM killer does.
func (n *node) kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// do sends a request. It decodes the answer into out, unless out is nil.
func (n *node) do(t testing.TB, method, path, body string, out any) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+n.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d, %v: %s", method, path, res.StatusCode, err, text)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// numbers returns how many documents of the index have each value of the field n.
func (n *node) numbers(t testing.TB, index string) map[int]int {
	t.Helper()
	n.do(t, http.MethodPost, "/"+index+"/_refresh", "", nil)
	var page struct {
		Hits struct {
			Total struct{ Value int }
			Hits  []struct {
				Source struct{ N int } `json:"_source"`
			}
		}
	}
	n.do(t, http.MethodPost, "/"+index+"/_search", `{"size":10000,"track_total_hits":true}`, &page)
	got := map[int]int{}
	for _, h := range page.Hits.Hits {
		got[h.Source.N]++
	}
	if page.Hits.Total.Value != len(page.Hits.Hits) {
		t.Errorf("%s has %d records, more than a search shows", index, page.Hits.Total.Value)
	}
	return got
}

// mustHave checks that an index contains each number from 0 to k-1 once, except the numbers in
// missing.
func (n *node) mustHave(t testing.TB, index string, k int, missing ...int) {
	t.Helper()
	got := n.numbers(t, index)
	for _, b := range missing {
		if got[b] > 0 {
			t.Errorf("%s contains the refused record %d", index, b)
		}
		got[b] = 1
	}
	lost, duplicates := 0, 0
	for i := range k {
		if got[i] == 0 {
			lost++
		} else if got[i] > 1 {
			duplicates++
		}
	}
	if lost+duplicates > 0 || len(got) != k {
		t.Errorf("%s: of %d records, %d are missing and %d duplicated; the index has %d different numbers", index, k, lost, duplicates, len(got))
	}
}
