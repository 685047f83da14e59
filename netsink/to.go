package netsink

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records over a stream socket, as lines or as
// syslog messages. destination has the form of Address in [Config]:
//
//	log, err := forebay.New(netsink.To("syslog+tcp://localhost:514?app=shop"))
//
// The options of all outputs are in package forebay; [Configure] is specific to this one.
func To(destination string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("netsink.To", Config{Address: destination}, openOutput, opts...)
}

func openOutput(c *Config, _ *forebay.Setup) (deliver.Destination, error) { return New(*c) }

// Configure passes the Config of the output to set: TLS, timeouts, the syslog header. Fields that
// set does not change have their documented defaults.
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("netsink.Configure", func(c *Config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}
