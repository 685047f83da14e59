package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/fluent"
)

// A server is a program that takes records and writes them to a file.
type server struct {
	name string
	kind h.Kind
	note string
	// begin starts it, so that it takes records at addr and writes them to out.
	begin func(env *h.Env, addr, out string) (*exec.Cmd, error)
}

// configured is forebay run with an input and a file.
func configured(input string) func(*h.Env, string, string) (*exec.Cmd, error) {
	return func(env *h.Env, addr, out string) (*exec.Cmd, error) {
		path, err := program(env)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(env.Dir, "run.yaml")
		text := fmt.Sprintf("control: none\ninputs: {in: {%s}}\noutputs: {out: {to: %q}}\n", fmt.Sprintf(input, addr), "file:"+out)
		return exec.Command(path, "run", "-q", "-c", file), os.WriteFile(file, []byte(text), 0o600)
	}
}

// rsyslog is rsyslogd that writes messages as they came.
func rsyslog(env *h.Env, addr, out string) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(env.Dir, "rsyslog.conf")
	text := `global(workDirectory="` + env.Dir + `" maxMessageSize="64k")
module(load="imtcp")
template(name="raw" type="string" string="%rawmsg%\n")
input(type="imtcp" address="127.0.0.1" port="` + port + `")
action(type="omfile" file="` + out + `" template="raw" ioBufferSize="64k" flushOnTXEnd="off" asyncWriting="on" flushInterval="1")
`
	return exec.Command("rsyslogd", "-n", "-f", file, "-i", filepath.Join(env.Dir, "rsyslog.pid")), os.WriteFile(file, []byte(text), 0o600)
}

// freePort returns an address of this machine where nobody listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// taking makes a contender that takes n records from send, and has written them; ns a record.
func taking(s server, n int, send func(c net.Conn, n int) error) h.Contender {
	return h.Contender{Name: s.name, Kind: s.kind, Note: s.note, Sample: func(env *h.Env) (*h.Sample, error) {
		n := n
		if env.Quick {
			n = 20 * perChunk
		}
		addr, err := freePort()
		if err != nil {
			return nil, err
		}
		out := filepath.Join(env.Dir, "run.out")
		defer os.Remove(out)
		cmd, err := s.begin(env, addr, out)
		if err != nil {
			return nil, err
		}
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		var c net.Conn
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if c, err = net.Dial("tcp", addr); err == nil {
				break
			}
			if time.Now().After(end) {
				return nil, fmt.Errorf("it does not listen: %w: %s", err, said.Bytes())
			}
		}
		defer c.Close()
		begin := time.Now()
		if err := send(c, n); err != nil {
			return nil, fmt.Errorf("%w: %s", err, said.Bytes())
		}
		written := counter{path: out}
		for at := 0; at < n; time.Sleep(time.Millisecond) {
			if at, err = written.count(); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			if time.Since(begin) > 2*time.Minute {
				return nil, fmt.Errorf("%d of %d records are there: %s", at, n, said.Bytes())
			}
		}
		took := time.Since(begin)
		rss := resident(cmd.Process.Pid)
		cpu := cpuOf(cmd.Process)
		return &h.Sample{Value: float64(took) / float64(n), Ops: n, CPU: float64(cpu) / float64(n), More: map[string]float64{"MB": rss}}, nil
	}}
}

// A counter counts the lines of a file that grows, each once.
type counter struct {
	path  string
	off   int64
	lines int
	buf   []byte
}

// count returns how many lines there are now.
func (c *counter) count() (int, error) {
	f, err := os.Open(c.path)
	if err != nil {
		return c.lines, err
	}
	defer f.Close()
	if c.buf == nil {
		c.buf = make([]byte, 1<<20)
	}
	for {
		k, err := f.ReadAt(c.buf, c.off)
		c.off += int64(k)
		c.lines += bytes.Count(c.buf[:k], []byte{'\n'})
		if err == io.EOF {
			return c.lines, nil
		}
		if err != nil {
			return c.lines, err
		}
	}
}

// cpuOf ends a process and returns the time that it has used.
func cpuOf(p *os.Process) time.Duration {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	st, err := p.Wait()
	if err != nil {
		return 0
	}
	return st.UserTime() + st.SystemTime()
}

const perChunk = 1000 // records of a chunk

const runLine = `{"level":"INFO","msg":"request served to the client in time","method":"GET","path":"/v2/items/100017/parts","status":200,"took":0.1179,"cached":false,"request_id":"a6cecc1b78e510617311d8a300000001","user":"u-000017"}`

