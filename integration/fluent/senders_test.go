package fluent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a program that a test has started. It runs until the test kills or stops it.
type process struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	log bytes.Buffer
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startProcess starts a program, which is killed when the test ends.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(args[0], args[1:]...)}
	note := writer(func(b []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log.Write(b)
	})
	p.cmd.Stdout, p.cmd.Stderr = note, note
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%.4000s", filepath.Base(args[0]), p.output())
		}
	})
	return p
}

// kill kills the program with SIGKILL.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// stop sends SIGTERM to the program, waits until it exits, and returns its output.
func (p *process) stop(t *testing.T) string {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %v", p.cmd.Args, err)
	}
	return p.output()
}

// eventually waits until the function ok returns true. The parameter what describes the condition
// in the error.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("timeout while waiting for: %s", what)
		}
	}
}

// awaitListener waits until a process listens at addr.
func awaitListener(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "a listener at "+addr, func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// program builds forebay when it is first called, and returns the path of the program.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "forebay")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "forebay")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "..", "cmd"), "build", "-o", exe, "./forebay").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
})

// TestMain removes the program that the tests have built.
func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		if exe, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(exe))
		}
	}
	os.Exit(code)
}

var built bool // a test has called program

func forebay(t *testing.T) string {
	t.Helper()
	built = true
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// writeFile writes text to a file and returns the path of the file.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate creates a self-signed certificate for 127.0.0.1, and writes it and its key to files
// in dir.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	bits, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return writeFile(t, filepath.Join(dir, "cert.pem"), block("CERTIFICATE", der)), writeFile(t, filepath.Join(dir, "key.pem"), block("PRIVATE KEY", bits))
}

// senderOptions configures a daemon that sends events.
type senderOptions struct {
	key, ca    string // the shared key; the file of the certificate authority, or "" without TLS
	compress   bool   // compress with gzip
	ackTimeout int    // timeout for an acknowledgement in seconds
}

// tags contains the tags of the events, which are also the names of the files that a sender
// follows.
var tags = []string{"one", "two"}

// startSender starts a daemon that follows the files in dir that are named like the tags. It sends
// their lines to addr, with acknowledgements.
func startSender(t *testing.T, path, dir, addr string, s senderOptions) *process {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var conf strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&conf, format+"\n", args...) }
	when := func(ok bool, format string, args ...any) {
		if ok {
			add(format, args...)
		}
	}
	if !isFluentd(path) {
		add("[SERVICE]\nFlush 0.2\nGrace 1\nscheduler.base 1\nscheduler.cap 2")
		for _, tag := range tags {
			add("[INPUT]\nName tail\nTag %s\nPath %s\nRead_from_Head on\nRefresh_Interval 1", tag, filepath.Join(dir, tag))
		}
		add("[OUTPUT]\nName forward\nMatch *\nHost %s\nPort %s\nRequire_ack_response on\nRetry_Limit no_limits\nWorkers 1", host, port)
		add("net.io_timeout %ds", s.ackTimeout)
		when(s.key != "", "Shared_Key %s\nSelf_Hostname sender.test", s.key)
		when(s.ca != "", "tls on\ntls.verify on\ntls.ca_file %s", s.ca)
		when(s.compress, "compress gzip")
		return startProcess(t, path, "-c", writeFile(t, filepath.Join(dir, "sender.conf"), indented(conf.String())))
	}
	for _, tag := range tags {
		add("<source>\n@type tail\ntag %s\npath %s\npos_file %s.pos\nread_from_head true\nrefresh_interval 1s\n<parse>\n@type none\nmessage_key log\n</parse>\n</source>",
			tag, filepath.Join(dir, tag), filepath.Join(dir, tag))
	}
	add("<match %s>\n@type forward\nrequire_ack_response true\nack_response_timeout %ds", strings.Join(tags, " "), s.ackTimeout)
	when(s.compress, "compress gzip")
	when(s.ca != "", "transport tls\ntls_cert_path %s", s.ca)
	when(s.key != "", "<security>\nself_hostname sender.test\nshared_key %s\n</security>", s.key)
	add("<server>\nname localhost\nhost %s\nport %s\n</server>", host, port) // the name is verified with TLS
	add("<buffer tag>\n@type memory\nchunk_limit_records 500\nflush_interval 0.2s\nflush_thread_interval 0.1\nretry_forever true\nretry_wait 1s\nretry_max_interval 2s\n</buffer>\n</match>")
	args := append(rubyCommand(path), filepath.Join(path, "bin", "fluentd"), "--no-supervisor", "-c", writeFile(t, filepath.Join(dir, "sender.conf"), conf.String()))
	return startProcess(t, args...)
}

