package fluent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/transport"
)

// An authority is a certificate authority for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	file string
}

// newAuthority returns an authority and writes its certificate to a file.
func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.file = filepath.Join(a.dir, "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue creates a certificate for name and returns the names of the files.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	k, _ := x509.MarshalPKCS8PrivateKey(key)
	writePEM(t, keyFile, "PRIVATE KEY", k)
	return certFile, keyFile
}

// listenTLS starts f with a certificate for name on a loopback port, and returns its tls://
// address. If mutual is true, clients need a certificate.
func listenTLS(t *testing.T, f *testkit.Forward, a *authority, name string, mutual bool) string {
	cert, key := a.issue(t, name)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}}
	if mutual {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		c.ClientCAs.AddCert(a.cert)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Serve(tls.NewListener(l, c))
	t.Cleanup(f.Close)
	return "tls://" + l.Addr().String()
}

// A connection succeeds if the client trusts the server's certificate and, on request, has a
// certificate that the server trusts. Otherwise all records are kept until the configuration
// changes.
func TestTLSVerifiesBothSides(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "client")
	stranger := newAuthority(t)
	otherCert, otherKey := stranger.issue(t, "stranger")
	for _, tc := range []struct {
		name   string
		mutual bool
		c      transport.TLS
		text   string // part of the error; empty: the connection succeeds
	}{
		{"own authority", false, transport.TLS{CAFile: a.file, ServerName: "logs.test"}, ""},
		{"any certificate", false, transport.TLS{InsecureSkipVerify: true}, ""},
		{"unknown authority", false, transport.TLS{ServerName: "logs.test"}, "certificate"},
		{"another name", false, transport.TLS{CAFile: a.file, ServerName: "other.test"}, "other.test"},
		{"mutual", true, transport.TLS{CAFile: a.file, ServerName: "logs.test", CertFile: cert, KeyFile: key, MinVersion: "1.3"}, ""},
		// With TLS 1.3, the client's handshake is complete before the server refuses the client.
		{"mutual, no certificate", true, transport.TLS{CAFile: a.file, ServerName: "logs.test"}, "tls:"},
		{"mutual, a stranger's", true, transport.TLS{CAFile: a.file, ServerName: "logs.test", CertFile: otherCert, KeyFile: otherKey}, "tls:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
			s := newTestClient(t, testConfig{Config: Config{Servers: []string{listenTLS(t, f, a, "logs.test", tc.mutual)}, TLS: tc.c}})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			var err error
			for range 30 { // a reset may arrive before the client reads the alert
				if err = s.send(ctx, numbers(t, 0, 5000))[0].err; err == nil || holds(err) {
					break
				}
			}
			if tc.text == "" {
				if err != nil || !slices.Equal(r.get("forebay"), seq(0, 5000)) {
					t.Errorf("%v", err)
				}
				return
			}
			if !holds(err) || !errors.Is(err, errRefused) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestInvalidTLSConfigIsRejected(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "c")
	for _, c := range []transport.TLS{{CAFile: "/nonexistent"}, {CAFile: key}, {CertFile: cert}, {CertFile: key, KeyFile: cert}, {MinVersion: "1.1"}} {
		if err := validate(testConfig{Config: Config{Servers: []string{"tls://h"}, TLS: c}}); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if err := validate(testConfig{Config: Config{TLS: transport.TLS{CAFile: a.file}}}); err == nil {
		t.Error("TLS was accepted without a tls:// server")
	}
}

func TestUnixSocketDeliversRecords(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err)
	}
	f.Serve(l)
	t.Cleanup(f.Close)
	s := newTestClient(t, testConfig{Config: Config{Servers: []string{"unix:" + path}}})
	sendOK(t, s, numbers(t, 0, 1000))
	if !slices.Equal(r.get("forebay"), seq(0, 1000)) {
		t.Error("records are missing")
	}
}
