// Package transport contains the TLS settings of fluent, netsink and all destinations over HTTP.
//
//	fluent.Config, netsink.Config, httpclient.Options ─▶ TLS ─▶ crypto/tls
//
// A TLS is a field of the Config of a driver:
//
//	fluent.To("tls://logs.example.com", "shop", forebay.Configure(func(c *fluent.Config) {
//		c.TLS.CAFile = "/etc/ssl/private-ca.pem"
//	}))
package transport
