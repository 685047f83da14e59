// Package httpsend sends records over HTTP, for the destinations that do: the transport
// with its TLS, credentials that never show, one request at a time with its answer, and
// what is common in answers.
package httpsend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// TLS says how https is made. All fields are optional; files are PEM.
type TLS struct {
	CAFile             string
	CertFile, KeyFile  string
	ServerName         string
	InsecureSkipVerify bool
}

// A Transport says how connections are made.
type Transport struct {
	Who        string        // begins errors: the package
	TLS        TLS           // zero: the defaults of net/http
	NoProxy    bool          // ignores the environment
	UnixSocket string        // to connect to; "": the host of the URL
	Conns      int           // idle connections that are kept
	Timeout    time.Duration // of the head of an answer
}

// Client returns a client that follows no redirects. Its transport is its own.
func (o *Transport) Client() (*http.Client, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		MaxIdleConns:          o.Conns,
		MaxIdleConnsPerHost:   o.Conns,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: o.Timeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}
	if o.NoProxy {
		t.Proxy = nil
	}
	if path := o.UnixSocket; path != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	if o.TLS != (TLS{}) {
		conf, err := o.TLS.Config(o.Who)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = conf
	}
	return &http.Client{Transport: t, CheckRedirect: NoRedirect}, nil
}

// NoRedirect makes a redirect the answer. To follow one would turn a POST into a GET, and
// could take credentials to another host.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Config returns the configuration of a client. who begins the error.
func (t *TLS) Config(who string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot read tls.ca_file: %w", who, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: cannot use tls.ca_file %s: there is no PEM certificate in it", who, t.CAFile)
		}
	}
	if t.CertFile != "" {
		// Read again for each connection, so that a renewed certificate is used.
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("%s: cannot use tls.cert_file and key_file: %w", who, err)
			}
			return &cert, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return conf, nil
}

// A Lost says what the lack of an answer means.
type Lost uint8

const (
	Unknown   Lost = iota // nobody knows whether the request was stored
	NotSent               // no connection was made
	NotSecure             // TLS failed, which only a change of configuration mends
)

// LostBy returns what err, of a request, means.
func LostBy(err error) Lost {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	isOp := errors.As(err, &op)
	switch {
	case errors.As(err, &cert), errors.As(err, &plain), isOp && op.Op == "remote error": // an alert of TLS
		return NotSecure
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		return NotSent
	}
	return Unknown
}
