package netsink

import (
	"errors"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
)

// To is an output of forebay.New that sends records over a stream socket, as lines or as
// syslog messages. destination is as in [New]:
//
//	log, err := forebay.New(netsink.To("syslog+tcp://localhost:514?app=shop"))
//
// Options for all outputs are those of package forebay; [Configure] is for this one.
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

// Configure gives set the Options of the output: TLS, timeouts, the syslog header.
func Configure(set func(*Options)) forebay.OutputOption {
	return forebay.DriverOption("netsink.Configure", func(c *config) error {
		if set == nil {
			return errors.New("the function is nil; leave it out")
		}
		set(&c.o)
		return nil
	})
}