// sendForward sends n records in chunks, of which at most 8 are not acknowledged.
func sendForward(c net.Conn, n int) error {
	var entries []byte
	var err error
	for range perChunk {
		if entries, err = fluent.AppendJSONEvent(entries, time.Unix(1_700_000_000, 0), []byte(runLine)); err != nil {
			return err
		}
	}
	msg := append([]byte{0x93, 0xa5}, "bench"...)
	msg = append(binary.BigEndian.AppendUint32(append(msg, 0xc6), uint32(len(entries))), entries...)
	msg = append(append(msg, 0x81, 0xa5), "chunk"...)
	msg = append(msg, 0xa8)
	room := make(chan struct{}, 8)
	acks := make(chan error, 1)
	const ack = 1 + 4 + 1 + 8 // {"ack": 8 bytes}
	go func() {
		buf := make([]byte, ack)
		for range n / perChunk {
			if _, err := io.ReadFull(c, buf); err != nil {
				acks <- err
				return
			}
			<-room
		}
		acks <- nil
	}()
	for i := range n / perChunk {
		select {
		case room <- struct{}{}:
		case err := <-acks:
			return fmt.Errorf("an acknowledgement is missing: %w", err)
		}
		if _, err := c.Write(append(msg[:len(msg):len(msg)], fmt.Sprintf("%08d", i)...)); err != nil {
			return err
		}
	}
	return <-acks
}

// sendSyslog sends n messages of RFC 5424, a line each.
func sendSyslog(c net.Conn, n int) error {
	var block bytes.Buffer
	for range perChunk {
		fmt.Fprintf(&block, "<134>1 2024-05-06T07:08:09.123456Z web1 shop 4711 - - %s\n", runLine)
	}
	for range n / perChunk {
		if _, err := c.Write(block.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// growing makes a contender that follows a file which grows by size bytes as fast as it can
// be written, and writes its lines to another; ns a line.
func growing(name string, kind h.Kind, note string, size int, command func(env *h.Env, in, out string) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		out := filepath.Join(env.Dir, "tail.out")
		defer os.Remove(out)
		written := counter{path: out}
		return follow(env, size, 0, func(in string) (*exec.Cmd, error) { return command(env, in, out) }, written.count)
	}}
}

// follow starts what follows a file, and has the file grow. The time ends when all lines but
// those of the last late bytes have arrived. count returns how many lines have
// arrived; an error is that there is nothing yet.
func follow(env *h.Env, size, late int, command func(in string) (*exec.Cmd, error), count func() (int, error)) (*h.Sample, error) {
	path, lines, err := pipeInput(env, size)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	in := filepath.Join(env.Dir, "tail.in")
	defer os.Remove(in)
	f, err := os.Create(in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.WriteString("first line\n"); err != nil {
		return nil, err
	}
	cmd, err := command(in)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	wait := func(n int) error {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			got, err := count()
			if err == nil && got >= n {
				return nil
			}
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d lines are there: %s", got, n, said.Bytes())
			}
		}
	}
	if err := wait(1); err != nil {
		return nil, err
	}
	begin := time.Now()
	for rest := text; len(rest) > 0; {
		k := min(len(rest), 64<<10)
		if _, err := f.Write(rest[:k]); err != nil {
			return nil, err
		}
		rest = rest[k:]
	}
	late = late * lines / size
	if err := wait(1 + lines - late); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	if err := wait(1 + lines); err != nil {
		return nil, err
	}
	rss := resident(cmd.Process.Pid)
	cpu := cpuOf(cmd.Process)
	return &h.Sample{Value: float64(took) / float64(lines-late), Ops: lines, CPU: float64(cpu) / float64(lines), More: map[string]float64{"MB": rss}}, nil
}

// resident returns the most memory that a process had resident; MB.
func resident(pid int) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, " kB", 2)[0]))
	return float64(kb) * 1024 / 1e6
}

// firstRecord measures the time from the start of the program to its first record on the
// disk; ms.
func firstRecord(env *h.Env) (*h.Sample, error) {
	path, err := program(env)
	if err != nil {
		return nil, err
	}
	file, out := filepath.Join(env.Dir, "start.yaml"), filepath.Join(env.Dir, "start.out")
	defer os.Remove(out)
	text := fmt.Sprintf("inputs: {in: {type: stdin}}\noutputs: {out: {to: %q, flush-interval: 1ms}}\n", "file:"+out)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "run", "-q", "-c", file)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := io.WriteString(in, "one line\n"); err != nil {
		return nil, err
	}
	for end := begin.Add(10 * time.Second); ; time.Sleep(200 * time.Microsecond) {
		if n, _ := countLines(out); n == 1 {
			return &h.Sample{Value: float64(time.Since(begin)) / 1e6, Ops: 1}, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("the line was not delivered")
		}
	}
}

