package arch

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The first run of the program in a new clone downloads only the modules that it compiles, not the
// modules of tests and tools. The test uses the local module cache as its proxy, so it downloads
// nothing from the network.
func TestFirstRunDownloadsWhatItCompiles(t *testing.T) {
	env, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxy := filepath.ToSlash(filepath.Join(strings.TrimSpace(string(env)), "cache", "download"))
	if _, err := os.Stat(proxy); err != nil {
		t.Skipf("SKIPPED: there is no module cache to download from: %v", err)
	}
	fresh := t.TempDir()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/forebay")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOWORK=", "GOMODCACHE="+fresh, "GOFLAGS=-modcacherw -mod=readonly",
		"GOPROXY=file://"+proxy, "GONOPROXY=", "GOSUMDB=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if strings.Contains(stderr.String(), "no such file") {
			t.Skipf("SKIPPED: the module cache is not complete:\n%s", &stderr)
		}
		t.Fatalf("%v\n%s", err, &stderr)
	}
	compiled := strings.Fields(string(out))
	slices.Sort(compiled)
	compiled = slices.Compact(compiled)

	var downloaded []string
	root := filepath.Join(fresh, "cache", "download")
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(path, ".zip"); ok {
			name, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			downloaded = append(downloaded, unescaped(strings.Replace(filepath.ToSlash(name), "/@v/", "@", 1)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(downloaded)
	if !slices.Equal(downloaded, compiled) {
		t.Errorf("downloaded %q\ncompiled   %q", downloaded, compiled)
	}
	if len(compiled) == 0 || len(compiled) > 12 {
		t.Errorf("the program compiles %d modules; more than twelve make the first run long", len(compiled))
	}
}

// unescaped returns a path of the module cache without its escapes: !x stands for X.
func unescaped(path string) string {
	parts := strings.Split(path, "!")
	for i, p := range parts[1:] {
		parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}
