package program

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/tool"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// realLogs returns the concatenated sample logs.
func realLogs(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "logs", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatal(err, names)
	}
	var sb strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sb.Write(b)
		if !strings.HasSuffix(sb.String(), "\n") {
			sb.WriteByte('\n')
		}
	}
	return strings.ReplaceAll(sb.String(), "\r\n", "\n")
}

// full returns the path of a link to /dev/full, so that writing to it fails. If the link is
// removed, a file can be created at this path.
func full(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "out")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// With forebay spool, a user can list, print, verify, replay and purge the records that a killed
// program has left, for destinations of each format. The records of a running program do not
// change.
func TestSpoolOfKilledProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	slabs, other := filepath.Join(dir, "slabs"), filepath.Join(dir, "other")
	lines := strings.SplitAfter(realLogs(t), "\n")[:300]
	for i, l := range lines { // remove the times, which are too old for Loki
		_, lines[i], _ = strings.Cut(l, "] ")
	}
	lines = append(lines, strings.Repeat("x", 70_000)+" larger than a slab\n")
	input := strings.Join(lines, "")
	p := start(t, "pipe", "--crash-safe", slabs, "--to", "file:"+full(t, dir), "--to", "forward://127.0.0.1:1", "--tag", "app.tag",
		"--to", "loki://127.0.0.1:1", "--label", "job=killed", "--retry-age", "0", "--to", "file:"+other)
	p.write(input)
	await(t, other, input) // all outputs have the lines in their slabs now

	ls := func(want string, n int) {
		t.Helper()
		out, errs, code := runSpool(t, nil, "ls", slabs)
		if code != 0 || strings.Count(out, want) != n || strings.Count(out, "crash-safe slabs") != 4 {
			t.Errorf("ls: %d %s\n%s", code, errs, out)
		}
	}
	ls(fmt.Sprintf("alive (pid %d)", p.cmd.Process.Pid), 4)
	if out, errs, code := runSpool(t, nil, "cat", "--raw", slabs); code != 0 || !strings.Contains(out, input) {
		t.Errorf("cat: %d %s, %d bytes", code, errs, len(out))
	}
	late := filepath.Join(dir, "late")
	if out, errs, code := runSpool(t, nil, "replay", slabs, "--to", "file:"+late); code != exit.ConfigCode || !strings.Contains(errs, "in use by a running process") {
		t.Errorf("replay of a living program's: %d %s%s", code, out, errs)
	}
	if out, errs, code := runSpool(t, nil, "purge", slabs, "--yes"); code != exit.RuntimeCode || !strings.Contains(errs, "in use by another process") {
		t.Errorf("purge of a living program's: %d %s%s", code, out, errs)
	}
	ls("alive", 4)

	p.signal(syscall.SIGKILL)
	p.wait()
	ls("dead", 4)
	out, errs, code := runSpool(t, nil, "ls", "-o", "json", slabs)
	var listed []tool.SpoolListing
	if err := json.Unmarshal([]byte(out), &listed); err != nil || code != 0 || len(listed) != 4 {
		t.Fatalf("ls: %v %s", err, errs)
	}
	pending := uint64(0)
	for _, l := range listed {
		f := l.Files[0]
		if f.Kind != tool.KindSlabs || f.Owner != "dead" || f.PID != uint32(p.cmd.Process.Pid) || f.Health != "ok" || f.Bytes < 8*64<<10 {
			t.Errorf("%+v", f)
		}
		pending += l.Pending
	}
	if want := uint64(3 * len(lines)); pending != want {
		t.Errorf("%d records pending, want %d", pending, want)
	}
	out, errs, code = runSpool(t, nil, "verify", slabs)
	if code != 0 || strings.Count(out, "301 records in slabs of a program that has ended: ok\n") != 3 {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}

	out, errs, code = runSpool(t, nil, "cat", slabs)
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != 0 || uint64(len(got)) != pending {
		t.Fatalf("cat: %d %s, %d lines", code, errs, len(got))
	}
	first := strings.TrimSuffix(lines[0], "\n")
	with := map[string]int{}
	for _, l := range got {
		var o map[string]any
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%v: %.200s", err, l)
		}
		text, _ := json.Marshal(o)
		switch {
		case o["raw"] == first:
			with["raw"]++
		case strings.Contains(string(text), "killed") && strings.Contains(string(text), first[:20]):
			with["loki"]++
		case strings.Contains(string(text), first[:20]):
			with["forward"]++
		}
	}
	if n := strings.Count(input, first[:20]); with["loki"] != n || with["forward"] != n || with["raw"] == 0 {
		t.Errorf("forms %v", with)
	}

	// One of the directories is purged. The others are replayed, both as lines and as records.
	for _, l := range listed {
		if strings.Contains(l.Dir, "loki") {
			if out, errs, code := runSpool(t, nil, "purge", l.Dir); code != exit.UsageCode || !strings.Contains(out, "would delete 1 file with 301 pending records") {
				t.Errorf("purge: %d %s%s", code, out, errs)
			}
			if out, errs, code := runSpool(t, nil, "purge", l.Dir, "--yes"); code != 0 || !strings.Contains(out, "deleted 1 file") {
				t.Errorf("purge: %d %s%s", code, out, errs)
			}
			continue
		}
		os.Remove(late)
		_, errs, code := runSpool(t, nil, "replay", l.Dir, "--to", "file:"+late)
		if code != 0 || !strings.Contains(errs, " delivered, 0 left") {
			t.Errorf("replay: %d %s", code, errs)
		}
		b, _ := os.ReadFile(late)
		if l.Files[0].ContentType == encode.RawCodec().ContentType() && l.Pending > 0 && string(b) != input {
			t.Errorf("replay of %s: %d bytes of %d", l.Dir, len(b), len(input))
		}
		if n := strings.Count(string(b), "\n"); uint64(n) != l.Pending {
			t.Errorf("replay of %s: %d lines", l.Dir, n)
		}
	}
	if out, errs, code := runSpool(t, nil, "ls", slabs); code != 0 || out != "" {
		t.Errorf("ls: %d %s%s", code, out, errs)
	}
}

