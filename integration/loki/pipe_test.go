package loki

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// forebay pipe delivers lines of each format to Loki with labels, metadata and tenant. A dry run
// sends nothing.
func TestPipe(t *testing.T) {
	s := start(t, [2]string{`auth_enabled: false`, "auth_enabled: true"})
	bin := filepath.Join(t.TempDir(), "forebay")
	build := exec.Command("go", "-C", "../../cmd", "build", "-o", bin, "./forebay")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now := time.Now().UTC()
	for format, in := range map[string]string{
		"json":   fmt.Sprintf(`{"time":%q,"level":"warn","msg":"hi","k":"v"}`, now.Format(time.RFC3339Nano)),
		"logfmt": fmt.Sprintf(`time=%s level=warn msg=hi k=v`, now.Format(time.RFC3339Nano)),
		"text":   "just a line",
	} {
		args := []string{"pipe", "--to", "loki:" + strings.TrimPrefix(s.url, "http:"), "--label", "app=pipe", "--label", "format=" + format,
			"--metadata", "k", "--tenant", "t1", "--format", format}
		for _, dry := range []bool{true, false} {
			if dry {
				args = append(args, "--dry-run")
			} else {
				args = args[:len(args)-1]
			}
			cmd := exec.Command(bin, args...)
			cmd.Stdin = strings.NewReader(in + "\n")
			out, err := cmd.CombinedOutput()
			if err != nil || dry != strings.Contains(string(out), "POST "+s.url) {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
		got := s.await("t1", fmt.Sprintf(`{app="pipe",format=%q}`, format), now.Add(-time.Minute), 1)
		if len(got) != 1 || got[0].line != in || format != "text" && (got[0].labels["k"] != "v" || got[0].labels["level"] != "warn" || !got[0].at.Equal(now)) {
			t.Errorf("%s: %+v", format, got)
		}
	}
}
