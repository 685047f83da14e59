package dest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/internal/tlsfiles"
)

// tlsConfig returns a TLS configuration for the options.
func (o *Spec) tlsConfig() (*tls.Config, error) {
	return ClientTLS(o.Text("tls-ca"), o.Text("tls-cert"), o.Text("tls-key"))
}

// ClientTLS returns a TLS configuration for clients. The arguments are the names of files with
// certificate authorities, the client certificate and its key; "" means none. The certificate of
// the server is always verified.
func ClientTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("cannot read --tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca %s: it has no PEM certificate", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("--tls-cert and --tls-key belong together: one is missing")
	}
	if cert != "" {
		pair, err := tlsfiles.NewPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cannot load --tls-cert and --tls-key: %w", err)
		}
		pair.Client(c)
	}
	return c, nil
}
