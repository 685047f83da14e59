package transport

import "crypto/tls"

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
