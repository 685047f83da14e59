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
// Package forebay has the options for all outputs; [Label] and [Configure] set options of
// this output. forebay.Encoder sets the formatter of the lines ([Config.Formatter]).
func To(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("loki.To", Config{URL: url}, openOutput, opts...)
}

func openOutput(c *Config, s *forebay.Setup) (deliver.Destination, error) {
	if s.Encoder != nil {
		c.Formatter = s.Encoder
	}
	name, onError := s.Name, s.OnError
	if name != "" {
		c.Name = name
	}
	if c.OnError == nil {
		c.OnError = onError
	}
	p, err := NewPusher(*c)
	if err != nil {
		return nil, err
	}
	s.OutputOptions = *p.c.output(p)
	if name != "" {
		s.Name = name
	}
	if s.OnError == nil {
		s.OnError = onError
	}
	s.Encoder = p.Encoder()
	return p, nil
}

// Label adds a label to every stream, see [Config.Labels].
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

// Configure calls set with the Config of the output, for everything without a separate
// option: authentication, TLS, labels from attributes, limits. Options of package forebay
// override fields with the same meaning. Config.Level has no effect: use forebay.Level.
// Config.Context is an error: use forebay.Context in forebay.New. With a complete Config,
// for example from YAML:
//
//	loki.To(conf.URL, loki.Configure(func(c *loki.Config) { *c = conf }), forebay.Level(level))
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("loki.Configure", func(c *Config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(c)
		return nil
	})
}