// If the program is killed while its destination is blocked, the next run delivers the lines in the
// slabs unchanged, even if its --encode differs.
func TestKilledPipeOfRealLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := full(t, dir), filepath.Join(dir, "other")
	input := realLogs(t)
	args := []string{"pipe", "--to", "file:" + path, "--crash-safe", filepath.Join(dir, "slabs"), "--crash-safe-required"}
	p := start(t, append(args, "--slabs", "64", "--to", "file:"+other)...)
	go p.in.WriteString(input)
	await(t, other, input)
	p.signal(syscall.SIGKILL)
	p.wait()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p = start(t, append(args, "--encode", "json")...)
	p.write("one more\n")
	p.in.Close()
	code, stderr := p.wait()
	b, _ := os.ReadFile(path)
	got, ok := strings.CutPrefix(string(b), input)
	if code != 0 || !ok || strings.Count(got, "\n") != 1 || !strings.Contains(got, "one more") {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, len(b), len(input), stderr)
	}
	wantMatch(t, stderr, fmt.Sprintf(`accepted=1 recovered=%d delivered=%d$`, strings.Count(input, "\n"), strings.Count(input, "\n")+1))
}

// If the program is killed while it delivers, the file contains the first lines of the input. The
// last of these lines may be incomplete. The next run continues with the following lines. It may
// first repeat lines whose delivery was not yet recorded.
func TestKilledPipeInFlight(t *testing.T) {
	t.Parallel()
	input := strings.Repeat(realLogs(t), 3)
	lines := strings.SplitAfter(input, "\n")
	recovered := false
	rng := testkit.Rand(testkit.Seed(t))
	for round := 0; round < 6 || !recovered && round < 40; round++ {
		killAfter := rng.IntN(len(input) / 2) // kill the program after it has delivered about this many bytes
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		args := []string{"pipe", "--to", "file:" + path, "--crash-safe", filepath.Join(dir, "slabs")}
		p := start(t, args...)
		go p.in.WriteString(input)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); { // real time, because the test waits for a real process
			if f, err := os.Stat(path); err == nil && f.Size() > int64(killAfter) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		before, _ := os.ReadFile(path)
		p = start(t, args...)
		p.in.Close()
		if code, stderr := p.wait(); code != 0 {
			t.Fatal(code, stderr)
		}
		all, _ := os.ReadFile(path)
		rest, ok := strings.CutPrefix(string(all), string(before))
		if !ok {
			t.Fatal("the second run changed the lines of the first run")
		}
		recovered = recovered || rest != ""
		n := len(strings.SplitAfter(string(before), "\n")) - 1 // number of complete lines
		if strings.Join(lines[:n], "") != string(before[:strings.LastIndexByte(string(before), '\n')+1]) {
			t.Fatal("the lines of the first run are not the first lines of the input")
		}
		more := strings.SplitAfter(rest, "\n")
		if len(more) == 1 {
			continue
		}
		if !strings.HasSuffix(string(before), "\n") && len(before) > 0 { // the kill has interrupted a write
			more = more[1:]
		}
		more = more[:len(more)-1]
		next := -1
		for repeated := range min(n, 20000) + 1 { // find the first line that the second run delivered
			if at := n - repeated; continues(lines[at:], more) {
				next = at
				break
			}
		}
		if next < 0 {
			t.Fatalf("the second run delivered %d lines, which do not continue the %d lines of the first run", len(more), n)
		}
	}
	if !recovered {
		t.Error("no round recovered a record")
	}
}

