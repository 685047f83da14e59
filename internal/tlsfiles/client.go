package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/transport"
)

// ClientConfig returns the TLS configuration of a client with the settings t. It reads all files
// once, and returns an error if one of them cannot be used.
func ClientConfig(t transport.TLS) (*tls.Config, error) {
	switch {
	case t.MinVersion != "" && t.MinVersion != "1.2" && t.MinVersion != "1.3":
		return nil, fmt.Errorf("tls.min_version is %q; use 1.2 or 1.3", t.MinVersion)
	case (t.CertFile == "") != (t.KeyFile == ""):
		return nil, errors.New("tls.cert_file and key_file belong together; give both")
	}
	c := &tls.Config{}
	if t.Config != nil {
		c = t.Config.Clone()
	}
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	if t.MinVersion == "1.3" {
		c.MinVersion = tls.VersionTLS13
	}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	c.InsecureSkipVerify = c.InsecureSkipVerify || t.InsecureSkipVerify
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cannot use tls.ca_file %s: there is no PEM certificate in it", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := NewPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot use tls.cert_file and key_file: %w", err)
		}
		pair.Client(c)
	}
	return c, nil
}
