package program

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The four configurations at the beginning of docs/CONFIG.md are valid. With the last one, the
// program turns the example input on the page into the example output.
func TestExamplesOfConfigPageWork(t *testing.T) {
	page, err := os.ReadFile("../../../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	start, _, _ := strings.Cut(string(page), "\n## The form of the file\n")
	examples := yamlBlocks(start)
	if len(examples) != 4 {
		t.Fatalf("%d examples", len(examples))
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	forebay := func(stdin string, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.Command(exe, args...)
		cmd.Args[0], cmd.Dir, cmd.Stdin = "forebay", dir, strings.NewReader(stdin)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, &errs)
		}
		return out.String(), errs.String()
	}
	for _, example := range examples {
		if err := os.WriteFile(filepath.Join(dir, "forebay.yaml"), withoutVar(t, example), 0o600); err != nil {
			t.Fatal(err)
		}
		forebay("", "validate")
	}

	_, rest, _ := strings.Cut(start, examples[3])
	texts := strings.Split(rest, "```\n") // alternately text and a code block
	if len(texts) < 7 {
		t.Fatalf("no input and two outputs after the last example:\n%s", rest)
	}
	stdout, stderr := forebay(texts[2], "run")
	errors, err := os.ReadFile(filepath.Join(dir, "errors.log"))
	if err != nil {
		t.Fatal(err)
	}
	if stdout != texts[4] || string(errors) != texts[6] {
		t.Errorf("standard output:\n%s\nerrors.log:\n%s\nstandard error:\n%s", stdout, errors, stderr)
	}
}
