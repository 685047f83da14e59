// Command release checks that all modules of the repository can be tagged together. Each module must
// require the other modules of the repository in the version of the tag. It must not contain a replace
// directive, because the go command refuses to install a program from a module with one.
//
//	GOWORK=off go -C tools run ./release -tag v0.1.0          # check; exit status 1 lists every fault
//	GOWORK=off go -C tools run ./release -tag v0.1.0 -write   # change the go.mod files accordingly
//
// -write also adds the modules of the programs to go.work. goreleaser builds the programs in this
// workspace from the files of the commit, because no go.sum contains the checksum of the tag.
//
// A release consists of a commit made with -write, the tags that the command prints, and a second
// commit that restores the replace directives for development.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

const root = "github.com/forebay-log/forebay"

// released contains the directories of the modules that users install or import. Other modules,
// such as benchmarks, examples and tests, are used only in a clone of the repository.
var released = []string{".", "adapters/grpc", "adapters/zap", "adapters/zerolog", "cmd", "cmd/forebay-all", "compress", "jetstream", "kafka", "otlpgrpc"}

func main() {
	dir := flag.String("dir", "..", "root of the repository")
	tag := flag.String("tag", "", "version of the release, such as v0.1.0")
	write := flag.Bool("write", false, "change the go.mod files instead of checking them")
	flag.Parse()
	err := release(*dir, *tag, *write)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, m := range released {
		fmt.Println("git tag", strings.TrimPrefix(m+"/"+*tag, "./"))
	}
}

// release checks the go.mod files of the modules below dir or, if write is true, rewrites them. The
// error lists all faults.
func release(dir, tag string, write bool) error {
	if !semver.IsValid(tag) || semver.Canonical(tag) != tag {
		return fmt.Errorf("release: -tag %q is not a version such as v0.1.0", tag)
	}
	var faults []error
	for _, m := range released {
		path := filepath.Join(dir, filepath.FromSlash(m), "go.mod")
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		f, err := modfile.Parse(path, text, nil)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if want := strings.TrimSuffix(root+"/"+m, "/."); f.Module.Mod.Path != want {
			faults = append(faults, fmt.Errorf("%s: the module is %s, its directory demands %s", path, f.Module.Mod.Path, want))
		}
		for _, fault := range differences(f, tag) {
			faults = append(faults, fmt.Errorf("%s: %s", path, fault))
		}
		if !write {
			continue
		}
		faults = nil
		if err := rewrite(f, tag); err != nil {
			return fmt.Errorf("release: %s: %w", path, err)
		}
		if text, err = f.Format(); err != nil {
			return fmt.Errorf("release: %s: %w", path, err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	if write {
		return writeWork(filepath.Join(dir, "go.work"), tag)
	}
	return errors.Join(faults...)
}

// writeWork adds the modules of the programs to the workspace. Each module also needs a replace
// directive for the tag, because the go command would otherwise look for the tag on the network.
func writeWork(path, tag string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	f, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	for _, m := range released {
		if strings.HasPrefix(m, "adapters/") {
			continue
		}
		use, replacement := "./"+m, "./"+m
		if m == "." {
			use, replacement = ".", "./"
		}
		if err := errors.Join(f.AddUse(use, ""), f.AddReplace(strings.TrimSuffix(root+"/"+m, "/."), tag, replacement, "")); err != nil {
			return fmt.Errorf("release: %s: %w", path, err)
		}
	}
	f.Cleanup()
	if err := os.WriteFile(path, modfile.Format(f.Syntax), 0o644); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

func ours(path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// differences returns the reasons why the module with the file f cannot be released as tag.
func differences(f *modfile.File, tag string) (faults []string) {
	for _, r := range f.Require {
		if ours(r.Mod.Path) && r.Mod.Version != tag {
			faults = append(faults, fmt.Sprintf("%s is required at %s, not at %s", r.Mod.Path, r.Mod.Version, tag))
		}
	}
	for _, r := range f.Replace {
		faults = append(faults, fmt.Sprintf("%s is replaced", r.Old.Path))
	}
	return faults
}

// rewrite sets the required version of all modules of this repository to tag, and removes their
// replace directives.
func rewrite(f *modfile.File, tag string) error {
	for _, r := range slices.Clone(f.Require) {
		if ours(r.Mod.Path) {
			if err := f.AddRequire(r.Mod.Path, tag); err != nil {
				return err
			}
		}
	}
	var old []module.Version
	for _, r := range f.Replace {
		if ours(r.Old.Path) {
			old = append(old, r.Old)
		}
	}
	for _, v := range old {
		if err := f.DropReplace(v.Path, v.Version); err != nil {
			return err
		}
	}
	f.Cleanup()
	return nil
}