// oursThree is forebay run that takes lines on its standard input to three files.
func oursThree(env *h.Env) (*exec.Cmd, error) {
	path, err := program(env)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(env.Dir, "three.yaml")
	var outs strings.Builder
	for i, form := range []string{"raw", "json", "logfmt"} {
		fmt.Fprintf(&outs, "  o%d: {to: %q, encode: %s}\n", i, "file:"+filepath.Join(env.Dir, fmt.Sprintf("three-%d.out", i)), form)
	}
	return exec.Command(path, "run", "-q", "-c", file), os.WriteFile(file, []byte("inputs: {in: {type: stdin}}\noutputs:\n"+outs.String()), 0o600)
}

// threeOutputs makes a contender whose figure is its memory beside 100,000 lines a second to
// three files for three seconds; MB.
func threeOutputs(name string, kind h.Kind, note string, command func(env *h.Env) (*exec.Cmd, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		cmd, err := command(env)
		if err != nil {
			return nil, err
		}
		for i := range 3 {
			defer os.Remove(filepath.Join(env.Dir, fmt.Sprintf("three-%d.out", i)))
		}
		return paced(env, cmd)
	}}
}

// paced gives 100,000 lines a second to a program, and returns its memory.
func paced(env *h.Env, cmd *exec.Cmd) (*h.Sample, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	defer in.Close()
	block := []byte(strings.Repeat(runLine+"\n", 1000))
	rounds := 300
	if env.Quick {
		rounds = 3
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range rounds {
		<-tick.C
		if _, err := in.Write(block); err != nil {
			return nil, err
		}
	}
	return &h.Sample{Value: resident(cmd.Process.Pid), Ops: 1000 * rounds}, nil
}

func init() {
	const records = 1_000_000
	syslog := []h.Contender{taking(server{"forebay run", h.Ours, "type: syslog", configured(`type: syslog, listen: "tcp://%s"`)}, records, sendSyslog)}
	verdict := []func(*h.Result) []h.Check{h.AtMost("forebay run", 1667)}
	if _, err := exec.LookPath("rsyslogd"); err == nil {
		syslog = append(syslog, taking(server{"rsyslog", h.Rival, "imtcp, omfile, messages as they came, asynchronous writing", rsyslog}, records, sendSyslog))
		verdict = append(verdict, h.Versus("forebay run", "rsyslog", 1))
	}
	syslog = beside(syslog, taking(server{fluentBit, h.Rival, "in_syslog with a regex for RFC 5424, out_file, the messages' text", func(env *h.Env, addr, out string) (*exec.Cmd, error) {
		return runsFluentBit(env, "Name syslog\n  Mode tcp\n  Parser rfc5424\n  Buffer_Chunk_Size 256k\n  Buffer_Max_Size 1M\n  "+listening(addr, ""), toFile(out, "Format template\n  Template {message}"))
	}}, records, sendSyslog))
	h.Register(h.Row{
		Name: "run/forward-file", What: fmt.Sprintf("1 M records of %d B over the Forward protocol in chunks of %d, 8 of them not acknowledged, into a file; from the first byte until all are in the file; CPU is the program's", len(runLine), perChunk),
		Target: "≥ 700 k records/s (1429 ns), ≥ 3 × fluentd", Unit: "ns/record", MaxCount: 5, MinCPU: 2,
		Contenders: beside([]h.Contender{taking(server{"forebay run", h.Ours, "type: forward", configured(`type: forward, listen: "%s"`)}, records, sendForward)},
			taking(server{fluentBit, h.Rival, "in_forward, out_file as JSON; it acknowledges what is in its memory", func(env *h.Env, addr, out string) (*exec.Cmd, error) {
				return runsFluentBit(env, "Name forward\n  Buffer_Chunk_Size 1M\n  Buffer_Max_Size 8M\n  "+listening(addr, ""), toFile(out, "Format plain"))
			}}, records, sendForward),
			taking(server{fluentd, h.Rival, "in_forward, out_file as JSON, 200 k records; it acknowledges what is in its memory", func(env *h.Env, addr, out string) (*exec.Cmd, error) {
				host, port, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				return runsFluentd(env, out, "@type forward\nbind "+host+"\nport "+port, "@type json")
			}}, records/5, sendForward)),
		Verdict: h.Verdict(h.AtMost("forebay run", 1429), h.Versus("forebay run", fluentd, 1./3)),
	}, h.Row{
		Name: "run/syslog-file", What: fmt.Sprintf("1 M messages of RFC 5424 with %d B of text over TCP, into a file; until all are in the file; CPU is the program's", len(runLine)),
		Target: "≥ 600 k messages/s (1667 ns), ≤ 1 × rsyslog", Unit: "ns/record", MaxCount: 5, MinCPU: 2,
		Contenders: syslog,
		Verdict:    h.Verdict(verdict...),
	}, h.Row{
		Name: "run/tail-file", What: fmt.Sprintf("a file that grows by 300 MB of lines of %d B, as fast as it is written, followed into a file", pipeLine),
		Target: "≥ 1.5 M lines/s (667 ns), ≤ 64 MB, ≥ 2 × Fluent Bit", Unit: "ns/line", Reference: "tail -F", MaxCount: 5, MinCPU: 2,
		Contenders: beside([]h.Contender{
			growing("forebay tail", h.Ours, "--from start --to file:PATH", 300_000_000, func(env *h.Env, in, out string) (*exec.Cmd, error) {
				path, err := program(env)
				return exec.Command(path, "tail", "--quiet", "--from", "start", "--to", "file:"+out, in), err
			}),
			growing("tail -F", h.Reference, "a copy, no lines", 300_000_000, func(_ *h.Env, in, out string) (*exec.Cmd, error) {
				return exec.Command("sh", "-c", `exec tail -n +1 -F "$1" > "$2"`, "sh", in, out), nil
			}),
		}, growing(fluentBit, h.Rival, "in_tail, out_file, the lines alone", 300_000_000, func(env *h.Env, in, out string) (*exec.Cmd, error) {
			return runsFluentBit(env, tailed(in), toFile(out, "Format template\n  Template {log}"))
		}), growing(fluentd, h.Rival, "in_tail, out_file, the lines alone, 60 MB", 60_000_000, func(env *h.Env, in, out string) (*exec.Cmd, error) {
			return runsFluentd(env, out, "@type tail\ntag t\npath "+in+"\nread_from_head true\n<parse>\n@type none\n</parse>", "@type single_value")
		})),
		Verdict: h.Verdict(h.AtMost("forebay tail", 667), h.Figure("forebay tail", "MB", 64), h.Versus("forebay tail", fluentBit, 0.5)),
	}, h.Row{
		Name: "run/tail-loki", What: fmt.Sprintf("a file that grows by 300 MB of lines of %d B, as fast as it is written, followed into pushes to a server in this process, which counts the lines and answers 204; until all but the last 10 MB are there, for which both wait until a batch is full or old", pipeLine),
		Target: "≥ 500 k lines/s (2000 ns), ≤ 64 MB, ≥ 2 × Fluent Bit", Unit: "ns/line", MaxCount: 5, MinCPU: 2,
		Contenders: beside([]h.Contender{
			growingToLoki("forebay tail", h.Ours, "--from start --time now --to loki://ADDR", 300_000_000, func(env *h.Env, in, addr string) (*exec.Cmd, error) {
				path, err := program(env)
				return exec.Command(path, "tail", "--quiet", "--from", "start", "--time", "now", "--to", "loki://"+addr, in), err
			}),
		}, growingToLoki(fluentBit, h.Rival, "in_tail, out_loki", 300_000_000, func(env *h.Env, in, addr string) (*exec.Cmd, error) {
			host, port, _ := strings.Cut(addr, ":")
			return runsFluentBit(env, tailed(in), "Name loki\n  Host "+host+"\n  Port "+port+"\n  Labels job=bench\n  Line_Format key_value\n  Drop_Single_Key raw")
		})),
		Verdict: h.Verdict(h.AtMost("forebay tail", 2000), h.Figure("forebay tail", "MB", 64), h.Versus("forebay tail", fluentBit, 0.5)),
	}, h.Row{
		Name: "run/start", What: "forebay run from its start to the first record in a file",
		Target: "≤ 50 ms", Unit: "ms", MaxCount: 5,
		Contenders: []h.Contender{{Name: "forebay run", Kind: h.Ours, Sample: firstRecord}},
		Verdict:    h.AtMost("forebay run", 50),
	}, h.Row{
		Name: "run/three-outputs", What: "the most memory that forebay run has resident with 100,000 lines a second to three files: raw, JSON, logfmt",
		Target: "≤ 60 MB", Unit: "MB", MaxCount: 3, MinCPU: 2,
		Contenders: beside([]h.Contender{threeOutputs("forebay run", h.Ours, "", oursThree)},
			threeOutputs(fluentBit, h.Rival, "in_stdin; raw, JSON, LTSV", fluentBitThree)),
		Verdict: h.AtMost("forebay run", 60),
	})
}
