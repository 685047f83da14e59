package netsink

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/transport"
)

// A receiver is a listener on the loopback interface that can be killed and restarted at the same
// address.
type receiver struct {
	t    *testing.T
	addr net.Addr
	wrap func(net.Conn) net.Conn

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
	got   [][]byte
	wg    sync.WaitGroup
}

func (r *receiver) start() {
	r.t.Helper()
	var err error
	for range 100 { // the address may be in use for a moment
		if r.l, err = net.Listen(r.addr.Network(), r.addr.String()); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = r.l.Addr()
	l := r.l
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if r.wrap != nil {
				c = r.wrap(c)
			}
			r.mu.Lock()
			i := len(r.got)
			r.got = append(r.got, nil)
			r.conns = append(r.conns, c)
			r.mu.Unlock()
			r.wg.Go(func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					r.mu.Lock()
					r.got[i] = append(r.got[i], buf[:n]...)
					r.mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
	})
}

// kill ends the listener and resets its connections.
func (r *receiver) kill() {
	_ = r.l.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *receiver) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wholeLines(r.t, r.got)
}

// await waits until the function ok returns true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// deliverAll sends b until all of its records are settled.
func (c *client) deliverAll(b *batch.Batch) {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); b.Len() > 0; {
		done, err := c.send(b)
		if b = b.Slice(nil, done, b.Len()); err == nil {
			continue
		}
		if time.Now().After(end) {
			c.t.Fatalf("not delivered: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A receiver that is killed and restarted receives every record complete, except those that the
// kernel had accepted for a reset connection.
func TestRestartedReceiverGetsWholeRecords(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := &receiver{t: t, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
			scheme := "tcp://"
			if network == "unix" {
				r.addr = &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "s")}
				scheme = "unix:"
			}
			r.start()
			c := mustConnect(t, scheme+r.addr.String(), nil)
			m := &testkit.Model{}
			for range 5 {
				before := len(r.lines())
				c.deliverAll(m.Batch(500, 64, batch.Meta{}))
				await(t, "the records", func() bool { return len(r.lines()) == before+500 })
				r.kill()
				await(t, "the end of the connection to be noticed", func() bool { return !c.d.Stats().Connected })
				if _, err := c.send(lines(1)); err == nil {
					t.Error("no error without a listener")
				}
				r.start()
			}
			for i, line := range r.lines() {
				if want := fmt.Sprintf("%020d", i+1); !strings.HasPrefix(line, want) {
					t.Fatalf("line %d is %q", i, line)
				}
			}
			c.mustClose()
			r.kill()
		})
	}
}

func lines(n int) *batch.Batch { return new(testkit.Model).Batch(n, 64, batch.Meta{}) }

// certificate returns a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSRefusalsAreFatal(t *testing.T) {
	cert, pool := certificate(t)
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	r := &receiver{t: t, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, wrap: func(c net.Conn) net.Conn { return tls.Server(c, server) }}
	r.start()
	c := mustConnect(t, "tls://"+r.addr.String(), &Config{TLS: transport.TLS{Config: &tls.Config{RootCAs: pool}}})
	c.deliverAll(lines(2000))
	await(t, "the records", func() bool { return len(r.lines()) == 2000 })
	c.mustClose()

	// With an unknown certificate, only a change of configuration helps.
	stranger := mustConnect(t, "tls://"+r.addr.String(), nil)
	if _, err := stranger.send(lines(1)); !holds(err) || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("an unknown authority: %v", err)
	}
	r.kill()

	// A server that requires a client certificate refuses the client after the handshake.
	strict := &receiver{t: t, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, wrap: func(c net.Conn) net.Conn {
		return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13})
	}}
	strict.start()
	nobody := mustConnect(t, "tls://"+strict.addr.String(), &Config{TLS: transport.TLS{Config: &tls.Config{RootCAs: pool}}})
	l := newFakeLife()
	s, err := nobody.d.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the session", func() bool { _, _, over, _ := l.answer(nil); return over })
	if _, _, _, why := l.answer(nil); !holds(why) || !strings.Contains(why.Error(), "certificate required") {
		t.Errorf("a client without a certificate: %v", why)
	}
	l.end(errors.New("over"))
	s.Close()
	strict.kill()

	// The server does not use TLS.
	p := &receiver{t: t, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, wrap: func(c net.Conn) net.Conn {
		_, _ = io.WriteString(c, "220 hello\r\n")
		return c
	}}
	p.start()
	plain := mustConnect(t, "tls://"+p.addr.String(), nil)
	if _, err := plain.send(lines(1)); !holds(err) {
		t.Errorf("a server without TLS: %v", err)
	}
	p.kill()

	// If the server closes the connection, the error is temporary.
	gone := &receiver{t: t, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, wrap: func(c net.Conn) net.Conn { c.Close(); return c }}
	gone.start()
	ending := mustConnect(t, "tls://"+gone.addr.String(), nil)
	if _, err := ending.send(lines(1)); err == nil || holds(err) {
		t.Errorf("a server that ends: %v", err)
	}
	gone.kill()
}

