// Package transport has the connection settings that all destinations have in common: those of TLS.
//
//	fluent.Config, netsink.Config, httpclient.Options ─▶ TLS ─▶ crypto/tls
//
// A TLS is a field of the Config of a driver:
//
//	fluent.To("tls://logs.example.com", "shop", forebay.Configure(func(c *fluent.Config) {
//		c.TLS.CAFile = "/etc/ssl/private-ca.pem"
//	}))
package transport
