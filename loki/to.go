package loki

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output of forebay.New that pushes to the Loki at url, such as
// "http://localhost:3100":
//
//	log, err := forebay.New(loki.To("http://localhost:3100", loki.Label("app", "shop")))
//
// Package forebay has the options for all outputs. forebay.Configure sets fields of [Config], such
// as authentication, TLS, labels from attributes, and limits. forebay.Encoder sets Formatter of
// [Line]. With a complete Config, for example from YAML, use [New] and forebay.To.
func To(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("loki.To", Config{URL: url}, openOutput, opts...)
}

// openOutput creates the Driver for an output made with [To]. The encoder from forebay.Encoder
// becomes Line.Formatter and is removed from s, because the Driver encodes the records of the
// output.
func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	if s.Encoder != nil {
		c.Line.Formatter, s.Encoder = s.Encoder, nil
	}
	return New(*c)
}

// Label adds a label to every stream, see [Config.Labels]. It is an error to give the same name
// twice.
func Label(name, value string) forebay.OutputOption {
	return forebay.DriverOption("loki.Label", func(c *Config) error {
		if _, twice := c.Labels[name]; twice {
			return errors.New("the label " + name + " is given twice; give it once")
		}
		labels := map[string]string{name: value}
		for k, v := range c.Labels {
			labels[k] = v
		}
		c.Labels = labels
		return nil
	})
}
