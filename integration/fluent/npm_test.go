package fluent

import (
	"bufio"
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
	"sync"
	"testing"
	"time"

	log "github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/transport"
)

// installNPM installs the packages of npm/package-lock.json, unless they are already installed.
var installNPM = sync.OnceValue(func() error {
	if _, err := os.Stat("npm/node_modules/@fluent-org/logger/package.json"); err == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = "npm"
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
})

// startNPM starts FluentServer. It returns its port and a channel with the JSON lines that it
// prints.
func startNPM(t *testing.T, options map[string]any) (port int, lines <-chan map[string]any) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("SKIPPED: node is not installed")
	}
	if err := installNPM(); err != nil {
		t.Skipf("SKIPPED: @fluent-org/logger cannot be installed: %v", err)
	}
	js, _ := json.Marshal(options)
	cmd := exec.Command(node, "server.js", string(js))
	cmd.Dir = "npm"
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ch := make(chan map[string]any, 1<<14)
	go func() {
		defer close(ch)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			m := map[string]any{}
			if json.Unmarshal(sc.Bytes(), &m) == nil {
				ch <- m
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	select {
	case m := <-ch:
		p, _ := m["port"].(float64)
		return int(p), ch
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not start")
	}
	return 0, nil
}

func TestFluentServer(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := newCert(t, dir, "ca", nil, nil)
	newCert(t, dir, "server", ca, caKey)
	newCert(t, dir, "client", ca, caKey)
	file := func(name string) string { return filepath.Join(dir, name) }
	security := map[string]any{"serverHostname": "server.test", "sharedKey": "key", "authorize": true, "userDict": map[string]string{"u": "p"}}
	tls := map[string]any{"cert": file("server.pem"), "key": file("server.key")}
	mtls := map[string]any{"cert": file("server.pem"), "key": file("server.key"), "ca": file("ca.pem"), "requestCert": true, "rejectUnauthorized": true}
	for _, tc := range []struct {
		name    string
		options map[string]any
		c       fluent.Config
		tls     bool
		refused bool
	}{
		{"plain", map[string]any{}, fluent.Config{}, false, false},
		{"gzip", map[string]any{}, fluent.Config{Compress: "gzip"}, false, false},
		{"shared key and user", map[string]any{"security": security}, fluent.Config{Auth: fluent.Auth{SharedKey: "key", User: "u", Password: "p"}}, false, false},
		{"keepalive false", map[string]any{"security": security, "keepalive": false}, fluent.Config{Auth: fluent.Auth{SharedKey: "key", User: "u", Password: "p"}}, false, false},
		{"wrong key", map[string]any{"security": security}, fluent.Config{Auth: fluent.Auth{SharedKey: "other", User: "u", Password: "p"}}, false, true},
		{"wrong password", map[string]any{"security": security}, fluent.Config{Auth: fluent.Auth{SharedKey: "key", User: "u", Password: "x"}}, false, true},
		{"TLS", map[string]any{"tlsOptions": tls}, fluent.Config{TLS: transport.TLS{CAFile: file("ca.pem"), ServerName: "server"}}, true, false},
		{"mutual TLS and key", map[string]any{"tlsOptions": mtls, "security": security}, fluent.Config{
			TLS:  transport.TLS{CAFile: file("ca.pem"), ServerName: "server", CertFile: file("client.pem"), KeyFile: file("client.key")},
			Auth: fluent.Auth{SharedKey: "key", User: "u", Password: "p"},
		}, true, false},
		{"mutual TLS without a certificate", map[string]any{"tlsOptions": mtls}, fluent.Config{TLS: transport.TLS{CAFile: file("ca.pem"), ServerName: "server"}}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			port, lines := startNPM(t, tc.options)
			scheme := "tcp://"
			if tc.tls {
				scheme = "tls://"
			}
			tc.c.Servers = []string{fmt.Sprintf("%s127.0.0.1:%d", scheme, port)}
			l, err := fluent.NewLogger(tc.c, log.OnError(func(e batch.Event) { t.Logf("%s: %v", e.Op, e.Err) }))
			if err != nil {
				t.Fatal(err)
			}
			const n = 500
			for i := range n {
				l.Post("app", map[string]any{"n": i, "nil": nil})
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if tc.refused {
				ctx, cancel = context.WithTimeout(context.Background(), time.Second)
			}
			defer cancel()
			rep, err := l.Close(ctx)
			if tc.refused {
				if err == nil || rep.Delivered > 0 {
					t.Errorf("%s", rep.Account)
				}
				t.Log(err)
				return
			}
			if err != nil || rep.Delivered != n {
				t.Fatalf("%v: %s", err, rep.Account)
			}
			for i := range n {
				select {
				case m := <-lines:
					if got := m["record"].(map[string]any)["n"]; m["tag"] != "app" || got != float64(i) {
						t.Fatalf("record %d is %v", i, m)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("got %d records, want %d", i, n)
				}
			}
		})
	}
}

// newCert writes NAME.pem and NAME.key to dir. The certificate is signed by the authority ca or, if
// ca is nil, is a self-signed authority.
func newCert(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ca == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	k, _ := x509.MarshalPKCS8PrivateKey(key)
	for file, b := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: k}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
