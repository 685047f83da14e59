package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// With text/template in use the linker keeps every method that has an exported name, because
// a template may call it: a tenth of the program, and of what it has resident. Cobra has it,
// and uses it for the templates that a program sets.
func TestNoTemplates(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	path := filepath.Join(t.TempDir(), "forebay")
	build := exec.Command("go", "build", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte("text/template.(*Template).Execute")) {
		t.Error("text/template is in use")
	}
}
