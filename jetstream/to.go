package jetstream

import (
	"crypto/tls"
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To is an output of forebay.New that writes to JetStream. servers are as in
// [Config.Servers].
//
// Options for all outputs are those of package forebay; [Subject] and [Configure] are for
// this one.
func To(servers string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("jetstream.To", Config{Servers: servers}, open, opts...)
}

// defaultMemory is what an output has if its options do not say: the batches under way and
// as much again.
const defaultMemory = 4 << 20

func open(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	d, err := New(*c)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = "jetstream"
	}
	s.BufferBytes = defaultMemory
	return d, nil
}

// Subject sets the subject: see [Config.Subject].
func Subject(pattern string) forebay.OutputOption {
	return forebay.DriverOption("jetstream.Subject", func(c *Config) error {
		c.Subject = pattern
		return nil
	})
}

// TLS sets the TLS of the connection: see [Config.TLS].
func TLS(conf *tls.Config) forebay.OutputOption {
	return forebay.DriverOption("jetstream.TLS", func(c *Config) error {
		c.TLS = conf
		return nil
	})
}

// Configure gives set the Config of the output.
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("jetstream.Configure", func(c *Config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}
