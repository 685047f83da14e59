package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/program"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// docs/CONFIG.md contains every key of Kafka and NATS, and its configurations for Kafka and NATS
// are valid.
func TestConfigPageContainsKeysOfModules(t *testing.T) {
	page, err := os.ReadFile("../../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []program.With{withKafka(), withNATS()} {
		var options []setting.Custom
		for _, d := range with.Destinations {
			options = slices.Concat(options, d.Options)
		}
		for _, in := range with.Inputs {
			options = slices.Concat(options, in.Options)
		}
		for _, o := range options {
			if !strings.Contains(string(page), "`"+o.Name+"`") {
				t.Errorf("docs/CONFIG.md does not have %s", o.Name)
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		if !strings.Contains(block, "kafka") {
			continue
		}
		found++
		dir := t.TempDir()
		file := filepath.Join(dir, "forebay.yaml")
		block = strings.ReplaceAll(block, "/var/", dir+"/") // this user may not write in /var
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "HOSTNAME=h", "FOREBAY_RUN=validate\n"+file)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("%v: %s\n%s", err, &out, block)
		}
	}
	if found < 2 {
		t.Errorf("only %d configurations found", found)
	}
}
