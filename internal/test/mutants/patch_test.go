package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// Every patch can be applied, has a unique number, and names a pattern that matches a test in its
// package. Only the command checks that the tests detect the patch.
func TestPatchesApply(t *testing.T) {
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]string{}
	for _, m := range all {
		number, _, _ := strings.Cut(m.name, "-")
		if other := numbers[number]; other != "" {
			t.Errorf("%s and %s have the same number", other, m.name)
		}
		numbers[number] = m.name
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for i := range m.tests {
			for _, run := range m.tests[i].tests() {
				if pkg := m.tests[i].pkg; !exists(t, pkg, run) {
					t.Errorf("%s: %s has no test %s", m.name, pkg, run)
				}
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// exists reports whether a test of the package matches the pattern.
func exists(t *testing.T, pkg, run string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(run, "/")
	pattern := regexp.MustCompile(first)
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testFunc.FindAllSubmatch(src, -1) {
			if pattern.Match(name[1]) {
				return true
			}
		}
	}
	return false
}
