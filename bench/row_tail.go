package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/bench/fluent"
	h "github.com/forebay-log/forebay/bench/harness"
)

// The rows of this file run forebay tail and other agents as separate processes. Environment
// variables contain the paths of the other agents.

// A countingServer is a server in this process that counts the lines it receives.
type countingServer struct {
	addr  string
	lines func() int
	close func() error
}

// lokiServer starts a server that accepts pushes in the JSON and protobuf forms of Loki.
func lokiServer() (*countingServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var lines atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Header.Get("Content-Type") == "application/x-protobuf" {
			body, err = snappy.Decode(nil, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines.Add(int64(bytes.Count(body, []byte(logLine))))
		w.WriteHeader(http.StatusNoContent)
	})}
	go server.Serve(l)
	return &countingServer{l.Addr().String(), func() int { return int(lines.Load()) }, server.Close}, nil
}

// forwardServer starts a server of the Forward protocol that decodes and acknowledges chunks.
func forwardServer() (*countingServer, error) {
	r, err := fluent.NewReceiver(false, 0)
	if err != nil {
		return nil, err
	}
	return &countingServer{r.Addr, func() int { return int(r.Events.Load()) }, r.Close}, nil
}

// Number and size of the files of the tail rows, 1 GB in total.
const (
	tailFiles = 20
	tailBytes = 50_000_000 // size of each file
)

// tailing returns a contender in which a program reads the files dir/*.log and sends their lines to
// a server. The value of its samples is processor time per line. The figure MB is the largest
// resident memory of the process.
func tailing(name string, kind h.Kind, note string, open func() (*countingServer, error), command func(env *h.Env, dir, addr string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		dir := filepath.Join(env.Dir, "tail")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		total := 0
		for i := range tailFiles {
			n, err := linesFile(env, filepath.Join(dir, fmt.Sprintf("%02d.log", i)), tailBytes)
			if err != nil {
				return nil, err
			}
			total += n
		}
		to, err := open()
		if err != nil {
			return nil, err
		}
		defer to.close()
		cmd, err := command(env, dir, to.addr)
		if err != nil {
			return nil, err
		}
		var stderr bytes.Buffer
		cmd.Stderr, cmd.WaitDelay = &stderr, 10*time.Second
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		for to.lines() < total {
			if time.Since(begin) > 5*time.Minute {
				return nil, errors.Join(fmt.Errorf("%d of %d lines arrived: %s", to.lines(), total, stderr.Bytes()), cmd.Process.Kill(), cmd.Wait())
			}
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(begin)
		mb := peakMemory(cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that the process has already exited
		kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			return nil, err
		}
		cpu := processorTime(cmd, total)
		return &h.Sample{Value: cpu, CPU: cpu, More: map[string]float64{"MB": mb, "elapsed": float64(took) / float64(total)}}, nil
	}}
}

// peakMemory returns the largest resident memory of a process in MB, or 0 if it is unknown.
func peakMemory(pid int) (mb float64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := strings.Cut(string(b), "VmHWM:"); ok {
		fmt.Sscan(rest, &mb)
	}
	return mb * 1024 / 1e6
}

// ourTail returns a function that returns the command "forebay tail", with a destination whose
// address has the given scheme, and with more arguments.
func ourTail(scheme string, more ...string) func(*h.Env, string, string) (*exec.Cmd, error) {
	return func(env *h.Env, dir, addr string) (*exec.Cmd, error) {
		path, err := program(env)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		args := append([]string{"tail", "--quiet", "--from", "start", "--time", "now", "--to", scheme + addr}, more...)
		return exec.Command(path, append(args, files...)...), err
	}
}

// fromEnv returns the command of a daemon whose path is in an environment variable.
func fromEnv(variable string, args ...string) (*exec.Cmd, error) {
	path := os.Getenv(variable)
	if path == "" {
		return nil, fmt.Errorf("%w: set %s to the path of the program", h.ErrAbsent, variable)
	}
	return exec.Command(path, args...), nil
}

