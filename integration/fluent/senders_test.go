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

// A part is a program of a test: it runs until it is killed or told to end.
type part struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	log bytes.Buffer
}

func (p *part) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// runs starts a program, which ends with the test at the latest.
func runs(t *testing.T, args ...string) *part {
	t.Helper()
	p := &part{cmd: exec.Command(args[0], args[1:]...)}
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
			t.Logf("%s says:\n%.4000s", filepath.Base(args[0]), p.said())
		}
	})
	return p
}

// kill ends the program as SIGKILL does.
func (p *part) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// end tells the program to end, and returns what it said.
func (p *part) end(t *testing.T) string {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %v", p.cmd.Args, err)
	}
	return p.said()
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}

// listens waits until somebody listens at addr.
func listens(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "a listener at "+addr, func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// program builds forebay, once.
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

// TestMain removes the program that was built.
func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		if exe, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(exe))
		}
	}
	os.Exit(code)
}

var built bool // a test has asked for the program

func forebay(t *testing.T) string {
	t.Helper()
	built = true
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// write writes a file of the test's directory.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes a certificate of 127.0.0.1 that signs itself.
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
	return write(t, filepath.Join(dir, "cert.pem"), block("CERTIFICATE", der)), write(t, filepath.Join(dir, "key.pem"), block("PRIVATE KEY", bits))
}

// sending is what a test wants of a daemon that sends.
type sending struct {
	key, ca  string // the shared key; the authority, if TLS is on
	compress bool   // gzip
	patience int    // how many seconds it waits for an acknowledgement
}

// tags are those of the files that a sender follows.
var tags = []string{"one", "two"}

// sender starts a daemon that follows the files one and two of dir and sends their lines
// to addr, acknowledged.
func sender(t *testing.T, path, dir, addr string, s sending) *part {
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
		add("net.io_timeout %ds", s.patience)
		when(s.key != "", "Shared_Key %s\nSelf_Hostname sender.test", s.key)
		when(s.ca != "", "tls on\ntls.verify on\ntls.ca_file %s", s.ca)
		when(s.compress, "compress gzip")
		return runs(t, path, "-c", write(t, filepath.Join(dir, "sender.conf"), indented(conf.String())))
	}
	for _, tag := range tags {
		add("<source>\n@type tail\ntag %s\npath %s\npos_file %s.pos\nread_from_head true\nrefresh_interval 1s\n<parse>\n@type none\nmessage_key log\n</parse>\n</source>",
			tag, filepath.Join(dir, tag), filepath.Join(dir, tag))
	}
	add("<match %s>\n@type forward\nrequire_ack_response true\nack_response_timeout %ds", strings.Join(tags, " "), s.patience)
	when(s.compress, "compress gzip")
	when(s.ca != "", "transport tls\ntls_cert_path %s", s.ca)
	when(s.key != "", "<security>\nself_hostname sender.test\nshared_key %s\n</security>", s.key)
	add("<server>\nname localhost\nhost %s\nport %s\n</server>", host, port) // TLS checks the name
	add("<buffer tag>\n@type memory\nchunk_limit_records 500\nflush_interval 0.2s\nflush_thread_interval 0.1\nretry_forever true\nretry_wait 1s\nretry_max_interval 2s\n</buffer>\n</match>")
	args := append(ruby(path), filepath.Join(path, "bin", "fluentd"), "--no-supervisor", "-c", write(t, filepath.Join(dir, "sender.conf"), conf.String()))
	return runs(t, args...)
}

// indented indents the keys below their sections, as Fluent Bit wants them.
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

// grow appends the lines from to to-1 to the files that a sender follows.
func grow(t *testing.T, dir string, from, to int) {
	t.Helper()
	for _, tag := range tags {
		f, err := os.OpenFile(filepath.Join(dir, tag), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < to; i++ {
			fmt.Fprintf(f, "%d %s \"quoted\" \\ ü\n", i, strings.Repeat("x", i%200))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// arrived returns the numbers of the lines of each tag in a file of events, in their order
// there. The last line may be cut: its program was killed.
func arrived(t *testing.T, path string) map[string][]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string][]int{}
	for line := range bytes.Lines(text) {
		var e struct {
			Log, Tag string
			Body     struct{ Log, Tag string } // of receive
		}
		if json.Unmarshal(line, &e) != nil {
			if bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("no event: %s", line)
			}
			continue
		}
		if e.Body.Log != "" {
			e.Log = e.Body.Log
		}
		var n int
		if _, err := fmt.Sscan(e.Log, &n); err != nil || e.Log != fmt.Sprintf("%d %s \"quoted\" \\ ü", n, strings.Repeat("x", n%200)) {
			t.Fatalf("another line: %s", line)
		}
		out[e.Tag] = append(out[e.Tag], n)
	}
	return out
}

// have reports whether each tag has n different lines.
func have(got map[string][]int, n int) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool { return len(distinct(got[tag])) < n })
}

func distinct(ns []int) []int {
	ns = slices.Clone(ns)
	slices.Sort(ns)
	return slices.Compact(ns)
}

