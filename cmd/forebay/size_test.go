package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The program does not contain the code that executes templates of package text/template. With it,
// the linker would keep every exported method, because a template may call any method. The program
// would be a tenth larger.
func TestProgramExecutesNoTemplates(t *testing.T) {
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
