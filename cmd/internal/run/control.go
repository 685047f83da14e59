package run

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/process"
)

// serveControl serves the state of p and the given pages on the control socket. If --control is not
// given, errors are ignored, because the pipeline does not need the socket.
func (s *opsServer) serveControl(path string, p *Pipeline, pages http.Handler) error {
	if path == config.NoControl {
		return nil
	}
	ln, err := control.Listen(path, p.C.Name)
	switch {
	case err != nil && path == "":
		return nil
	case err != nil:
		return errors.New(console.WriteRemedy(fmt.Sprintf("--control %s: cannot listen: %s", path, err)))
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc("PUT /-/level", View{p}.Level)
	start := time.Now()
	s.control = control.Serve(ln, func() control.State {
		now := control.State{
			Name: p.C.Name, Verb: verb(p.C), PID: os.Getpid(), Version: process.BuildInfo().Version,
			Start: start, Now: time.Now(), Ending: s.ending.Load(),
		}
		View{p}.Describe(&now)
		return now
	}, mux)
	return nil
}

// Describe sets the fields of s for the input and the outputs. It is safe for concurrent use.
func (v View) Describe(s *control.State) {
	p := v.P
	read := p.Read()
	s.Input = control.Input{
		Records: read.Records, Bytes: read.Bytes, Filtered: read.Filtered,
		Oversize: read.Oversize, Unparsed: read.Unparsed,
	}
	outs := p.Outputs()
	s.Outputs = make([]control.Output, 0, len(outs))
	for _, out := range outs {
		s.Outputs = append(s.Outputs, out.Describe(s.Now))
	}
}

// verb returns the name of the command that runs the pipeline, such as pipe.
func verb(c *config.Pipeline) string {
	switch {
	case c.Named:
		return "run"
	case c.Tail != nil:
		return "tail"
	}
	return "pipe"
}
