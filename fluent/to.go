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
// [NewEncoder]. [Configure] is specific to this output.
func To(server, tag string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("fluent.To", Config{Servers: []string{server}, Tag: tag}, openOutput, opts...)
}

func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	name, onError := s.Name, s.OnError
	if name != "" {
		c.Name = name
	}
	if c.OnError == nil {
		c.OnError = onError
	}
	sink, err := newSink(*c)
	if err != nil {
		return nil, err
	}
	if s.Encoder == nil {
		s.Encoder = sink.enc
	} else if codec := s.Encoder.Codec(); codec == nil || codec.ContentType() != entryType {
		return nil, errors.New("the encoder does not write Forward entries; leave it out, or make it with fluent.NewEncoder")
	}
	s.OutputOptions = *sink.outputOptions()
	if name != "" {
		s.Name = name
	}
	if s.OnError == nil {
		s.OnError = onError
	}
	return sink.Client, nil
}

// Configure passes the Config of the output to set. It is for everything without a separate
// option: additional servers, the shared key, TLS, acknowledgements. Options of package forebay
// override the fields with the same meaning. By default the Config has its documented defaults.
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("fluent.Configure", func(c *Config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}
