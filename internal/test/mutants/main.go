// Command mutants proves that the tests fail when a promise is broken. Each patch in this directory
// breaks one promise. For each patch the command runs each test that the patch names, alone, and
// expects a failure:
//
//	go run ./internal/test/mutants              all of them
//	go run ./internal/test/mutants 05 17 24     those with these numbers or names
//	go run ./internal/test/mutants -run spool   those with spool in the name
//
// The files of the repository are not changed: go test -overlay replaces the patched ones. It is an
// error if a patch cannot be applied, does not compile, or is not detected by one of its tests. A
// test that exceeds its time limit has not detected the patch, unless the patch expects a hang.
// docs/PROMISES.md lists the promises.
//
// To add one: change the code, run the tests that must fail, and write
// `git diff -U1` to NN-name.patch below the comment that [parse] describes.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const dir = "internal/test/mutants"

func main() {
	which := flag.String("run", "", "run the patches whose name matches this `pattern` only")
	parallel := flag.Int("p", min(runtime.NumCPU(), 4), "number of patches to run at a time")
	flag.Parse()
	root, err := filepath.Abs(".")
	if err == nil {
		err = runAll(root, *which, flag.Args(), *parallel)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// runAll runs the patches that choose selects, and prints a line for each.
func runAll(root, which string, names []string, parallel int) error {
	mutants, err := load(filepath.Join(root, dir))
	if err == nil {
		mutants, err = choose(mutants, which, names)
	}
	if err != nil {
		return err
	}
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		failed int
		places = make(chan struct{}, max(1, parallel))
		line   = func(name, s, by string) { fmt.Printf("%-36s  %7s  %s\n", name, s, by) }
	)
	line("mutant", "seconds", "killed by")
	began := time.Now()
	for _, m := range mutants {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			start := time.Now()
			by, err := m.try(root)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				by = "ERROR"
			}
			line(m.name, fmt.Sprintf("%.1f", time.Since(start).Seconds()), by)
			if err != nil {
				fmt.Printf("    breaks: %s\n    %s\n", m.breaks, strings.ReplaceAll(err.Error(), "\n", "\n    "))
			}
		})
	}
	group.Wait()
	fmt.Printf("%.0f s\n", time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d patches are not killed", failed)
	}
	return nil
}

// choose returns the patches whose names match which, a regular expression. If names is not empty,
// a patch must also have one of these names or numbers.
func choose(mutants []*mutant, which string, names []string) ([]*mutant, error) {
	pattern, err := regexp.Compile(which)
	if err != nil {
		return nil, err
	}
	var chosen []*mutant
	used := map[string]bool{}
	for _, m := range mutants {
		number, _, _ := strings.Cut(m.name, "-")
		i := slices.IndexFunc(names, func(name string) bool { return name == m.name || name == number })
		if i >= 0 {
			used[names[i]] = true
		}
		if (i >= 0 || len(names) == 0) && pattern.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("there is no patch %s", name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no patch matches %s", which)
	}
	return chosen, nil
}

// load reads all patches, in the order of their names.
func load(dir string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no patches in %s; run it at the root of the repository", dir)
	}
	var all []*mutant
	for _, p := range paths {
		m, perr := parse(p)
		err = errors.Join(err, perr)
		all = append(all, m)
	}
	return all, err
}

// try runs the tests with the patch, and returns the names of the tests that failed.
func (m *mutant) try(root string) (by string, err error) {
	tmp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	overlay, err := m.overlay(root, tmp)
	if err != nil {
		return "", err
	}
	var failed []string
	for i := range m.tests {
		t := &m.tests[i]
		names, err := t.try(root, overlay, filepath.Join(tmp, "x.test"))
		if err != nil {
			return "", err
		}
		failed = append(failed, names...)
	}
	return strings.Join(failed, ", "), nil
}

// try builds the test binary at the path bin, and runs each test until it fails. It returns the
// names of the failed tests.
func (t *target) try(root, overlay, bin string) (failed []string, err error) {
	pkg := filepath.Join(root, t.pkg)
	// Tests that build a program must build the patched one, so the overlay is in GOFLAGS. Nested
	// modules are not in go.work.
	env := append(slices.DeleteFunc(os.Environ(), setsCases), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	args := []string{"test", "-c", "-ldflags", "-s -w", "-o", bin, "-tags", t.tags}
	if t.race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	build.Dir, build.Env = pkg, env
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s does not compile: %w\n%s", t.pkg, err, out)
	}
	for _, run := range t.tests() {
		var by string
		var out []byte
		for n := 0; by == ""; n++ {
			if n == t.tries {
				return nil, fmt.Errorf("%s of %s did not notice it. The end of the last run:\n%s", run, t.pkg, tail(out))
			}
			if by, out, err = t.runOnce(pkg, bin, run, env); err != nil {
				return nil, err
			}
		}
		failed = append(failed, by)
	}
	return failed, nil
}

// runOnce runs the tests that match the pattern run. The result by is the name of a failed test, or
// "" if all pass.
func (t *target) runOnce(pkg, bin, run string, env []string) (by string, out []byte, err error) {
	tests := exec.Command(bin, "-test.v", "-test.failfast", "-test.timeout="+cmp.Or(t.limit, "3m"), "-test.run", run)
	tests.Dir, tests.Env = pkg, env
	out, err = tests.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		return "", out, fmt.Errorf("%s has no test %s", t.pkg, run)
	case err == nil:
		return "", out, nil
	case !errors.As(err, &exit):
		return "", out, err
	case t.shows != nil && !t.shows.Match(out):
		return "", out, fmt.Errorf("the tests failed for another reason than %q:\n%s", t.shows, tail(out))
	case t.shows == nil && bytes.Contains(out, []byte("panic: test timed out after ")):
		return "", out, fmt.Errorf("%s of %s exceeds the time limit; if that is how it detects the patch, add \"# shows: test timed out\":\n%s", failedTest(out), t.pkg, tail(out))
	}
	return failedTest(out), out, nil
}

// setsCases reports whether the environment variable selects random cases or their number. With a
// fixed seed, every try would run the same cases.
func setsCases(env string) bool {
	name, _, _ := strings.Cut(env, "=")
	return name == "FOREBAY_SEED" || name == "FOREBAY_SEEDS" || name == "FOREBAY_TORTURE"
}

var (
	failLine = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	runLine  = regexp.MustCompile(`(?m)^=== (?:RUN|CONT|NAME) +(\S+)`)
)

// failedTest returns the name of the innermost test that failed.
func failedTest(out []byte) string {
	var name string
	for _, f := range failLine.FindAllSubmatch(out, -1) {
		if s := string(f[1]); strings.HasPrefix(s, name) { // subtests follow their parent test
			name = s
		}
	}
	if name != "" {
		return name
	}
	runs := runLine.FindAllSubmatch(out, -1) // no test has a result, because the process ended with a panic, a fault or a timeout
	if len(runs) == 0 {
		return "the end of the process"
	}
	return string(runs[len(runs)-1][1]) + " (ended)"
}

// tail returns the last lines of out.
func tail(out []byte) []byte {
	const most = 2000
	return out[max(0, len(out)-most):]
}

// overlay writes the patched files to dir, and returns the name of the file for go test -overlay.
func (m *mutant) overlay(root, dir string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for name, text := range files {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		o.Replace[filepath.Join(root, name)] = changed
	}
	b, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
