package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/snappy"

	h "github.com/forebay-log/forebay/bench/harness"
)

// The daemons are no modules and in no registry: whoever measures names them in the
// environment, as for the tests of integration/fluent. Their columns are not measured without.

const (
	fluentBit = "Fluent Bit"
	fluentd   = "fluentd"
)

// beside adds the columns of the daemons that there are.
func beside(ours []h.Contender, rivals ...h.Contender) []h.Contender {
	for _, c := range rivals {
		if c.Name == fluentBit && os.Getenv("FLUENTBIT") != "" || c.Name == fluentd && os.Getenv("FLUENTD") != "" {
			ours = append(ours, c)
		}
	}
	return ours
}

// runsFluentBit is Fluent Bit with an input and an output.
func runsFluentBit(env *h.Env, input, output string) (*exec.Cmd, error) {
	parsers := filepath.Join(env.Dir, "parsers.conf")
	text := `[PARSER]
  Name rfc5424
  Format regex
  Regex ^<(?<pri>\d+)>1 (?<time>\S+) (?<host>\S+) (?<ident>\S+) (?<pid>\S+) (?<msgid>\S+) (?<sd>-) (?<message>.*)$
[PARSER]
  Name lines
  Format regex
  Regex ^(?<log>.*)$
`
	if err := os.WriteFile(parsers, []byte(text), 0o600); err != nil {
		return nil, err
	}
	file := filepath.Join(env.Dir, "fluent-bit.conf")
	text = "[SERVICE]\n  Flush 0.2\n  Grace 1\n  Log_Level error\n  Parsers_File " + parsers + "\n[INPUT]\n  " + input + "\n[OUTPUT]\n  Match *\n  " + output + "\n"
	return exec.Command(os.Getenv("FLUENTBIT"), "-q", "-c", file), os.WriteFile(file, []byte(text), 0o600)
}

// toFile is an output of Fluent Bit.
func toFile(out, form string) string {
	return fmt.Sprintf("Name file\n  Path %s\n  File %s\n  %s", filepath.Dir(out), filepath.Base(out), form)
}

// tailed is an input of Fluent Bit, with buffers that are larger than its own.
func tailed(in string) string {
	return "Name tail\n  Path " + in + "\n  Read_from_Head on\n  Refresh_Interval 1\n  Buffer_Chunk_Size 512k\n  Buffer_Max_Size 2M"
}

// listening is an input of Fluent Bit at addr.
func listening(addr, rest string) string {
	host, port, _ := strings.Cut(addr, ":")
	return "Listen " + host + "\n  Port " + port + "\n  " + rest
}

// runsFluentd is fluentd with a source and a form of its lines in out.
func runsFluentd(env *h.Env, out, source, format string) (*exec.Cmd, error) {
	tree, err := filepath.Abs(filepath.SplitList(os.Getenv("FLUENTD"))[0])
	if err != nil {
		return nil, err
	}
	file := filepath.Join(env.Dir, "fluentd.conf")
	text := fmt.Sprintf(`<system>
log_level error
</system>
<source>
%s
</source>
<match **>
@type file
path %s
append true
add_path_suffix false
<format>
%s
</format>
<buffer []>
@type memory
chunk_limit_size 8m
total_limit_size 2g
flush_mode interval
flush_interval 0.2s
flush_thread_interval 0.1
</buffer>
</match>
`, source, out, format)
	args := []string{"-W0"}
	for _, lib := range append(filepath.SplitList(os.Getenv("FLUENTD_LIB")), filepath.Join(tree, "lib")) {
		args = append(args, "-I", lib)
	}
	ruby := os.Getenv("RUBY")
	if ruby == "" {
		ruby = "ruby"
	}
	return exec.Command(ruby, append(args, filepath.Join(tree, "bin", "fluentd"), "--no-supervisor", "-c", file)...), os.WriteFile(file, []byte(text), 0o600)
}

// A pushed is a server that takes pushes as Loki does, answers 204 and counts the lines of
// pipeInput.
type pushed struct {
	first, lines atomic.Int64
	bufs         sync.Pool // of *[2]bytes.Buffer: as received, and decompressed
}

func (p *pushed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bufs, _ := p.bufs.Get().(*[2]bytes.Buffer)
	if bufs == nil {
		bufs = new([2]bytes.Buffer)
	}
	defer p.bufs.Put(bufs)
	in := &bufs[0]
	in.Reset()
	in.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := in.ReadFrom(r.Body)
	body := in.Bytes()
	if err == nil && r.Header.Get("Content-Type") == "application/x-protobuf" {
		var n int
		if n, err = snappy.DecodedLen(body); err == nil {
			out := &bufs[1]
			out.Reset()
			out.Grow(n)
			body, err = snappy.Decode(out.AvailableBuffer()[:n], body)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.first.Load() == 0 {
		p.first.Add(int64(bytes.Count(body, []byte("first line"))))
	}
	p.lines.Add(int64(bytes.Count(body, []byte("request served to the client"))))
	w.WriteHeader(http.StatusNoContent)
}

// growingToLoki is growing with a server of Loki's in this process in place of a file.
func growingToLoki(name string, kind h.Kind, note string, size int, command func(env *h.Env, in, addr string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		var got pushed
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		server := &http.Server{Handler: &got, ReadHeaderTimeout: time.Minute}
		go server.Serve(l)
		defer server.Close()
		return follow(env, size, size/30, func(in string) (*exec.Cmd, error) { return command(env, in, l.Addr().String()) }, func() (int, error) {
			return int(got.first.Load() + got.lines.Load()), nil
		})
	}}
}

// fluentBitThree is Fluent Bit that takes lines on its standard input to three files.
func fluentBitThree(env *h.Env) (*exec.Cmd, error) {
	var outs []string
	for i, form := range []string{"Format template\n  Template {log}", "Format plain", "Format ltsv"} {
		outs = append(outs, toFile(filepath.Join(env.Dir, fmt.Sprintf("three-%d.out", i)), form))
	}
	return runsFluentBit(env, "Name stdin\n  Buffer_Size 512k\n  Parser lines", strings.Join(outs, "\n[OUTPUT]\n  Match *\n  "))
}
