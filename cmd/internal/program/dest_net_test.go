package program

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// An authority is a certificate authority. It signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

// newAuthority returns an authority whose certificate is in the file ca.pem in dir.
func newAuthority(t *testing.T, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.sign("ca", true)
	return a
}

// sign creates a certificate, and writes it and its key to the files NAME.pem and NAME.key.
func (a *authority) sign(name string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: ca, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if ca {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// tlsServer accepts one connection at a time. It sends all data of a connection to the channel got.
func tlsServer(t *testing.T, c *tls.Config) (addr string, got <-chan string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(conn)
			conn.Close()
			if len(b) > 0 {
				ch <- string(b)
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), ch
}

// Lines and syslog messages are sent over TLS. The same flags as for other destinations control the
// verification of certificates.
func TestTLSDestinationsVerifyCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	ca.sign("server", false)
	ca.sign("client", false)
	file := func(name string) string { return filepath.Join(dir, name) }
	server, err := tls.LoadX509KeyPair(file("server.pem"), file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	open, fromAnyone := tlsServer(t, &tls.Config{Certificates: []tls.Certificate{server}})
	closed, fromClients := tlsServer(t, &tls.Config{
		Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MaxVersion: tls.VersionTLS12, // with TLS 1.3, a client learns only after the handshake that its certificate is rejected
	})
	pipe := func(drain time.Duration, to string, args ...string) (string, error) {
		t.Helper()
		c := newConfig(to)
		c.DrainTimeout = setting.Duration(drain)
		giveOptions(t, &c.Options, args...)
		return runText(t, c, "one\ntwo\n")
	}
	good := []string{"--tls-ca", file("ca.pem")}
	mutual := append(good, "--tls-cert", file("client.pem"), "--tls-key", file("client.key"))

	if messages, err := pipe(time.Minute, "tls://"+open, good...); err != nil || <-fromAnyone != "one\ntwo\n" {
		t.Error(err, messages)
	}
	if messages, err := pipe(time.Minute, "syslog+tls://"+open+"?app=shop", good...); err != nil {
		t.Error(err, messages)
	} else if text := <-fromAnyone; strings.Count(text, " shop ") != 2 {
		t.Errorf("%q", text)
	}
	if messages, err := pipe(time.Minute, "tls://"+closed, mutual...); err != nil || <-fromClients != "one\ntwo\n" {
		t.Error(err, messages)
	}
	for _, tt := range []struct {
		to   string
		args []string
		code int
		want string
	}{
		{"tls://" + open, nil, exit.RuntimeCode, "certificate signed by unknown authority"},
		{"tls://" + strings.Replace(open, "127.0.0.1", "localhost", 1), good, exit.RuntimeCode, "certificate is not valid for any names"},
		{"tls://" + closed, good, exit.RuntimeCode, "TLS handshake: remote error: tls: "},
		{"tls://" + open, []string{"--tls-ca", file("none.pem")}, exit.ConfigCode, "cannot read --tls-ca: open "},
		{"tls://" + open, []string{"--tls-ca", file("ca.key")}, exit.ConfigCode, "it has no PEM certificate"},
		{"tls://" + open, []string{"--tls-cert", file("client.pem")}, exit.UsageCode, "--tls-cert and --tls-key belong together"},
		{"tls://" + open, []string{"--tls-cert", file("client.pem"), "--tls-key", file("server.key")}, exit.ConfigCode, "cannot load --tls-cert and --tls-key: "},
	} {
		// On a busy machine, the short drain timeout may expire while the system's certificates are
		// loaded. The second attempt has a longer timeout.
		for _, drain := range []time.Duration{time.Second, 20 * time.Second} {
			messages, err := pipe(drain, tt.to, tt.args...)
			if err != nil {
				messages += err.Error()
			}
			if exit.Code(err) == tt.code && strings.Contains(messages, tt.want) {
				break
			}
			if drain > time.Second {
				t.Errorf("%s %q: %v, want %q:\n%s", tt.to, tt.args, err, tt.want, messages)
			}
		}
	}
}

// stuck is a destination whose Send blocks until the channel release is closed, even if its context
// is done.
type stuck struct {
	fake
	release chan struct{}
	got     *bytes.Buffer
}

func (s *stuck) Open(string, *dest.Spec) (*dest.Target, error) {
	return &dest.Target{Dest: destOf(func(_ context.Context, b *batch.Batch) batch.Outcome {
		if s.release != nil {
			<-s.release
			return batch.FailedOutcome(io.ErrClosedPipe)
		}
		s.got.Write(b.AppendTo(nil))
		return batch.Outcome{}
	})}, nil
}

// With --when-full spill, the program continues to read while a destination is blocked. The next
// run delivers everything in order.
func TestWhenFullSpill(t *testing.T) {
	var input strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&input, "line %d\n", i)
	}
	dir := t.TempDir()
	pipe := func(t *testing.T, s *stuck, drain time.Duration, text string) (string, error) {
		c := newConfig("fake:")
		giveOptions(t, &c.Options, "--spool", dir, "--when-full", "spill")
		c.DrainTimeout = setting.Duration(drain)
		c.Dests = append(c.Dests, s)
		return runText(t, c, text)
	}
	inBubble(t, func(t *testing.T) {
		first := &stuck{release: make(chan struct{})}
		messages, err := pipe(t, first, time.Second, input.String())
		close(first.release)
		if exit.Code(err) != exit.KeptCode || !strings.Contains(messages, "fake: is too slow; lines go to --spool "+dir) ||
			!strings.Contains(messages, "fake accepted=20000 delivered=0 pending=20000{slab=0 spill=20000 inflight=0}") {
			t.Fatal(err, messages)
		}
	})
	second := &stuck{got: new(bytes.Buffer)}
	messages, err := pipe(t, second, time.Minute, "the last\n")
	if err != nil || !strings.Contains(messages, "fake accepted=1 recovered=20000 delivered=20001\n") {
		t.Fatal(err, messages)
	}
	if second.got.String() != input.String()+"the last\n" {
		t.Error("the lines did not come in order")
	}
}
