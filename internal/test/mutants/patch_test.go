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
			if target := &m.tests[i]; !target.exists(t) {
				t.Errorf("%s: %s has no test %s", m.name, target.pkg, target.run)
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// exists reports whether a test of the package matches the pattern.
func (g *target) exists(t *testing.T) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, g.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(g.run, "/")
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
