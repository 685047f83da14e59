package kafka

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records to Kafka. destination has the form
// described at [ParseURL]:
//
//	log, err := forebay.New(kafka.To("kafka://b1:9092,b2:9092/logs.{app}?key={user}"))
//
// The options of all outputs are in package forebay; [Configure] is specific to this one. The
// default of forebay.Buffer is 4 MiB.
func To(destination string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("kafka.To", config{destination: destination}, openOutput, opts...)
}

// config configures To.
type config struct {
	destination string
	sets        []func(*Config)
}

func openOutput(c *config, s *forebay.Setup) (deliver.Destination, error) {
	conf, err := ParseURL(c.destination)
	if err != nil {
		return nil, err
	}
	for _, set := range c.sets {
		set(&conf)
	}
	d, err := New(conf)
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

// Configure passes the Config of the output, as parsed from the destination, to set: credentials,
// TLS, limits. Fields that set does not change keep their values.
func Configure(set func(*Config)) forebay.OutputOption {
	return forebay.DriverOption("kafka.Configure", func(c *config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		c.sets = append(c.sets, set)
		return nil
	})
}