// indented indents the keys below the section lines, as Fluent Bit requires.
func indented(conf string) string {
	var out strings.Builder
	for line := range strings.Lines(conf) {
		if !strings.HasPrefix(line, "[") {
			out.WriteString("  ")
		}
		out.WriteString(line)
	}
	return out.String()
}

// appendLines appends the lines with numbers in [first, end) to each file that a sender follows.
func appendLines(t *testing.T, dir string, first, end int) {
	t.Helper()
	for _, tag := range tags {
		f, err := os.OpenFile(filepath.Join(dir, tag), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for i := first; i < end; i++ {
			fmt.Fprintf(f, "%d %s \"quoted\" \\ ü\n", i, strings.Repeat("x", i%200))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// received returns the numbers of the lines in the file path, by tag and in order. The last line
// may be incomplete, because the program that wrote the file may have been killed.
func received(t *testing.T, path string) map[string][]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string][]int{}
	for line := range bytes.Lines(text) {
		var e struct {
			Log, Tag string
			Body     struct{ Log, Tag string } // forebay receive writes the event here
		}
		if json.Unmarshal(line, &e) != nil {
			if bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("the line is not JSON: %s", line)
			}
			continue
		}
		if e.Body.Log != "" {
			e.Log = e.Body.Log
		}
		var n int
		if _, err := fmt.Sscan(e.Log, &n); err != nil || e.Log != fmt.Sprintf("%d %s \"quoted\" \\ ü", n, strings.Repeat("x", n%200)) {
			t.Fatalf("unexpected line: %s", line)
		}
		out[e.Tag] = append(out[e.Tag], n)
	}
	return out
}

// haveAll reports whether at least n different lines of each tag were received.
func haveAll(got map[string][]int, n int) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool { return len(distinct(got[tag])) < n })
}

func distinct(ns []int) []int {
	ns = slices.Clone(ns)
	slices.Sort(ns)
	return slices.Compact(ns)
}

// The daemons send acknowledged events to forebay run and forebay receive, with every compression
// and security option that they support. Each event arrives once, the events of a tag are in order,
// and the account counts all events.
func TestDaemonsSend(t *testing.T) {
	paths := daemonPaths(t)
	exe := forebay(t)
	const n = 3000
	for _, path := range paths {
		for _, name := range []string{"plain", "gzip", "key", "tls", "all"} {
			for _, verb := range []string{"run", "receive"} {
				t.Run(filepath.Base(path)+"/"+name+"/"+verb, func(t *testing.T) {
					t.Parallel()
					dir, s := t.TempDir(), senderOptions{ackTimeout: 60}
					all := name == "all"
					s.compress = all || name == "gzip"
					var flags []string
					if all || name == "key" {
						s.key = "s3cr3t"
						flags = append(flags, "shared-key-file", writeFile(t, filepath.Join(dir, "key"), s.key))
					}
					if all || name == "tls" {
						cert, key := certificate(t, dir)
						s.ca = cert
						flags = append(flags, "tls-cert", cert, "tls-key", key)
					}
					addr, out := freeAddr(t), filepath.Join(dir, "out")
					args := []string{exe, verb}
					if verb == "run" {
						in := "type: forward, listen: \"" + addr + "\""
						for i := 0; i < len(flags); i += 2 {
							in += fmt.Sprintf(", %s: %q", flags[i], flags[i+1])
						}
						args = append(args, "-c", writeFile(t, filepath.Join(dir, "run.yaml"),
							fmt.Sprintf("control: none\ninputs: {in: {%s}}\noutputs: {out: {to: %q, encode: json}}\n", in, "file:"+out)))
					} else {
						args = append(args, "--forward="+addr, "--out", out)
						for i := 0; i < len(flags); i += 2 {
							args = append(args, "--"+flags[i], flags[i+1])
						}
					}
					r := startProcess(t, args...)
					awaitListener(t, addr)
					appendLines(t, dir, 0, n/2)
					startSender(t, path, dir, addr, s)
					eventually(t, "half of the lines", func() bool { return haveAll(received(t, out), n/2) })
					appendLines(t, dir, n/2, n)
					eventually(t, "all lines", func() bool { return haveAll(received(t, out), n) })
					output := r.stop(t)
					got := received(t, out)
					for _, tag := range tags {
						if !slices.Equal(got[tag], upTo(n)) {
							t.Errorf("%s: got %d lines, %d different, the first missing, repeated or misplaced one within %v", tag, len(got[tag]), len(distinct(got[tag])), firstWrong(got[tag]))
						}
					}
					if want := fmt.Sprintf("accepted=%d delivered=%d", 2*n, 2*n); verb == "run" && !strings.Contains(output, want) {
						t.Errorf("output %q, want %s", output, want)
					}
					if want := fmt.Sprintf("%d records", 2*n); verb == "receive" && !strings.Contains(output, want) {
						t.Errorf("output %q, want %s", output, want)
					}
				})
			}
		}
	}
}

