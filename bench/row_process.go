package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
)

// The rows of this file run programs as separate processes. forebay is built once, with the flags
// of a release.

// built returns a function that builds a program once per run and returns its path. The source is
// text or, if text is empty, the package pkg of the module cmd.
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

// logLine is a part of each line in a file created by linesFile.
const logLine = "request served to the client"

// jsonLine and nginxLine append line n of a file. The lines have 300 bytes of JSON, or 190 bytes in
// nginx's combined log format.
func jsonLine(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, `{"time":"2024-05-06T07:08:%02d.%09dZ","level":"INFO","msg":"`+logLine+` in time","method":"GET","path":"/v2/items/%d/parts","status":200,"took":0.1179,"cached":false,"request_id":"a6cecc1b78e510617311d8a3%08x","user":"u-%06d","remote":"10.1.0.%d:51234","agent":"Mozilla/5.0 (X11)"}`+"\n",
		n%60, n*7919, 100000+n, n, n, n%200)
}

func nginxLine(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, `203.0.113.%d - - [10/Oct/2025:13:55:%02d +0200] "GET /api/v1/orders?page=%d HTTP/1.1" 200 %d "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"`+"\n",
		n%200, n%60, n, 1000+n)
}

// linesFile creates a file with about size bytes of lines, and returns the number of lines.
func linesFile(env *h.Env, path string, size int, line func(*bytes.Buffer, int)) (lines int, err error) {
	if env.Quick {
		size = 1 << 20
	}
	var block bytes.Buffer
	for ; block.Len() < 1<<20; lines++ {
		line(&block, lines)
	}
	times := max(size/block.Len(), 1)
	if st, err := os.Stat(path); err == nil && st.Size() == int64(times*block.Len()) {
		return times * lines, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	for range times {
		if _, err = f.Write(block.Bytes()); err != nil {
			break
		}
	}
	return times * lines, errors.Join(err, f.Sync(), f.Close())
}

// throughPipe returns a contender in which a program copies a file with size bytes of JSON lines.
// The value of its samples is ns per line.
func throughPipe(name string, kind h.Kind, note string, size int, command func(env *h.Env, out string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		path, out := filepath.Join(env.Dir, "pipe.in"), filepath.Join(env.Dir, "pipe.out")
		lines, err := linesFile(env, path, size, jsonLine)
		if err != nil {
			return nil, err
		}
		defer os.Remove(out)
		cmd, err := command(env, out)
		if err != nil {
			return nil, err
		}
		return copyLines(cmd, path, out, lines)
	}}
}

// copyLines runs cmd, which copies the lines of the file path to the file out.
func copyLines(cmd *exec.Cmd, path, out string, lines int) (*h.Sample, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	took := time.Since(begin)
	if n, err := countLines(out); n != lines || err != nil {
		return nil, fmt.Errorf("%d of %d lines arrived, %v", n, lines, err)
	}
	return processSample(float64(took), cmd, lines), nil
}

// processSample returns a sample with the processor time of a process that has exited.
func processSample(value float64, cmd *exec.Cmd, lines int) *h.Sample {
	cpu := float64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
	return &h.Sample{Value: value / float64(lines), Ops: lines, CPU: cpu / float64(lines)}
}

func countLines(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	t, err := rivals.FileByLine(f)
	return int(t.Records), err
}

// parsing returns a contender in which forebay parses nginx's access log with a transform and
// writes JSON. The value of its samples is processor time per line in ns.
func parsing(name, note, transforms string) h.Contender {
	return h.Contender{Name: name, Kind: h.Ours, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		path, out, file := filepath.Join(env.Dir, "nginx.in"), filepath.Join(env.Dir, "nginx.out"), filepath.Join(env.Dir, "parse.yaml")
		lines, err := linesFile(env, path, 100_000_000, nginxLine)
		if err != nil {
			return nil, err
		}
		defer os.Remove(out)
		text := "inputs: {in: {type: stdin}}\ntransforms: [" + transforms + "]\noutputs: {out: {to: 'file:" + out + "', encode: json}}\ncontrol: none\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		bin, err := program(env)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(bin, "run", "-c", file)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		s, err := copyLines(cmd, path, out, lines)
		if err == nil {
			s.Value = s.CPU
		}
		return s, err
	}}
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

// memory returns the figure with the given key in /proc/PID/status, in MB, or 0 if it is unknown.
func memory(pid int, key string) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), key)
	kb, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, " kB", 2)[0]))
	return float64(kb) * 1024 / 1e6
}

// idle returns the resident memory of forebay in MB after it has delivered one line.
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
			return &h.Sample{Value: memory(cmd.Process.Pid, "VmRSS:"), Ops: 1}, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("the line was not delivered")
		}
	}
}

