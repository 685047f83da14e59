package fluent

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To is an output of forebay.New that sends records to a Forward server, Fluentd or
// Fluent Bit, under a tag. server is an address as in [Config.Servers], such as
// "localhost:24224" or "tls://logs:24224":
//
//	log, err := forebay.New(fluent.To("localhost:24224", "shop.web"))
//
// Options for all outputs are those of package forebay, where forebay.Encoder takes the
// encoders of [NewEncoder]; [Configure] is for this one.
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

// Configure gives set the Config of the output, for everything that has no option of its
// own: further servers, the shared key, TLS, acknowledgements. Options of package forebay
// win over the fields of the same meaning.
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("fluent.Configure", func(c *Config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}
