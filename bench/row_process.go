package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
)

// program builds forebay as a release does, once per run, and returns its path.
func program(env *h.Env) (string, error) {
	path := filepath.Join(env.Dir, "forebay")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("go", "-C", filepath.Join("..", "cmd"), "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./forebay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
}

// logLine is a part of each line in a file created by linesFile.
const logLine = "request served to the client"

// linesFile creates a file with about size bytes of JSON lines of 300 bytes. It returns the number
// of lines.
func linesFile(env *h.Env, path string, size int) (lines int, err error) {
	if env.Quick {
		size = 1 << 20
	}
	var block bytes.Buffer
	for ; block.Len() < 1<<20; lines++ {
		fmt.Fprintf(&block, `{"time":"2024-05-06T07:08:%02d.%09dZ","level":"INFO","msg":"`+logLine+` in time","method":"GET","path":"/v2/items/%d/parts","status":200,"took":0.1179,"cached":false,"request_id":"a6cecc1b78e510617311d8a3%08x","user":"u-%06d","remote":"10.1.0.%d:51234","agent":"Mozilla/5.0 (X11)"}`+"\n",
			lines%60, lines*7919, 100000+lines, lines, lines, lines%200)
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

// throughPipe returns a contender in which a program copies about size bytes of lines from its
// standard input to the file out. The value of its samples is ns per line.
func throughPipe(name string, kind h.Kind, note string, size int, command func(env *h.Env, out string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		path, out := filepath.Join(env.Dir, "pipe.in"), filepath.Join(env.Dir, "pipe.out")
		lines, err := linesFile(env, path, size)
		if err != nil {
			return nil, err
		}
		defer os.Remove(out)
		cmd, err := command(env, out)
		if err != nil {
			return nil, err
		}
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
		if t, err := rivals.Lines(out); t.Records != uint64(lines) || err != nil {
			return nil, fmt.Errorf("%d of %d lines arrived, %v", t.Records, lines, err)
		}
		return &h.Sample{Value: float64(took) / float64(lines), CPU: processorTime(cmd, lines)}, nil
	}}
}

// processorTime returns the processor time per line of a process that has exited, in ns.
func processorTime(cmd *exec.Cmd, lines int) float64 {
	return float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / float64(lines)
}

func init() {
	const (
		pipe     = "forebay pipe"
		gigabyte = 1_000_000_000
	)
	piping := func(encode string) func(*h.Env, string) (*exec.Cmd, error) {
		return func(env *h.Env, out string) (*exec.Cmd, error) {
			path, err := program(env)
			return exec.Command(path, "pipe", "--quiet", "--encode", encode, "--to", "file:"+out), err
		}
	}
	shell := func(script string) func(*h.Env, string) (*exec.Cmd, error) {
		return func(_ *h.Env, out string) (*exec.Cmd, error) {
			return exec.Command("sh", "-c", script, "sh", out), nil
		}
	}
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
		Targets: []h.Target{h.AtMost("json", h.Time, 667), h.AtMost("logfmt", h.Time, 1000)},
	})
}
