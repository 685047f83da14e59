package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// write writes a new certificate with the given name, and its key, to two files.
func write(t *testing.T, name, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A connection uses the certificate in the files. If they are invalid, it uses the last valid one.
func TestRenewedCertificateIsUsed(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	if _, err := NewPair(cert, key); err == nil {
		t.Fatal("there is no file yet")
	}
	write(t, "first", cert, key)
	server, err := NewPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "first"},
		{func() { write(t, "second", cert, key) }, "second"},
		{func() { write(t, "third", cert, "") }, "second"}, // the certificate does not match the key
		{func() { os.Remove(key) }, "second"},
		{func() { write(t, "fourth", cert, key) }, "fourth"},
	} {
		step.change()
		ours, theirs := &tls.Config{ClientAuth: tls.RequireAnyClientCert}, &tls.Config{InsecureSkipVerify: true}
		server.Server(ours)
		client.Client(theirs)
		a, b := net.Pipe()
		s, c := tls.Server(a, ours), tls.Client(b, theirs)
		done := make(chan error)
		go func() { done <- s.Handshake() }()
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for who, conn := range map[string]*tls.Conn{"server": c, "client": s} {
			if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != step.want {
				t.Errorf("the %s has %s, want %s", who, got, step.want)
			}
		}
		a.Close()
		b.Close()
	}
}