// rsyslog receives one message per record, before and after its restart.
func TestRsyslogReadsOneMessagePerRecord(t *testing.T) {
	bin, err := exec.LookPath("rsyslogd")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/rsyslogd"); err != nil {
			t.Skip("SKIPPED: rsyslogd is not installed (Debian: apt-get install rsyslog)")
		}
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out.log")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	conf := filepath.Join(dir, "rsyslog.conf")
	text := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="64k")
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port=%q)
template(name="t" type="string" string="%%pri%%|%%timestamp:::date-rfc3339%%|%%hostname%%|%%app-name%%|%%procid%%|%%msg%%\n")
action(type="omfile" file=%q template="t")
`, dir, port, out)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, bin, "-n", "-f", conf, "-i", filepath.Join(dir, "pid"))
		cmd.WaitDelay = time.Second
		t.Cleanup(func() { cancel(); _ = cmd.Wait() })
		var log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				return cmd
			}
			if time.Now().After(end) {
				t.Skipf("SKIPPED: rsyslogd does not listen: %s", log.String())
			}
		}
	}
	cmd := run()
	c := mustConnect(t, "syslog+tcp://"+addr+"?facility=local3&app=shop&hostname=web1&procid=7", nil)
	at := time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.UTC).UnixNano()
	send := func(from, to int) {
		var build batch.Batch
		for i := from; i < to; i++ {
			build.Append(fmt.Appendf(nil, `{"n":%d,"text":"two words"}`+"\n", i), uint64(i), batch.Meta{Time: at, Level: 4})
		}
		c.deliverAll(&build)
		await(t, "rsyslog", func() bool { return strings.Contains(read(t, out), fmt.Sprintf(`{"n":%d,`, to-1)) })
	}
	send(0, 500)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Logf("rsyslogd: %v", err)
	}
	await(t, "the end of the connection to be noticed", func() bool { return !c.d.Stats().Connected })
	run()
	send(500, 1000)
	c.mustClose()
	sc := bufio.NewScanner(strings.NewReader(read(t, out)))
	n := 0
	for sc.Scan() {
		if !strings.Contains(sc.Text(), "|shop|") {
			continue // a message of rsyslog itself
		}
		got := strings.Replace(strings.Replace(sc.Text(), "+00:00", "Z", 1), "| {", "|{", 1)
		if want := fmt.Sprintf(`156|2026-03-04T05:06:07.891011Z|web1|shop|7|{"n":%d,"text":"two words"}`, n); got != want {
			t.Fatalf("got\n%s want\n%s", got, want)
		}
		n++
	}
	if n != 1000 {
		t.Errorf("%d messages", n)
	}
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func ExampleDestination() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		text, _ := io.ReadAll(c)
		fmt.Printf("%q\n", text)
	}()
	d, err := New(Config{Address: "tcp://" + l.Addr().String()})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := deliver.NewOutput(d, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(out, "one")
	fmt.Fprint(out, "two, without a newline")
	report, err := out.Shutdown(context.Background())
	<-done
	fmt.Println(report.Account, err)
	// Output:
	// "one\ntwo, without a newline\n"
	// accepted=2 delivered=2 <nil>
}
