package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	promiseTest = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)`")
	codeOfRow   = regexp.MustCompile("`[^`]+`")
	patchSet    = regexp.MustCompile(`(?m)^# (package|run): (.+)$`)
)

// Every test and patch in docs/PROMISES.md exists. The tier of a row is the cheapest command that
// runs its tests. Each patch has a row and runs each test of that row.
func TestPromisesNameWhatExists(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "PROMISES.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, funcs := mustCommands(t)
	byName := map[string]*testFunc{}
	for i := range funcs {
		byName[funcs[i].dir+"."+funcs[i].name] = &funcs[i]
	}
	seen := map[string]bool{}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 4 || cells[0] == " Promise" {
			continue
		}
		rows++
		named := promiseTest.FindAllStringSubmatch(cells[1], -1)
		if len(named) == 0 || len(named) != len(codeOfRow.FindAllString(cells[1], -1)) {
			t.Errorf("the second column must name tests: %s", line)
		}
		runs := func(dir, name string) bool { return true }
		if patch := strings.TrimSpace(cells[3]); patch != "-" {
			seen[patch] = true
			runs = targetsOf(t, filepath.Join(root, "internal", "test", "mutants", patch+".patch"))
		}
		for _, m := range named {
			dir := m[1]
			if dir == "forebay" {
				dir = "."
			}
			f := byName[dir+"."+m[2]]
			if f == nil {
				t.Errorf("there is no %s", m[0])
				continue
			}
			if is := tierOf(all, f); is.String() != cells[2] {
				t.Errorf("%s has the tier %q, not %q", m[0], is, cells[2])
			}
			if !runs(dir, m[2]) {
				t.Errorf("the patch does not run %s: %s", m[0], line)
			}
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were found", rows)
	}
	patches, err := filepath.Glob(filepath.Join(root, "internal", "test", "mutants", "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range patches {
		if name := strings.TrimSuffix(filepath.Base(p), ".patch"); !seen[name] {
			t.Errorf("docs/PROMISES.md has no row for %s", name)
		}
	}
}

// targetsOf returns a function that reports whether the patch runs the test with the given
// directory and name.
func targetsOf(t *testing.T, patch string) func(dir, name string) bool {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Error(err)
	}
	patterns := map[string][]*regexp.Regexp{}
	dir := ""
	for _, m := range patchSet.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "package" {
			dir = filepath.ToSlash(filepath.Clean(m[2]))
			continue
		}
		first, _, _ := strings.Cut(m[2], "/")
		patterns[dir] = append(patterns[dir], regexp.MustCompile(first))
	}
	return func(dir, name string) bool {
		return slices.ContainsFunc(patterns[dir], func(p *regexp.Regexp) bool { return p.MatchString(name) })
	}
}
