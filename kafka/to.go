package kafka

import (
	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records to Kafka. destination has the form
// described at [ParseURL]:
//
//	log, err := forebay.New(kafka.To("kafka://b1:9092,b2:9092/logs.{app}?key={user}"))
//
// The options of all outputs are in package forebay; forebay.Configure sets credentials, TLS and
// limits. The default of forebay.Buffer is 4 MiB.
func To(destination string, opts ...forebay.OutputOption) forebay.OutputSpec {
	conf, err := ParseURL(destination)
	open := func(c *Config, s *forebay.Setup) (deliver.Destination, error) {
		if err != nil {
			return nil, err
		}
		return openOutput(c, s)
	}
	return forebay.Driver("kafka.To", conf, open, opts...)
}

// openOutput creates the Driver for an output made with [To] and sets defaults of the options. The
// caller's options are applied later and override these defaults.
func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	d, err := New(*c)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = d.String()
	}
	if s.BufferBytes == 0 {
		s.BufferBytes, s.Slab.SlabBytes = 4<<20, 256<<10
	}
	return d, nil
}