// linked returns a contender whose value is the size of a linked program in MB.
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

func init() {
	const (
		gigabyte = 1_000_000_000
		pipe     = "forebay pipe"
		useRoot  = "\n\t\"github.com/forebay-log/forebay\"\n"
		useLog   = "\tif err != nil {\n\t\tpanic(err)\n\t}\n\tlog.Info(\"ready\", slog.Int(\"n\", 1))\n\tlog.Close()\n"
	)
	h.Register(h.Row{
		Name: "pipe/raw-1g", What: "forebay pipe, 1 GB of lines of 300 B, from a file into a new file; the whole process, ours with a sync of the file at its end",
		Unit: "ns/line", Reference: "cat", MaxCount: 5, MinCPU: 2,
		Contenders: []h.Contender{
			throughPipe(pipe, h.Ours, "--to file:PATH", gigabyte, piping("raw")),
			throughPipe("cat", h.Rival, "copy_file_range, no sync", gigabyte, shell(`exec cat > "$1"`)),
			throughPipe("cat, sync", h.Reference, "and a sync of the file, as we do", gigabyte, shell(`cat > "$1" && exec sync "$1"`)),
		},
		Targets: []h.Target{h.Versus(pipe, "cat", 1/0.9)},
	}, h.Row{
		Name: "pipe/json", What: "forebay pipe, 300 MB of JSON lines of 300 B with 12 members, from a file into a new file; the whole process",
		Unit: "ns/line", Reference: "cat", MaxCount: 5, MinCPU: 2,
		Contenders: []h.Contender{
			throughPipe("json", h.Ours, "--encode json", 3*gigabyte/10, piping("json")),
			throughPipe("logfmt", h.Ours, "--encode logfmt", 3*gigabyte/10, piping("logfmt")),
			throughPipe("raw", h.Ours, "--encode raw", 3*gigabyte/10, piping("raw")),
			throughPipe("cat", h.Reference, "", 3*gigabyte/10, shell(`exec cat > "$1"`)),
		},
		Targets: []h.Target{h.AtMost("json", 667), h.AtMost("logfmt", 1000)},
	}, h.Row{
		Name: "pipe/parse", What: "forebay run with one transform, 100 MB of nginx's access log in lines of 190 B, from a file into a new file of JSON; processor time of the whole process per line, GOMAXPROCS=1",
		Unit: "ns/line", MaxCount: 5,
		Contenders: []h.Contender{
			parsing("parse: nginx", "", "{parse: nginx}"),
			parsing("parse: regex", "eight groups", "{parse: {regex: '^(?P<client>\\S+) \\S+ (?P<user>\\S+) \\[(?P<time>[^\\]]+)\\] \"(?P<method>\\S+) (?P<path>\\S+) (?P<protocol>[^\"]+)\" (?P<status>\\d+) (?P<bytes>\\d+)', types: {status: int, bytes: int}}}"),
			parsing("none", "the line as one field", ""),
		},
		Targets: []h.Target{h.AtMost("parse: nginx", 3333)},
	}, h.Row{
		Name: "size/idle-pipe", What: "forebay pipe --to file:PATH, resident memory after a line was delivered",
		Unit: "MB", MaxCount: 5,
		Contenders: []h.Contender{{Name: pipe, Kind: h.Ours, Note: "CGO_ENABLED=0, -s -w", Sample: idle}},
		Targets:    []h.Target{h.AtMost(pipe, 12)},
	}, h.Row{
		Name: "size/program", What: "a program that logs one record, CGO_ENABLED=0, -trimpath, -s -w",
		Unit: "MB", Reference: "slog", MaxCount: 1,
		Contenders: []h.Contender{
			linked("Console, File", h.Ours, "", useRoot, "\tlog, err := forebay.New(forebay.Console(os.Stderr), forebay.File(\"app.log\"))\n"+useLog),
			linked("Console, File, Loki", h.Ours, "", useRoot+"\t\"github.com/forebay-log/forebay/loki\"\n",
				"\tlog, err := forebay.New(forebay.Console(os.Stderr), forebay.File(\"app.log\"), loki.To(\"http://localhost:3100\"))\n"+useLog),
			linked("slog", h.Reference, "JSONHandler", "", "\tslog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(\"ready\", \"n\", 1)\n"),
			linked("slog, net/http", h.Reference, "any client of Loki needs net/http", "\t\"net/http\"\n",
				"\t_, err := http.Post(\"http://localhost:3100\", \"\", nil)\n\tslog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(\"ready\", \"err\", err)\n"),
		},
		Targets: []h.Target{h.AtMost("Console, File", 5), h.AtMost("Console, File, Loki", 9)},
	})
}
