package loki

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// client has a timeout, because Loki never answers some queries: their results are larger than the
// messages that Loki's components exchange.
var client = &http.Client{Timeout: 10 * time.Second}

// name is the file name of the binary in the user's cache. All checkouts share it.
const name = "loki-3.7.8"

// binary returns the path of a Loki binary. If there is none, it skips the test.
func binary(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("FOREBAY_LOKI"); p != "" {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("SKIPPED: no directory for the binary: ", err)
	}
	p := filepath.Join(cache, "forebay", name)
	if _, err := os.Stat(p); err == nil {
		return p
	}
	if os.Getenv("FOREBAY_LOKI_BUILD") == "" {
		t.Skipf("SKIPPED: there is no %s; FOREBAY_LOKI_BUILD=1 builds it (ten minutes of processor time)", p)
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", p, "github.com/grafana/loki/v3/cmd/loki")
	cmd.Dir = "server"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: Loki cannot be built here: %v\n%.2000s", err, out)
	}
	return p
}

// A server is a running Loki.
type server struct {
	t    *testing.T
	bin  string
	dir  string
	url  string
	cmd  *exec.Cmd
	logs *bytes.Buffer
}

// start starts a Loki. Each edit is a regular expression and the text that replaces its matches in
// the configuration. An edit with file:NAME writes the text to a file NAME instead.
func start(t *testing.T, edits ...[2]string) *server {
	t.Helper()
	s := &server{t: t, bin: binary(t), dir: t.TempDir()}
	conf, err := os.ReadFile("server/loki-local.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port, grpc := freePort(t), freePort(t)
	text := strings.NewReplacer("13100", strconv.Itoa(port), "19096", strconv.Itoa(grpc)).Replace(string(conf))
	for _, e := range edits {
		if name, ok := strings.CutPrefix(e[0], "file:"); ok {
			writeFile(t, filepath.Join(s.dir, name), e[1])
			continue
		}
		re := regexp.MustCompile(e[0])
		if !re.MatchString(text) {
			t.Fatalf("the configuration has no %s", e[0])
		}
		text = re.ReplaceAllString(text, e[1])
	}
	if err := os.WriteFile(filepath.Join(s.dir, "loki.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	s.up()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("log of Loki:\n%.4000s", s.logs)
		}
	})
	return s
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// up starts the process and waits until Loki is ready.
func (s *server) up() {
	s.t.Helper()
	s.logs = new(bytes.Buffer)
	s.cmd = exec.Command(s.bin, "-config.file=loki.yaml")
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = s.logs, s.logs
	if err := s.cmd.Start(); err != nil {
		s.t.Skipf("SKIPPED: Loki does not start: %v", err)
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get(s.url + "/ready")
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == 200 {
			return
		}
	}
	s.kill()
	s.t.Fatalf("Loki is not ready after a minute:\n%.4000s", s.logs)
}

// kill kills the process with SIGKILL, as the OOM killer does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// push sends body as a JSON push request, without the driver. It returns the status and the answer.
func (s *server) push(tenant, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest("POST", s.url+"/loki/api/v1/push", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if tenant != "" {
		req.Header.Set("X-Scope-OrgID", tenant)
	}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// A found is an entry that Loki has returned.
type found struct {
	labels map[string]string // labels and metadata
	at     time.Time
	line   string
}

// query returns the entries that match q, from the given time on, the oldest first.
func (s *server) query(tenant, q string, from time.Time) []found {
	s.t.Helper()
	var last string
	for range 60 {
		got, err := s.tryQuery(tenant, q, from)
		if err == nil {
			return got
		}
		last = err.Error()
		time.Sleep(250 * time.Millisecond)
	}
	s.t.Fatalf("query %s: %s", q, last)
	return nil
}

func (s *server) tryQuery(tenant, q string, from time.Time) ([]found, error) {
	v := url.Values{"query": {q}, "start": {strconv.FormatInt(from.UnixNano(), 10)}, "direction": {"forward"}, "limit": {"5000"},
		"end": {strconv.FormatInt(time.Now().Add(9*time.Minute).UnixNano(), 10)}}
	req, _ := http.NewRequest("GET", s.url+"/loki/api/v1/query_range?"+v.Encode(), nil)
	if tenant != "" {
		req.Header.Set("X-Scope-OrgID", tenant)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != 200 {
		return nil, fmt.Errorf("%d: %s", res.StatusCode, text)
	}
	var r struct {
		Data struct {
			Result []struct {
				Stream map[string]string
				Values [][2]string
			}
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	var out []found
	for _, st := range r.Data.Result {
		for _, v := range st.Values {
			ns, err := strconv.ParseInt(v[0], 10, 64)
			if err != nil {
				return nil, err
			}
			out = append(out, found{st.Stream, time.Unix(0, ns).UTC(), v[1]})
		}
	}
	return out, nil
}

// await queries repeatedly until n entries match, and checks that there are not more.
func (s *server) await(tenant, q string, from time.Time, n int) []found {
	s.t.Helper()
	var got []found
	for range 40 {
		if got = s.query(tenant, q, from); len(got) >= n {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	if len(got) != n {
		s.t.Errorf("%s: %d entries, want %d", q, len(got), n)
	}
	return got
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
