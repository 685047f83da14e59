package otlp

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records to the OTLP receiver at url, such as
// "http://localhost:4318":
//
//	log, err := forebay.New(otlp.To("http://localhost:4318", otlp.Resource("service.name", "shop")))
//
// The options of all outputs are in package forebay; forebay.Configure sets fields of [Config]:
// authentication, TLS, the scope, limits. The encoder is fixed, so NewRouter returns an error for
// forebay.Encoder.
func To(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("otlp.To", Config{URL: url}, openOutput, opts...)
}

// openOutput creates the Driver for an output made with [To]. It returns an error for the option
// forebay.Encoder, because the encoder is fixed.
func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	if s.Encoder != nil {
		return nil, errors.New("it writes only OTLP; leave the encoder out")
	}
	return New(*c)
}

// Resource adds an attribute to the resource; see [Config.Resource]. It is an error to give the
// same name twice.
func Resource(name, value string) forebay.OutputOption {
	return forebay.DriverOption("otlp.Resource", func(c *Config) error {
		if _, twice := c.Resource[name]; twice {
			return errors.New("the attribute " + name + " is given twice; give it once")
		}
		all := map[string]string{name: value}
		for k, v := range c.Resource {
			all[k] = v
		}
		c.Resource = all
		return nil
	})
}
