// Package httpsend sends records over HTTP, for all destinations that use it: the transport
// with TLS, credentials that are never shown, one request at a time with its response, and
// the common handling of responses.
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

	"github.com/forebay-log/forebay/internal/tlsfiles"
)

// TLS configures https. All fields are optional; files are PEM.
type TLS struct {
	CAFile             string
	CertFile, KeyFile  string
	ServerName         string
	InsecureSkipVerify bool
}

// A Transport configures connections.
type Transport struct {
	Who        string        // prefix of errors: the package
	TLS        TLS           // zero: the defaults of net/http
	NoProxy    bool          // ignore the proxy environment variables
	UnixSocket string        // socket to connect to; "": the host of the URL
	Conns      int           // maximum idle connections
	Timeout    time.Duration // for the response headers
}

// Client returns a client with a separate transport. It follows no redirects.
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

// NoRedirect returns a redirect as the response. Following it would turn a POST into a GET
// and could send credentials to another host.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Config returns the configuration of a client. who is the prefix of the error.
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
		pair, err := tlsfiles.NewPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot use tls.cert_file and key_file: %w", who, err)
		}
		pair.Client(conf)
	}
	return conf, nil
}

// Lost is the meaning of a missing response.
type Lost uint8

const (
	Unknown   Lost = iota // unknown whether the request was stored
	NotSent               // no connection was made
	NotSecure             // TLS failed; only a change of configuration helps
)

// LostBy returns the meaning of err, the error of a request.
func LostBy(err error) Lost {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	isOp := errors.As(err, &op)
	switch {
	case errors.As(err, &cert), errors.As(err, &plain), isOp && op.Op == "remote error": // a TLS alert
		return NotSecure
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		return NotSent
	}
	return Unknown
}