// firstWrong returns the numbers around the first one that is missing, repeated or out of order.
func firstWrong(ns []int) []int {
	for i, n := range ns {
		if n != i {
			return ns[max(i-2, 0):min(i+3, len(ns))]
		}
	}
	return nil
}

// The destination of forebay run hangs, so forebay acknowledges no chunk, and the daemon sends
// chunks again after a timeout. forebay is killed and restarted, and the destination continues. No
// line is missing, and the number of copies of a line is bounded.
func TestDaemonsSendAcrossKill(t *testing.T) {
	paths := daemonPaths(t)
	exe := forebay(t)
	const n = 3000
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			dir, addr, destAddr := t.TempDir(), freeAddr(t), freeAddr(t)
			out, hung := filepath.Join(dir, "out"), filepath.Join(dir, "hung")
			conf := writeFile(t, filepath.Join(dir, "run.yaml"), fmt.Sprintf(`control: none
inputs: {in: {type: forward, listen: %q}}
outputs: {out: {to: "forward://%s", tag-from: tag}}
`, addr, destAddr))
			destination := func(args ...string) *process {
				p := startProcess(t, append([]string{exe, "receive", "--forward=" + destAddr}, args...)...)
				awaitListener(t, destAddr)
				return p
			}
			begin := func() *process {
				p := startProcess(t, exe, "run", "-c", conf)
				awaitListener(t, addr)
				return p
			}
			dest, forebayRun := destination("--out", out), begin()
			appendLines(t, dir, 0, n/3)
			d := startSender(t, path, dir, addr, senderOptions{ackTimeout: 5})
			eventually(t, "the first lines", func() bool { return haveAll(received(t, out), n/3) })
			dest.kill()
			dest = destination("--out", hung, "--stall", "forever")
			appendLines(t, dir, n/3, 2*n/3)
			resends := func() int { // returns the number of chunks that the daemon has sent again, or is about to send again
				output := d.output()
				return strings.Count(output, "no response from") + strings.Count(output, "cannot get ack") + strings.Count(output, "failed to flush chunk")
			}
			eventually(t, "the daemon misses an acknowledgement", func() bool { return resends() > 0 })
			forebayRun.kill()
			forebayRun = begin()
			dest.kill()
			if got := received(t, hung); len(got) != 0 {
				t.Errorf("the hanging destination has accepted %v", got)
			}
			dest = destination("--out", out)
			appendLines(t, dir, 2*n/3, n)
			eventually(t, "all lines", func() bool { return haveAll(received(t, out), n) })
			forebayRun.stop(t)
			dest.stop(t)
			got, maxCopies, repeated := received(t, out), 0, 0
			for _, tag := range tags {
				if !slices.Equal(distinct(got[tag]), upTo(n)) {
					t.Errorf("%s: got %d different lines, want %d", tag, len(distinct(got[tag])), n)
				}
				copies := map[int]int{}
				for _, k := range got[tag] {
					copies[k]++
					maxCopies = max(maxCopies, copies[k])
				}
				repeated += len(got[tag]) - n
			}
			// A line may arrive several times. The daemon sends a chunk again after forebay was
			// killed, and forebay sends a chunk again after each kill of a destination.
			if limit := 1 + resends() + 3; maxCopies > limit {
				t.Errorf("a line has %d copies, want at most %d", maxCopies, limit)
			}
			t.Logf("%d repeated lines, up to %d copies of a line; the daemon sent %d chunks again", repeated, maxCopies, resends())
		})
	}
}
