package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/forebay-log/forebay/internal/tlsfiles"
)

// TLS configures the client side of a TLS connection. All fields are optional; files are in PEM
// format.
type TLS struct {
	// CAFile contains the certificate authorities to trust. Default: those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile contain the client certificate and its key. They are read again
	// for each connection. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name sent to the server and expected in its certificate. Default:
	// the host of the address.
	ServerName string `yaml:"server_name"`
	// MinVersion is the minimum TLS version, "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"min_version"`
	// InsecureSkipVerify accepts any certificate: an attacker on the network can read and
	// change the data. For tests only. Default false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
	// Config is the configuration to which the fields above are applied. Default nil.
	Config *tls.Config `yaml:"-"`
}

// ClientConfig returns the configuration of a client. It reads all files once, so that the error
// names one that cannot be used.
func (t TLS) ClientConfig() (*tls.Config, error) {
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
		pair, err := tlsfiles.NewPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot use tls.cert_file and key_file: %w", err)
		}
		pair.Client(c)
	}
	return c, nil
}
