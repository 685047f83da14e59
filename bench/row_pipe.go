package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay"
	h "github.com/forebay-log/forebay/bench/harness"
)

// The program is built once, as it is released, and measured as a process: from its start
// to its end, with the sync that ends a file.

// built returns a function that builds a program once in each directory of a run: package pkg of
// the module cmd, or text.
func built(name, pkg, text string) func(*h.Env) (string, error) {
	return func(env *h.Env) (path string, err error) {
		if path, err = filepath.Abs(filepath.Join(env.Dir, name)); err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if text != "" {
			pkg = path + ".go"
			if err := os.WriteFile(pkg, []byte(text), 0o600); err != nil {
				return "", err
			}
		}
		cmd := exec.Command("go", "-C", filepath.Join("..", "cmd"), "build", "-trimpath", "-ldflags", "-s -w", "-o", path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return path, nil
	}
}

var program = built("forebay", "./forebay", "")

const pipeLine = 300 // bytes of a line, roughly

// pipeInput makes a file of about size bytes of JSON lines, once for each size.
func pipeInput(env *h.Env, size int) (path string, lines int, err error) {
	if env.Quick {
		size = 1 << 20
	}
	var block bytes.Buffer
	for lines = 0; block.Len() < 1<<20; lines++ {
		fmt.Fprintf(&block, `{"time":"2024-05-06T07:08:%02d.%09dZ","level":"INFO","msg":"request served to the client in time","method":"GET","path":"/v2/items/%d/parts","status":200,"took":0.1179,"cached":false,"request_id":"a6cecc1b78e510617311d8a3%08x","user":"u-%06d","remote":"10.1.0.%d:51234","agent":"Mozilla/5.0 (X11)"}`+"\n",
			lines%60, lines*7919, 100000+lines, lines, lines, lines%200)
	}
	times := max(size/block.Len(), 1)
	path = filepath.Join(env.Dir, "pipe-"+strconv.Itoa(times)+".in")
	if st, err := os.Stat(path); err == nil && st.Size() == int64(times*block.Len()) {
		return path, times * lines, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return "", 0, err
	}
	for range times {
		if _, err = f.Write(block.Bytes()); err != nil {
			break
		}
	}
	return path, times * lines, errors.Join(err, f.Sync(), f.Close())
}

// throughPipe makes a contender that takes a file of size bytes to another one; ns a line.
func throughPipe(name string, kind h.Kind, note string, size int, command func(env *h.Env, out string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		path, lines, err := pipeInput(env, size)
		if err != nil {
			return nil, err
		}
		in, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		out := filepath.Join(env.Dir, "pipe.out")
		defer os.Remove(out)
		cmd, err := command(env, out)
		if err != nil {
			return nil, err
		}
		cmd.Stdin = in
		var said bytes.Buffer
		cmd.Stderr = &said
		begin := time.Now()
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, said.Bytes())
		}
		took := time.Since(begin)
		if n, err := countLines(out); n != lines || err != nil {
			return nil, fmt.Errorf("%d of %d lines are there, %v", n, lines, err)
		}
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		n := float64(lines)
		return &h.Sample{Value: float64(took) / n, Ops: lines, CPU: float64(cpu) / n}, nil
	}}
}

func countLines(path string) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte{'\n'})
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func piping(encode string) func(*h.Env, string) (*exec.Cmd, error) {
	return func(env *h.Env, out string) (*exec.Cmd, error) {
		path, err := program(env)
		return exec.Command(path, "pipe", "--quiet", "--encode", encode, "--to", "file:"+out), err
	}
}

func shell(script string) func(*h.Env, string) (*exec.Cmd, error) {
	return func(_ *h.Env, out string) (*exec.Cmd, error) {
		return exec.Command("sh", "-c", script, "sh", out), nil
	}
}

// idle measures what the program has resident when a line has been delivered and it waits
// for the next; MB.
func idle(env *h.Env) (*h.Sample, error) {
	path, err := program(env)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(env.Dir, "idle.out")
	defer os.Remove(out)
	cmd := exec.Command(path, "pipe", "--quiet", "--to", "file:"+out)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := io.WriteString(in, "one line\n"); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if n, _ := countLines(out); n == 1 {
			break
		}
		if time.Now().After(end) {
			return nil, errors.New("the line was not delivered")
		}
	}
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	defer status.Close()
	for s := bufio.NewScanner(status); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return &h.Sample{Value: float64(kb) * 1024 / 1e6, Ops: 1}, err
		}
	}
	return nil, errors.New("its resident memory is not known")
}

// held measures the memory that New with one Writer takes; MiB.
func held(*h.Env) (*h.Sample, error) {
	memory := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
	}
	before := memory()
	log, err := forebay.New(forebay.Writer(new(bytes.Buffer)))
	if err != nil {
		return nil, err
	}
	log.Info("one")
	used := memory() - before
	return &h.Sample{Value: used, Ops: 1}, log.Close()
}