// The function continues reports whether more is a prefix of lines. One line may be repeated, and
// the last line may be incomplete.
func continues(lines, more []string) bool {
	twice := false
	for i := 0; len(more) > 0; more = more[1:] {
		switch {
		case i < len(lines) && more[0] == lines[i]:
			i++
		case i > 0 && !twice && more[0] == lines[i-1]:
			twice = true
		default:
			return len(more) == 1 && i < len(lines) && strings.HasPrefix(lines[i], strings.TrimSuffix(more[0], "\n"))
		}
	}
	return true
}

// If a --crash-safe directory cannot be used, the program reports it once and continues. With
// --crash-safe-required, it returns an error.
func TestCrashSafeRequired(t *testing.T) {
	dir := t.TempDir()
	bad, path := filepath.Join(dir, "file"), filepath.Join(dir, "out")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"pipe", "--to", "file:" + path, "--crash-safe", bad}
	p := start(t, args...)
	p.write("one\n")
	p.in.Close()
	code, stderr := p.wait()
	if b, _ := os.ReadFile(path); code != 0 || string(b) != "one\n" || strings.Count(stderr, "--crash-safe: ") != 1 ||
		!strings.Contains(stderr, "not a directory; ") || !strings.Contains(stderr, "; continuing with slabs on the heap") {
		t.Errorf("exit code %d, %q, %s", code, b, stderr)
	}
	p = start(t, append(args, "--crash-safe-required")...)
	code, stderr = p.wait()
	if code != exit.ConfigCode || !strings.Contains(stderr, "not a directory") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	p = start(t, "pipe", "--crash-safe-required")
	if code, stderr = p.wait(); code != exit.UsageCode || !strings.Contains(stderr, "--crash-safe-required needs --crash-safe") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// deadSlabs creates the crash file of a Writer that was closed with n undelivered lines. Each line
// consists of its number, followed by as many bytes as size states. deadSlabs returns the directory
// and the path of the file.
func deadSlabs(t *testing.T, n, size int) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := deliver.NewOutput(deliver.ToWriter(f), &deliver.OutputOptions{CloseTimeout: time.Millisecond, OnError: func(batch.Event) {},
		Slab: slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}, SlabBytes: 1024, SlabCount: 16}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		fmt.Fprintf(w, "line %d%s\n", i, strings.Repeat(".", size))
	}
	w.Close() // leaves the records in the file, because they cannot be delivered
	files, err := crashfile.List(dir)
	if err != nil || len(files) != 1 {
		t.Fatal(err, files)
	}
	return dir, files[0].Path
}

