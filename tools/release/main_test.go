package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const repository = "../.."

// copyModules copies the go.mod files of the released modules to a new directory.
func copyModules(t *testing.T) (dir string) {
	dir = t.TempDir()
	for _, m := range released {
		text, err := os.ReadFile(filepath.Join(repository, m, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, m), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, m, "go.mod"), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(repository, "go.work"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.work"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// After release with write, the modules can be released. A module that requires a different version
// is reported.
func TestModulesCanBeReleasedAfterWrite(t *testing.T) {
	dir := copyModules(t)
	err := release(dir, "v0.1.0", false)
	if err == nil || !strings.Contains(err.Error(), "cmd/go.mod: "+root+" is required at v0.0.0, not at v0.1.0") ||
		!strings.Contains(err.Error(), "cmd/go.mod: "+root+" is replaced") {
		t.Errorf("before: %v", err)
	}
	if err := release(dir, "v0.1.0", true); err != nil {
		t.Fatal(err)
	}
	if err := release(dir, "v0.1.0", false); err != nil {
		t.Errorf("after: %v", err)
	}
	// The workspace contains the modules of the programs, and a replace directive with the tag for
	// each of them.
	text, err := os.ReadFile(filepath.Join(dir, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(work.Use) != 7 || len(work.Replace) != 7 {
		t.Errorf("go.work: %s", text)
	}
	for _, r := range work.Replace {
		if want := path.Join(root, r.New.Path); r.Old.Path != want || r.Old.Version != "v0.1.0" {
			t.Errorf("go.work replaces %v by %s", r.Old, r.New.Path)
		}
	}
	if err := release(dir, "v0.2.0", false); err == nil {
		t.Error("the modules of v0.1.0 pass as v0.2.0")
	}
	for _, tag := range []string{"", "0.1.0", "v0.1", "latest"} {
		if err := release(dir, tag, false); err == nil {
			t.Errorf("-tag %q passes", tag)
		}
	}
}

// Every module of the repository that a released module requires is also released.
func TestReleasedIsComplete(t *testing.T) {
	for _, m := range released {
		path := filepath.Join(repository, m, "go.mod")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := modfile.Parse(path, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Require {
			if !ours(r.Mod.Path) {
				continue
			}
			dir := strings.TrimPrefix(strings.TrimPrefix(r.Mod.Path, root), "/")
			if !slices.Contains(released, dir) && dir != "" {
				t.Errorf("%s requires %s, which is not released", path, r.Mod.Path)
			}
		}
	}
}
