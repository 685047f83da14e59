package loki

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To is an output of forebay.New that pushes to the Loki at url, such as
// "http://localhost:3100":
//
//	log, err := forebay.New(loki.To("http://localhost:3100", loki.Label("app", "shop")))
//
// Options for all outputs are those of package forebay; [Label] and [Configure] are for
// this one. forebay.Encoder makes the lines ([Config.Formatter]).
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

// Configure gives set the Config of the output, for everything that has no option of its
// own: authentication, TLS, labels from attributes, limits. Options of package forebay
// win over the fields of the same meaning. Config.Level has no effect: give forebay.Level.
// Config.Context is refused: give forebay.Context to forebay.New.
// With a whole Config, as from YAML:
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
