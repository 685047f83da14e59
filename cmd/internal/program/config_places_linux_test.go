package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/testkit"
)

// wantFaults checks that each fault of a configuration begins with the text in want. A fault has
// the form LINE:COLUMN PATH: TEXT.
func wantFaults(t *testing.T, text string, want ...string) {
	t.Helper()
	_, faults := config.Parse([]byte(text), noVariables, os.Stdin)
	var got []string
	for _, f := range faults {
		got = append(got, strings.Replace(f.Error(), ": ", " ", 1))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\ngot\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
			return
		}
	}
}

// forebay validate reports all directories and files that cannot be created, and creates nothing.
func TestPathsAreCheckedBeforeRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	os.WriteFile("f", nil, 0o644)
	os.Symlink("nowhere", "link")
	os.MkdirAll("has", 0o755)
	os.WriteFile(filepath.Join("has", dest.SafeName("o")), nil, 0o644)
	wantFaults(t, `
inputs:
  a: {type: tail, files: x, state: f}
  b: {type: tail, files: x, state: /proc/x}
  c: {type: journal, state: f/x}
  d: {type: journal, state: link/x}
outputs:
  o: {to: "stdout:", spool: f, dead-letter: none/x}
  p: {to: "stderr:", spool: /proc/x/y, dead-letter: f/x}
  q: {to: "loki://q", crash-safe: f, crash-safe-required: true, dead-letter: /proc/x}
  r: {to: "loki://r", crash-safe: /proc/x, crash-safe-required: true, dead-letter: has}
  s: {to: "loki://s", spool: "", dead-letter: none/y}
`,
		"3:36 inputs.a.state: f is not a directory",
		"4:36 inputs.b.state: /proc/x cannot be created: no files can be created in /proc",
		"5:29 inputs.c.state: f/x cannot be created: f is not a directory",
		"6:29 inputs.d.state: link/x cannot be created: link is a link to a missing file",
		"8:29 outputs.o.spool: f is not a directory",
		"8:45 outputs.o.dead-letter: the directory none does not exist: create it",
		"9:29 outputs.p.spool: /proc/x/y cannot be created: no files can be created in /proc",
		"9:53 outputs.p.dead-letter: f is not a directory",
		"10:35 outputs.q.crash-safe: f is not a directory",
		"10:78 outputs.q.dead-letter: no files can be created in /proc",
		"11:35 outputs.r.crash-safe: /proc/x cannot be created",
		"11:84 outputs.r.dead-letter: has is a directory",
		"12:30 outputs.s.spool: it is empty",
		"12:47 outputs.s.dead-letter: the directory none does not exist",
	)
	wantFaults(t, "inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", spool: has}}", "2:37 outputs.o.spool: has/"+dest.SafeName("o")+" is not a directory: rename or remove it")

	// A missing directory is no fault if the program creates it or does not need it.
	wantFaults(t, `
inputs: {a: {type: tail, files: x, state: new/state}, b: {type: stdin}}
outputs:
  o: {to: "stdout:", spool: new/spool, dead-letter: new/letters, crash-safe: new/deep/slabs, crash-safe-required: true}
  p: {to: "stderr:", crash-safe: f, dead-letter: f}
  q: {to: "file:made/by/q", mkdirs: true}
  r: {to: "loki://r", spool: has, dead-letter: made/by/letters}
`)
	var is []string
	filepath.WalkDir(".", func(path string, _ fs.DirEntry, _ error) error { is = append(is, path); return nil })
	if want := []string{".", "f", "has", "has/" + dest.SafeName("o"), "link"}; !slices.Equal(is, want) {
		t.Errorf("there is %q", is)
	}
}