// linked makes a contender that is the size of a program; MB.
func linked(name string, kind h.Kind, note, imports, body string) h.Contender {
	path := built("size-of-"+strings.NewReplacer(", ", "-", "/", "-").Replace(name), "", "package main\n\nimport (\n\t\"log/slog\"\n\t\"os\"\n"+imports+")\n\nfunc main() {\n"+body+"}\n")
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		p, err := path(env)
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		return &h.Sample{Value: float64(st.Size()) / 1e6, Ops: 1}, nil
	}}
}

const (
	useRoot = "\n\t\"github.com/forebay-log/forebay\"\n"
	useLog  = "\tif err != nil {\n\t\tpanic(err)\n\t}\n\tlog.Info(\"ready\", slog.Int(\"n\", 1))\n\tlog.Close()\n"
)

func init() {
	const gigabyte = 1_000_000_000
	h.Register(h.Row{
		Name: "pipe/raw-1g", What: fmt.Sprintf("forebay pipe, 1 GB of lines of %d B, from a file into a new file; the whole process, ours with a sync of the file at its end", pipeLine),
		Target: "≤ 1.0 × cat", Unit: "ns/line", Reference: "cat", MaxCount: 5, MinCPU: 2,
		Contenders: []h.Contender{
			throughPipe("forebay pipe", h.Ours, "--to file:PATH", gigabyte, piping("raw")),
			throughPipe("cat", h.Rival, "copy_file_range, nothing is synced", gigabyte, shell(`exec cat > "$1"`)),
			throughPipe("cat, sync", h.Reference, "and then sync of the file, as we do", gigabyte, shell(`cat > "$1" && exec sync "$1"`)),
		},
		Verdict: h.Versus("forebay pipe", "cat", 1),
	}, h.Row{
		Name: "pipe/json", What: fmt.Sprintf("forebay pipe, 300 MB of JSON lines of %d B with 12 members, from a file into a new file; the whole process", pipeLine),
		Target: "JSON to JSON ≤ 667 ns a line (1.5 M lines/s), to logfmt ≤ 1000 ns", Unit: "ns/line", Reference: "cat", MaxCount: 5, MinCPU: 2,
		Contenders: []h.Contender{
			throughPipe("json", h.Ours, "--encode json", 3*gigabyte/10, piping("json")),
			throughPipe("logfmt", h.Ours, "--encode logfmt", 3*gigabyte/10, piping("logfmt")),
			throughPipe("raw", h.Ours, "--encode raw", 3*gigabyte/10, piping("raw")),
			throughPipe("cat", h.Reference, "", 3*gigabyte/10, shell(`exec cat > "$1"`)),
		},
		Verdict: h.Verdict(h.AtMost("json", 667), h.AtMost("logfmt", 1000)),
	}, h.Row{
		Name: "size/idle-pipe", What: "forebay pipe --to file:PATH, resident memory once a line was delivered",
		Target: "≤ 12 MB", Unit: "MB", MaxCount: 5,
		Contenders: []h.Contender{{Name: "forebay pipe", Kind: h.Ours, Note: "CGO_ENABLED=0, -s -w", Sample: idle}},
		Verdict:    h.AtMost("forebay pipe", 12),
	}, h.Row{
		Name: "size/writer", What: "New with one Writer: heap and stacks once a record was logged",
		Target: "≤ 1.1 MiB", Unit: "MiB", MaxCount: 5,
		Contenders: []h.Contender{{Name: "Writer", Kind: h.Ours, Sample: held}},
		Verdict:    h.AtMost("Writer", 1.1),
	}, h.Row{
		Name: "size/program", What: "a program that logs one record, CGO_ENABLED=0, -trimpath, -s -w",
		Target: "New with Console and File ≤ 5 MB, with Loki besides ≤ 9 MB", Unit: "MB", Reference: "slog", MaxCount: 1,
		Contenders: []h.Contender{
			linked("Console, File", h.Ours, "", useRoot, "\tlog, err := forebay.New(forebay.Console(os.Stderr), forebay.File(\"app.log\"))\n"+useLog),
			linked("Console, File, Loki", h.Ours, "", useRoot+"\t\"github.com/forebay-log/forebay/loki\"\n",
				"\tlog, err := forebay.New(forebay.Console(os.Stderr), forebay.File(\"app.log\"), loki.To(\"http://localhost:3100\"))\n"+useLog),
			linked("slog", h.Reference, "JSONHandler", "", "\tslog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(\"ready\", \"n\", 1)\n"),
			linked("slog, net/http", h.Reference, "what no client of Loki can do without", "\t\"net/http\"\n",
				"\t_, err := http.Post(\"http://localhost:3100\", \"\", nil)\n\tslog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(\"ready\", \"err\", err)\n"),
		},
		Verdict: h.Verdict(h.AtMost("Console, File", 5), h.AtMost("Console, File, Loki", 9)),
	})
}
