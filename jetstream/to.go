package jetstream

import (
	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that writes to JetStream. servers has the form of
// [Config.Servers]:
//
//	log, err := forebay.New(jetstream.To("nats://localhost:4222", jetstream.Subject("logs.{app}")))
//
// The options of all outputs are in package forebay; forebay.Configure sets fields of [Config].
func To(servers string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("jetstream.To", Config{Servers: servers}, open, opts...)
}

// defaultMemory is the default memory of an output, in bytes. It is enough for the batches in
// flight.
const defaultMemory = window * batchBytes

// open creates the Driver for an output made with [To] and sets defaults of the options. The
// caller's options are applied later.
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

// Subject sets the subject; see [Config.Subject].
func Subject(pattern string) forebay.OutputOption {
	return forebay.DriverOption("jetstream.Subject", func(c *Config) error {
		c.Subject = pattern
		return nil
	})
}
