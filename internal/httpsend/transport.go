// Package httpsend sends records over HTTP for all destinations that use it. It sets up the
// transport with TLS, keeps credentials out of errors, sends one request at a time, and interprets
// the responses that have the same meaning for all servers.
package httpsend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/transport"
)

// Client returns a copy of o.Client that does not follow redirects. If o.Client is nil, it returns
// a client with a new transport that keeps up to conns idle connections. who is the name of the
// calling package, which is the prefix of errors.
func Client(who string, o *httpclient.Options, conns int) (*http.Client, error) {
	if o.Client != nil {
		own := *o.Client
		own.CheckRedirect = NoRedirect
		return &own, nil
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		MaxIdleConns:          conns,
		MaxIdleConnsPerHost:   conns,
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
	if o.TLS != (transport.TLS{}) {
		conf, err := tlsfiles.ClientConfig(o.TLS)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", who, err)
		}
		t.TLSClientConfig = conf
	}
	return &http.Client{Transport: t, CheckRedirect: NoRedirect}, nil
}

// NoRedirect makes an http.Client return a redirect as the response. Following a redirect would
// turn a POST into a GET, and might send credentials to another host.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// A SendState indicates whether the server may have stored a request for which there is no
// response.
type SendState uint8

const (
	Unknown   SendState = iota // the server may have stored the request
	NotSent                    // there was no connection, so nothing was stored
	NotSecure                  // TLS failed, so nothing was stored; only a change of configuration helps
)

// StateAfter returns the SendState of a request that failed with err.
func StateAfter(err error) SendState {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	isOp := errors.As(err, &op)
	switch {
	case errors.As(err, &cert), errors.As(err, &plain), isOp && op.Op == "remote error": // the server sent a TLS alert
		return NotSecure
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		return NotSent
	}
	return Unknown
}
