package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// With the configuration of the DaemonSet, lines of pods arrive at Loki with the labels that
// README.md describes. Lines written before the program started also arrive.
func TestLabelsOfPods(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program once more")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "forebay.exe")
	if out, err := exec.Command("go", "build", "-o", bin, "../../forebay").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // end the test if no line arrives
	defer cancel()

	receive := exec.CommandContext(ctx, bin, "receive", "--loki=127.0.0.1:0", "--count", "1")
	var got strings.Builder
	receive.Stdout = &got
	stderr, err := receive.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := receive.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	lines.Scan()
	_, at, ok := strings.Cut(lines.Text(), "http://")
	if !ok {
		t.Fatalf("%q", lines.Text())
	}

	pods := filepath.Join(dir, "containers")
	if err := os.Mkdir(pods, 0o700); err != nil {
		t.Fatal(err)
	}
	name := "web-7f_shop_app-" + strings.Repeat("0a", 32) + ".log"
	line := time.Now().UTC().Format(time.RFC3339Nano) + " stderr F level=warn msg=before\n"
	if err := os.WriteFile(filepath.Join(pods, name), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	text := objects(t)["ConfigMap"].Data["forebay.yaml"]
	for from, to := range map[string]string{
		"0.0.0.0:9090": "127.0.0.1:0", "/var/log/containers": pods, "loki.monitoring:3100": at,
		"/var/lib/forebay": filepath.Join(dir, "state"), "/dev/shm/forebay": filepath.Join(dir, "shm"),
	} {
		if !strings.Contains(text, from) {
			t.Errorf("the configuration has no %s", from)
		}
		text = strings.ReplaceAll(text, from, filepath.ToSlash(to))
	}
	file := filepath.Join(dir, "forebay.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(ctx, bin, "run", "-c", file)
	run.Env = append(os.Environ(), "NODE_NAME=n1")
	var runStderr strings.Builder
	run.Stderr = &runStderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // ends when the command receive ends
	}
	err = receive.Wait()
	cancel()
	_ = run.Wait() // returns an error, because cancel kills the program
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, got.String(), runStderr.String())
	}

	var rec struct {
		Labels, Metadata map[string]string
		Body             string
	}
	if err := json.Unmarshal([]byte(got.String()), &rec); err != nil {
		t.Fatalf("%v\n%s", err, got.String())
	}
	want := map[string]string{"node": "n1", "namespace": "shop", "pod": "web-7f", "container": "app", "level": "warn"}
	if !maps.Equal(rec.Labels, want) || !maps.Equal(rec.Metadata, map[string]string{"stream": "stderr"}) || rec.Body != "level=warn msg=before" {
		t.Errorf("%s", got.String())
	}
}
