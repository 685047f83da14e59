package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// addTLS defines the flags of destinations that use TLS, once for all of them.
func addTLS(cmd *cobra.Command) {
	addText(cmd, "tls-ca", "", "TLS: `FILE` with the authorities that sign server certificates (default: the system's)")
	addText(cmd, "tls-cert", "", "TLS: `FILE` with a client certificate")
	addText(cmd, "tls-key", "", "TLS: `FILE` with its key")
}

// tlsConfig returns what the flags of cmd say, the defaults where it is nil. Certificates of servers are always
// verified.
func tlsConfig(cmd *cobra.Command) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cmd == nil {
		return c, nil
	}
	text := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
	if ca := text("tls-ca"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("cannot read --tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca %s: it has no PEM certificate", ca)
		}
	}
	cert, key := text("tls-cert"), text("tls-key")
	if (cert == "") != (key == "") {
		return nil, errors.New("--tls-cert and --tls-key belong together: one is missing")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cannot load --tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