// forebay validate reports files and directories that this user cannot write.
func TestPermissionsAreCheckedBeforeRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	mkdir := func(path string, mode os.FileMode) {
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	mkdir("..", 0o755) // TempDir has created it for this user only
	os.WriteFile("file", nil, 0o444)
	os.WriteFile("other", nil, 0o444)
	mkdir(filepath.Join("has", dest.SafeName("q")), 0o555)
	mkdir("ro", 0o555)
	const remedy = "permission denied; let the user of this process write there, or give another path"
	testkit.Unprivileged(t, func() {
		wantFaults(t, `
inputs:
  a: {type: tail, files: x, state: ro}
  b: {type: journal, state: ro/x}
outputs:
  o: {to: "stdout:", spool: ro, dead-letter: file}
  p: {to: "stderr:", spool: ro/x/y, dead-letter: ro/z}
  q: {to: "loki://q", spool: has}
  r: {to: "loki://r", crash-safe: ro, crash-safe-required: true}
  s: {to: "file:ro/s"}
  t: {to: "file:other"}
  u: {to: "file:ro/x/u", mkdirs: true}
`,
			"3:36 inputs.a.state: no files can be created in ro: "+remedy,
			"4:29 inputs.b.state: ro/x cannot be created: no files can be created in ro: "+remedy,
			"6:29 outputs.o.spool: no files can be created in ro: "+remedy,
			"6:46 outputs.o.dead-letter: file cannot be written: "+remedy,
			"7:29 outputs.p.spool: ro/x/y cannot be created: no files can be created in ro: "+remedy,
			"7:50 outputs.p.dead-letter: no files can be created in ro: "+remedy,
			"8:30 outputs.q.spool: no files can be created in has/"+dest.SafeName("q")+": "+remedy,
			"9:35 outputs.r.crash-safe: no files can be created in ro: "+remedy,
			"10:11 outputs.s.to: no files can be created in ro: "+remedy,
			"11:11 outputs.t.to: other cannot be written: "+remedy,
			"12:11 outputs.u.to: ro/x cannot be created: no files can be created in ro: "+remedy,
		)
	})
}

// An error about a path at startup contains the position and the name of its key.
func TestPathErrorAtStartNamesKey(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Repeat("x", 300) // too long for a file name
	for _, tt := range []struct{ input, output, want string }{
		{"", "spool: " + long, "f.yaml:3:36: outputs.out.spool: cannot make directory " + long},
		{"", "dead-letter: " + long, "f.yaml:3:42: outputs.out.dead-letter: "},
		{"", "crash-safe: " + long + ", crash-safe-required: true", "f.yaml:3:41: outputs.out.crash-safe: cannot make directory "},
		{", state: " + long, "", "f.yaml:1:53: inputs.in.state: cannot make directory " + long},
	} {
		text := "inputs: {in: {type: tail, files: \"none.log\"" + tt.input + "}}\noutputs:\n  out: {to: \"file:out.log\", " + tt.output + "}\n"
		os.WriteFile("f.yaml", []byte(text), 0o644)
		if _, _, err := config.Load("f.yaml", os.Stdin); err != nil {
			t.Fatal(err) // only opening the path detects this error
		}
		null, _ := os.Open(os.DevNull)
		defer null.Close()
		err := runFile("f.yaml", null, null, false, true)
		if err == nil || exit.Code(err) != exit.ConfigCode || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "--") || strings.Contains(err.Error(), "slab:") ||
			!strings.Contains(tt.output, "dead-letter") && !strings.Contains(err.Error(), "; create it for the user of this process, or use another one") {
			t.Errorf("%s%s: %d, %v\nwant %s", tt.input, tt.output, exit.Code(err), err, tt.want)
		}
	}
}

// If a path is invalid in a changed configuration, the error names the key, and names the
// configuration file exactly once.
func TestPathErrorAtChangeNamesKey(t *testing.T) {
	long := strings.Repeat("x", 300)
	text := "inputs: {in: {type: syslog, listen: \"unix:DIR/s\"}}\noutputs:\n  a: {to: \"file:DIR/a.log\"}\n"
	r := startRun(t, text)
	r.await("the output", func() bool { _, err := os.Stat(filepath.Join(r.dir, "a.log")); return err == nil })
	messages := r.change(text + "  b: {to: \"file:DIR/b.log\", spool: " + long + "}\n")
	if file := filepath.Join(r.dir, configName); strings.Count(messages, file) != 1 || !strings.Contains(messages, file+":4:") || !strings.Contains(messages, ": outputs.b.spool: ") {
		t.Error(messages)
	}
	before := len(r.messages.String())
	r.write(strings.Replace(text, "listen:", "listen: \"unix:DIR/t\"}, d: {type: tail, files: DIR/none, state: "+long+"}, e: {type: syslog, listen:", 1))
	r.p.Signals <- syscall.SIGHUP
	r.await("the change", func() bool {
		messages = r.messages.String()[before:]
		return strings.Contains(messages, "the input stays closed")
	})
	if strings.Count(messages, ": inputs.d.state: ") != 1 || strings.Contains(messages, "input d:") || !strings.Contains(messages, ":1:") {
		t.Error(messages)
	}
	r.end()
}
