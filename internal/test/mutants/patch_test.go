package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const root = "../../.."

// Every patch fits the code, and its pattern has a test in its package. Whether the tests
// notice it is found out by the command.
func TestPatchesApply(t *testing.T) {
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !m.hasTest(t) {
			t.Errorf("%s: %s has no test %s", m.name, m.pkg, m.run)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

func (m *mutant) hasTest(t *testing.T) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	top := regexp.MustCompile(m.run)
	if at := regexp.MustCompile(`/`).FindStringIndex(m.run); at != nil {
		top = regexp.MustCompile(m.run[:at[0]])
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testFunc.FindAllSubmatch(src, -1) {
			if top.Match(name[1]) {
				return true
			}
		}
	}
	return false
}
