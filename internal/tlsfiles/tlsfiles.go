// Package tlsfiles reads certificates for TLS from files that may be renewed while the process runs.
package tlsfiles

import (
	"crypto/tls"
	"sync/atomic"
)

// A Pair is a certificate and its key, in two files. The files are read again for each connection.
// If they cannot be used, or do not match because only one is replaced so far, the last valid
// certificate is used.
type Pair struct {
	cert, key string
	last      atomic.Pointer[tls.Certificate]
}

// NewPair returns the Pair for the two files. It returns an error if they cannot be used.
func NewPair(cert, key string) (*Pair, error) {
	c, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	p := &Pair{cert: cert, key: key}
	p.last.Store(&c)
	return p, nil
}

// load returns the certificate in the files, or the last valid one.
func (p *Pair) load() *tls.Certificate {
	if c, err := tls.LoadX509KeyPair(p.cert, p.key); err == nil {
		p.last.Store(&c)
	}
	return p.last.Load()
}

// Client makes c use p as the certificate of a client.
func (p *Pair) Client(c *tls.Config) {
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.load(), nil }
}

// Server makes c use p as the certificate of a server.
func (p *Pair) Server(c *tls.Config) {
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.load(), nil }
}