// The daemons send to forebay run and to forebay receive, acknowledged, in every way of
// theirs: each event once, in order per tag, and the account says so.
func TestDaemonsSend(t *testing.T) {
	paths := daemons(t)
	exe := forebay(t)
	const n = 3000
	for _, path := range paths {
		for _, name := range []string{"plain", "gzip", "key", "tls", "all"} {
			for _, verb := range []string{"run", "receive"} {
				t.Run(filepath.Base(path)+"/"+name+"/"+verb, func(t *testing.T) {
					t.Parallel()
					dir, s := t.TempDir(), sending{patience: 60}
					all := name == "all"
					s.compress = all || name == "gzip"
					var ours []string
					if all || name == "key" {
						s.key = "s3cr3t"
						ours = append(ours, "shared-key-file", write(t, filepath.Join(dir, "key"), s.key))
					}
					if all || name == "tls" {
						cert, key := certificate(t, dir)
						s.ca = cert
						ours = append(ours, "tls-cert", cert, "tls-key", key)
					}
					addr, out := freeAddr(t), filepath.Join(dir, "out")
					args := []string{exe, verb}
					if verb == "run" {
						in := "type: forward, listen: \"" + addr + "\""
						for i := 0; i < len(ours); i += 2 {
							in += fmt.Sprintf(", %s: %q", ours[i], ours[i+1])
						}
						args = append(args, "-c", write(t, filepath.Join(dir, "run.yaml"),
							fmt.Sprintf("control: none\ninputs: {in: {%s}}\noutputs: {out: {to: %q, encode: json}}\n", in, "file:"+out)))
					} else {
						args = append(args, "--forward="+addr, "--out", out)
						for i := 0; i < len(ours); i += 2 {
							args = append(args, "--"+ours[i], ours[i+1])
						}
					}
					r := runs(t, args...)
					listens(t, addr)
					grow(t, dir, 0, n/2)
					sender(t, path, dir, addr, s)
					eventually(t, "half of the lines", func() bool { return have(arrived(t, out), n/2) })
					grow(t, dir, n/2, n)
					eventually(t, "all lines", func() bool { return have(arrived(t, out), n) })
					said := r.end(t)
					got := arrived(t, out)
					for _, tag := range tags {
						if !slices.Equal(got[tag], upTo(n)) {
							t.Errorf("%s: %d lines, %d different, out of order or more than once: %v", tag, len(got[tag]), len(distinct(got[tag])), firstWrong(got[tag]))
						}
					}
					if want := fmt.Sprintf("accepted=%d delivered=%d", 2*n, 2*n); verb == "run" && !strings.Contains(said, want) {
						t.Errorf("it says %q, want %s", said, want)
					}
					if want := fmt.Sprintf("%d records", 2*n); verb == "receive" && !strings.Contains(said, want) {
						t.Errorf("it says %q, want %s", said, want)
					}
				})
			}
		}
	}
}

// firstWrong returns what stands around the first number that is not in its place.
func firstWrong(ns []int) []int {
	for i, n := range ns {
		if n != i {
			return ns[max(i-2, 0):min(i+3, len(ns))]
		}
	}
	return nil
}

// The destination behind forebay run hangs: no chunk is acknowledged, and the daemon sends
// again after its patience. forebay is killed, and starts again, and the destination goes on:
// no line is missing, and each is there once for each of these times at most.
func TestDaemonsSendAcrossKill(t *testing.T) {
	paths := daemons(t)
	exe := forebay(t)
	const n = 3000
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			dir, addr, behind := t.TempDir(), freeAddr(t), freeAddr(t)
			out, hung := filepath.Join(dir, "out"), filepath.Join(dir, "hung")
			conf := write(t, filepath.Join(dir, "run.yaml"), fmt.Sprintf(`control: none
inputs: {in: {type: forward, listen: %q}}
outputs: {out: {to: "forward://%s", tag-from: tag}}
`, addr, behind))
			destination := func(args ...string) *part {
				p := runs(t, append([]string{exe, "receive", "--forward=" + behind}, args...)...)
				listens(t, behind)
				return p
			}
			begin := func() *part {
				p := runs(t, exe, "run", "-c", conf)
				listens(t, addr)
				return p
			}
			end, ours := destination("--out", out), begin()
			grow(t, dir, 0, n/3)
			d := sender(t, path, dir, addr, sending{patience: 5})
			eventually(t, "the first lines", func() bool { return have(arrived(t, out), n/3) })
			end.kill()
			end = destination("--out", hung, "--stall", "forever")
			grow(t, dir, n/3, 2*n/3)
			impatient := func() int { // how often the daemon has sent again, or will
				said := d.said()
				return strings.Count(said, "no response from") + strings.Count(said, "cannot get ack") + strings.Count(said, "failed to flush chunk")
			}
			eventually(t, "the daemon misses an acknowledgement", func() bool { return impatient() > 0 })
			ours.kill()
			ours = begin()
			end.kill()
			if got := arrived(t, hung); len(got) != 0 {
				t.Errorf("a destination that hangs has taken %v", got)
			}
			end = destination("--out", out)
			grow(t, dir, 2*n/3, n)
			eventually(t, "all lines", func() bool { return have(arrived(t, out), n) })
			ours.end(t)
			end.end(t)
			got, most, again := arrived(t, out), 0, 0
			for _, tag := range tags {
				if !slices.Equal(distinct(got[tag]), upTo(n)) {
					t.Errorf("%s: %d different lines of %d", tag, len(distinct(got[tag])), n)
				}
				copies := map[int]int{}
				for _, k := range got[tag] {
					copies[k]++
					most = max(most, copies[k])
				}
				again += len(got[tag]) - n
			}
			// Besides the daemon's own: its chunk goes once more after the death of ours, and ours
			// after that of each destination.
			if limit := 1 + impatient() + 3; most > limit {
				t.Errorf("a line is there %d times, want %d at most", most, limit)
			}
			t.Logf("%d lines came again, one %d times; the daemon was impatient %d times", again, most, impatient())
		})
	}
}