// fluentBitTail returns a function that returns the command of Fluent Bit with the given output and
// further options of the input. Its buffers are larger than the defaults.
func fluentBitTail(input, output string) func(*h.Env, string, string) (*exec.Cmd, error) {
	return func(env *h.Env, dir, addr string) (*exec.Cmd, error) {
		host, port, _ := strings.Cut(addr, ":")
		file, parsers := filepath.Join(env.Dir, "fluent-bit.conf"), filepath.Join(env.Dir, "parsers.conf")
		if err := os.WriteFile(parsers, []byte("[PARSER]\n  Name line\n  Format json\n"), 0o600); err != nil {
			return nil, err
		}
		text := "[SERVICE]\n  Flush 0.2\n  Grace 1\n  Log_Level error\n  Parsers_File " + parsers + "\n[INPUT]\n  Name tail\n  Path " + filepath.Join(dir, "*.log") +
			"\n  Read_from_Head on\n  Refresh_Interval 1\n  Buffer_Chunk_Size 512k\n  Buffer_Max_Size 2M\n  " + input +
			"\n[OUTPUT]\n  Match *\n  Host " + host + "\n  Port " + port + "\n  " + output + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return fromEnv("FLUENTBIT", "-q", "-c", file)
	}
}

// promtail returns the command of promtail, without listeners and with a new positions file.
func promtail(env *h.Env, dir, addr string) (*exec.Cmd, error) {
	file, positions := filepath.Join(env.Dir, "promtail.yaml"), filepath.Join(env.Dir, "positions.yaml")
	text := fmt.Sprintf(`server: {disable: true}
positions: {filename: %q}
clients: [{url: "http://%s/loki/api/v1/push"}]
scrape_configs:
- job_name: bench
  static_configs: [{targets: [localhost], labels: {job: bench, __path__: %q}}]
`, positions, addr, filepath.Join(dir, "*.log"))
	os.Remove(positions) // of an earlier sample
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return fromEnv("PROMTAIL", "-config.file="+file)
}

func init() {
	const (
		tail      = "forebay tail"
		fluentBit = "Fluent Bit"
		// The lines are passed on as text.
		tailText, fluentBitText = tail + ", text", fluentBit + ", text"

		acked = "Name forward\n  Require_ack_response on"
		files = "1 GB of lines of 300 B in 20 files, read from the start into a server in this process; processor time of the program per line, MB of its largest resident memory"
	)
	h.Register(h.Row{
		Name: "tail/loki", What: files,
		Unit: "cpu ns/line", MaxCount: 3, MinCPU: 2,
		Contenders: []h.Contender{
			tailing(tail, h.Ours, "--from start --time now --to loki://ADDR", lokiServer, ourTail("loki://")),
			tailing(fluentBit, h.Rival, "$FLUENTBIT, in_tail, out_loki", lokiServer, fluentBitTail("", "Name loki\n  Labels job=bench\n  Line_Format key_value\n  Drop_Single_Key raw")),
			tailing("promtail", h.Rival, "$PROMTAIL", lokiServer, promtail),
		},
		Targets: []h.Target{h.VersusFastest(tail, 0.5), h.Above(tail, fluentBit, h.Figure("MB"), 0), h.Above(tail, "promtail", h.Figure("MB"), 0)},
	}, h.Row{
		Name: "tail/forward", What: files + "; each chunk is acknowledged",
		Unit: "cpu ns/line", MaxCount: 3, MinCPU: 2,
		Contenders: []h.Contender{
			tailing(tail, h.Ours, "--from start --time now --to forward://ADDR; the members of a line are fields", forwardServer, ourTail("forward://")),
			tailing(fluentBit, h.Rival, "$FLUENTBIT, in_tail with a JSON parser, out_forward, Require_ack_response", forwardServer, fluentBitTail("Parser line", acked)),
			tailing(tailText, h.Ours, "and --format text; a line is one field", forwardServer, ourTail("forward://", "--format", "text")),
			tailing(fluentBitText, h.Rival, "without a parser", forwardServer, fluentBitTail("", acked)),
		},
		Targets: []h.Target{h.Versus(tail, fluentBit, 0.9), h.Versus(tailText, fluentBitText, 0.9)},
	})
}
