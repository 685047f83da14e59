package fluent

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records under a tag to a Forward server such as
// Fluentd or Fluent Bit. server is an address as in [Config.Servers], such as "localhost:24224"
// or "tls://logs:24224":
//
//	log, err := forebay.New(fluent.To("localhost:24224", "shop.web"))
//
// The options of all outputs are in package forebay; forebay.Encoder accepts the encoders of
// [NewEncoder]. forebay.Configure sets fields of [Config]: additional servers, the shared key, TLS,
// acknowledgements.
func To(server, tag string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("fluent.To", Config{Servers: []string{server}, Tag: tag}, openOutput, opts...)
}

// openOutput creates the Driver for an output made with [To]. Like in fluent-logger-golang, the
// error handler is called at the first failure, before the circuit breaker opens (HandlerFirst).
func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	if s.Encoder != nil {
		if codec := s.Encoder.Codec(); codec == nil || codec.ContentType() != entryType {
			return nil, errors.New("the encoder does not write Forward entries; leave it out, or make it with fluent.NewEncoder")
		}
	}
	s.Deliver.HandlerFirst = true
	return New(*c)
}
