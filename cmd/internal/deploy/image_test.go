package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// An instruction is a line of the Dockerfile.
type instruction struct{ name, args string }

// stages returns the instructions of each stage of the Dockerfile.
func stages(t *testing.T) (stages [][]instruction) {
	t.Helper()
	for line := range strings.Lines(read(t, "docker/Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, args, ok := strings.Cut(line, " ")
		if !ok || strings.HasSuffix(line, `\`) {
			t.Fatalf("these tests do not know %q", line)
		}
		if name == "FROM" {
			stages = append(stages, nil)
		}
		last := &stages[len(stages)-1]
		*last = append(*last, instruction{name, args})
	}
	return stages
}

// argsOf returns the arguments of the named instruction in the last stage of the Dockerfile. The
// stage must not contain the instruction twice.
func argsOf(t *testing.T, name string) (args []string) {
	t.Helper()
	all := stages(t)
	for _, in := range all[len(all)-1] {
		if in.name == name {
			if err := json.Unmarshal([]byte(in.args), &args); err != nil {
				t.Fatal(err)
			}
		}
	}
	return args
}

// configOfImage returns the path of the configuration file in the image.
func configOfImage(t *testing.T) string {
	cmd := argsOf(t, "CMD")
	if len(cmd) != 3 || !slices.Equal(cmd[:2], []string{"run", "-c"}) {
		t.Fatalf("CMD %q", cmd)
	}
	return cmd[2]
}

// The program runs as the user of the image, with a root directory that contains only the files of
// the image. The test creates this directory according to the instructions of the Dockerfile.
func TestImageRunsInDirectoryOfItsFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is one for Linux")
	}
	if os.Getenv("FOREBAY_IMAGE") == "" {
		t.Skip("FOREBAY_IMAGE is not set: make integration builds the image")
	}
	const user = 65532
	top, err := os.MkdirTemp("", "image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o755); err != nil { // the user of the image must be able to access top
		t.Fatal(err)
	}
	root := filepath.Join(top, "root")
	build := strings.NewReplacer("/image", top+"/image", "/state", top+"/state")
	all := stages(t)
	if len(all) != 2 || all[0][0].args != "golang:1.26 AS build" || all[1][0].args != "scratch" {
		t.Fatalf("%q", all)
	}
	certs := true
	for _, in := range all[0] {
		switch {
		case in.name != "RUN", in.args == "go -C cmd/forebay-all mod download":
			continue
		case strings.HasPrefix(in.args, "cp /etc/ssl/"):
			if _, err := os.Stat(strings.Fields(in.args)[1]); err != nil {
				t.Log("this machine has no certificates:", err)
				certs = false
				continue
			}
		}
		cmd := exec.Command("sh", "-c", build.Replace(in.args))
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "GOWORK=off") // as in the Dockerfile
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", in.args, err, out)
		}
	}
	asRoot := os.Geteuid() == 0
	for _, in := range all[1] {
		if in.name != "COPY" {
			continue
		}
		args := strings.Fields(in.args)
		own := slices.Contains(args, "--chown=65532:65532")
		from, to := args[len(args)-2], args[len(args)-1]
		to = filepath.Join(root, to)
		if err := os.CopyFS(to, os.DirFS(build.Replace(from))); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(to, 0o755); err != nil { // CopyFS omits empty directories
			t.Fatal(err)
		}
		if own && asRoot {
			if err := os.Chown(to, user, user); err != nil {
				t.Fatal(err)
			}
		}
	}

	var files []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path[len(root):])
		}
		return err
	})
	want := []string{"/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/usr/bin/forebay"}
	if !certs {
		want = slices.Delete(want, 1, 2)
	}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%v, the image has %q, want %q", err, files, want)
	}
	for _, dir := range []string{"/var/lib/forebay", "/run", filepath.Dir(configOfImage(t))} {
		if st, err := os.Stat(root + dir); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}

	entry := argsOf(t, "ENTRYPOINT")
	bin, err := elf.Open(root + entry[0])
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is linked with libraries that are not there")
		}
	}
	if last := all[1]; !slices.Contains(last, instruction{"USER", "65532:65532"}) {
		t.Errorf("no USER in %q", last)
	}

	// Only root can change the root directory of a process. If the test does not run as root, the
	// program runs without chroot.
	run := func(in string, args ...string) (string, error) {
		cmd := exec.Command(root+entry[0], args...)
		cmd.Env, cmd.Dir = []string{"NODE_NAME=n1"}, root
		if asRoot {
			confine(cmd, root, user)
			cmd.Path, cmd.Dir = entry[0], "/"
		}
		cmd.Stdin = strings.NewReader(in)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	if out, err := run("", "version"); err != nil || !strings.HasPrefix(out, "forebay ") {
		t.Errorf("%v, %s", err, out)
	}
	// The image contains forebay-all, which knows these destinations.
	if out, err := run("one\n", "pipe", "--to", "kafka://b/t", "--to", "nats://n/s", "--dry-run"); err != nil || !strings.Contains(out, "topic t: one") {
		t.Errorf("%v, %s", err, out)
	}
	// The configurations that operators install are valid.
	for name, text := range map[string]string{"unit": read(t, "systemd/forebay.yaml"), "DaemonSet": objects(t)["ConfigMap"].Data["forebay.yaml"]} {
		if err := os.WriteFile(root+configOfImage(t), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		file := root + configOfImage(t)
		if asRoot {
			file = configOfImage(t)
		}
		if out, err := run("", "validate", "-c", file); err != nil || !strings.Contains(out, "is valid: 1 input") {
			t.Errorf("the configuration of the %s: %v, %s", name, err, out)
		}
	}
	if !asRoot {
		t.Skip("only root can run it with nothing else to see")
	}
	if out, err := run("10:11:12 one\n", "pipe", "--zone", "Europe/Berlin", "--to", "file:/var/lib/forebay/out"); err != nil {
		t.Errorf("%v, %s", err, out)
	}
	if got := read(t, root+"/var/lib/forebay/out"); got != "10:11:12 one\n" {
		t.Errorf("%q", got)
	}
	const lines = "inputs: {in: {type: stdin}}\noutputs: {out: {to: \"file:/var/lib/forebay/${NODE_NAME}\"}}\n"
	if err := os.WriteFile(root+configOfImage(t), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run("two\n", argsOf(t, "CMD")...); err != nil {
		t.Errorf("%v, %s", err, out)
	}
	if got := read(t, root+"/var/lib/forebay/n1"); got != "two\n" {
		t.Errorf("%q", got)
	}
	if out, err := run("one\n", "pipe", "--to", "file:/etc/forebay/out"); err == nil {
		t.Errorf("its user may write to /etc: %s", out)
	}
}

// Before the Dockerfile downloads modules, it copies go.mod and go.sum of each module that is
// replaced by a local directory.
func TestImageCopiesModules(t *testing.T) {
	const program = "cmd/forebay-all"
	dirs := []string{program}
	for line := range strings.Lines(read(t, "../"+program+"/go.mod")) {
		if _, dir, ok := strings.Cut(strings.TrimSpace(line), " => ."); ok {
			dirs = append(dirs, path.Join(program, "."+dir))
		}
	}
	if len(dirs) < 2 {
		t.Fatalf("local modules: %q", dirs)
	}
	build := stages(t)[0]
	download := slices.Index(build, instruction{"RUN", "go -C " + program + " mod download"})
	for _, dir := range dirs {
		want := path.Join(dir, "go.mod") + " " + path.Join(dir, "go.sum") + " " + dir + "/"
		if i := slices.Index(build, instruction{"COPY", want}); i < 0 || i > download {
			t.Errorf("no COPY %s before the download", want)
		}
	}
}

// .dockerignore excludes no file that the build needs.
func TestDockerignoreKeepsBuildFiles(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if or .Main .Replace}}{{$.Dir}} {{.GoMod}}{{range $.EmbedFiles}} {{.}}{{end}}{{end}}{{end}}", ".")
	cmd.Dir = "../../forebay-all"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(read(t, "docker/Dockerfile.dockerignore")) {
		line = strings.TrimSpace(line)
		for need := range strings.FieldsSeq(string(out)) {
			need = strings.TrimPrefix(need, root+"/")
			if need == line || strings.HasPrefix(need, line+"/") || strings.Contains(need, "testdata") {
				t.Errorf("%s is not sent, and %s is needed", line, need)
			}
		}
	}
}
