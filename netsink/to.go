package netsink

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To returns an output for forebay.New that sends records over a stream socket, as lines or as
// syslog messages. destination has the form described at [New]:
//
//	log, err := forebay.New(netsink.To("syslog+tcp://localhost:514?app=shop"))
//
// The options of all outputs are in package forebay; [Configure] is specific to this one.
func To(destination string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("netsink.To", config{destination: destination}, openOutput, opts...)
}

// config configures To.
type config struct {
	destination string
	o           Options
}

func openOutput(c *config, s *forebay.Setup) (deliver.Destination, error) {
	d, err := New(c.destination, &c.o)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = d.t.String()
	}
	return d, nil
}

// Configure passes the Options of the output to set: TLS, timeouts, the syslog header. By default
// the Options have their documented defaults.
func Configure(set func(*Options)) forebay.OutputOption {
	return forebay.DriverOption("netsink.Configure", func(c *config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(&c.o)
		return nil
	})
}
