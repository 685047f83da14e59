package netsink

import (
	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records over a stream socket, as lines or as
// syslog messages. destination has the form of Address in [Config]:
//
//	log, err := forebay.New(netsink.To("syslog+tcp://localhost:514?app=shop"))
//
// The options of all outputs are in package forebay; forebay.Configure sets TLS, timeouts and the
// syslog header.
func To(destination string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("netsink.To", Config{Address: destination}, openOutput, opts...)
}

// openOutput makes the Driver of an output.
func openOutput(c *Config, _ *forebay.Setup) (deliver.Destination, error) { return New(*c) }