// The commands spool ls, cat and verify report damaged slabs. The intact records are delivered.
func TestSpoolDamagedSlabs(t *testing.T) {
	dir, path := deadSlabs(t, 50, 50)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), "line 20.")
	b[at] = 'X'
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0.slab"), b[:5000], 0o600); err != nil { // truncated file
		t.Fatal(err)
	}
	out, errs, code := runSpool(t, nil, "verify", dir)
	if code != exit.RuntimeCode || !strings.Contains(out, "0.slab: 0 records in slabs of a program that has ended: damaged: it has 5000 bytes") ||
		!strings.Contains(out, "damaged: 11 records in 1 slab\n") || !strings.Contains(errs, "2 of 2 files are damaged") {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}
	out, errs, code = runSpool(t, nil, "cat", "--raw", dir)
	if n := strings.Count(out, "\n"); code != exit.RuntimeCode || n != 39 || !strings.Contains(errs, "a part of it is damaged") || strings.Contains(out, "X") {
		t.Errorf("cat: %d %s%s", code, out, errs)
	}
	late := filepath.Join(t.TempDir(), "late")
	if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+late); code != exit.RuntimeCode || !strings.Contains(errs, "39 records delivered, 0 left, 11 unreadable") {
		t.Errorf("replay: %d %s", code, errs)
	}
	if got, _ := os.ReadFile(late); string(got) != out {
		t.Errorf("delivered %s", got)
	}
	out, errs, code = runSpool(t, nil, "ls", dir)
	if code != 0 || !strings.Contains(out, ".slab.damaged") || !strings.Contains(out, "damaged, set aside") {
		t.Errorf("ls: %d %s%s", code, out, errs)
	}
	if out, errs, code := runSpool(t, nil, "purge", "--damaged", "--yes", dir); code != 0 || !strings.Contains(out, "deleted 1 file") {
		t.Errorf("purge: %d %s%s", code, out, errs)
	}
	if out, _, code := runSpool(t, nil, "purge", "--yes", dir); code != 0 || !strings.Contains(out, "deleted 1 file") {
		t.Errorf("purge: %d %s", code, out)
	}
}

// awaitKept waits until the crash files in dir contain n records.
func awaitKept(t *testing.T, dir string, n int) {
	t.Helper()
	kept := -1
	for deadline := time.Now().Add(30 * time.Second); kept != n && time.Now().Before(deadline); runtime.Gosched() {
		kept = 0
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".slab" {
				var im *crashfile.Image
				if im, err = crashfile.Read(path); err == nil {
					kept += len(im.Records)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if kept != n {
		t.Fatalf("%s contains %d records, want %d", dir, kept, n)
	}
}

// The program reports once at startup that killed programs have left records for other
// destinations. It delivers records for its own destinations without a message.
func TestCrashSafeOfOtherDestinations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	slabs, out := filepath.Join(dir, "slabs"), filepath.Join(dir, "late")
	other := filepath.Join(dir, "other")
	p := start(t, "pipe", "--crash-safe", slabs, "--to", "file:"+full(t, dir), "--to", "file:"+other)
	p.write("one\ntwo\n")
	await(t, other, "one\ntwo\n")
	awaitKept(t, slabs, 2) // the lines become crash-safe slightly after their delivery
	p.signal(syscall.SIGKILL)
	p.wait()
	p = start(t, "pipe", "--crash-safe", slabs, "--to", "file:"+out)
	p.in.Close()
	code, stderr := p.wait()
	if code != 0 || strings.Count(stderr, "--crash-safe: 2 records of other destinations wait in "+slabs) != 1 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	os.Remove(filepath.Join(dir, "out"))
	p = start(t, "pipe", "--crash-safe", slabs, "--to", "file:"+filepath.Join(dir, "out"))
	p.in.Close()
	if code, stderr := p.wait(); code != 0 || strings.Contains(stderr, "other destinations") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The commands spool verify, cat and replay report damage in records that are larger than a slab.
func TestSpoolDamagedOversize(t *testing.T) {
	dir, path := deadSlabs(t, 5, 2000)
	b, err := os.ReadFile(path + ".big")
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	if err := os.WriteFile(path+".big", b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := runSpool(t, nil, "verify", dir)
	if code != exit.RuntimeCode || !strings.Contains(out, "4 records in slabs of a program that has ended: damaged: 1 record larger than a slab") {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}
	if out, errs, code := runSpool(t, nil, "ls", dir); code != 0 || !strings.Contains(out, "damaged: 1 record larger than a slab") {
		t.Errorf("ls: %d %s%s", code, out, errs)
	}
	if out, errs, code := runSpool(t, nil, "cat", "--raw", dir); code != exit.RuntimeCode || strings.Count(out, "\n") != 4 {
		t.Errorf("cat: %d %s", code, errs)
	}
	late := filepath.Join(t.TempDir(), "late")
	if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+late); code != exit.RuntimeCode || !strings.Contains(errs, "4 records delivered, 0 left, 1 unreadable") {
		t.Errorf("replay: %d %s", code, errs)
	}
	if out, _, _ := runSpool(t, nil, "ls", dir); !strings.Contains(out, "damaged, set aside") {
		t.Errorf("ls: %s", out)
	}
}
