package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/httpops"
	"github.com/forebay-log/forebay/internal/neterr"
)

// An opsServer serves metrics, health checks and the control socket. A nil *opsServer serves
// nothing.
type opsServer struct {
	srv     http.Server     // serves the address of --metrics
	control *control.Server // nil if there is no control socket
	ending  atomic.Bool     // the program does not read input any more
}

// These are limits for a request: the size of its header, and the time to read the header.
const (
	opsHeader  = 16 << 10
	opsTimeout = 10 * time.Second
)

// serveOps starts the servers for monitoring p that f configures.
func serveOps(f *config.Ops, p *Pipeline) (*opsServer, error) {
	s := new(opsServer)
	pages, err := s.pages(p)
	if err != nil {
		return nil, err
	}
	if err := s.serveControl(f.Control, p, pages); err != nil {
		return nil, err
	}
	if err := s.listen(f, p, pages); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// listen serves the pages at the address of --metrics.
func (s *opsServer) listen(f *config.Ops, p *Pipeline, pages http.Handler) error {
	if f.Metrics == "" {
		return nil
	}
	addr := f.Metrics
	if strings.HasPrefix(addr, ":") {
		addr = "localhost" + addr
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.New(console.ListenRemedy(fmt.Sprintf("--metrics %s: cannot listen: %s", f.Metrics, neterr.Cause(err))))
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	if f.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	s.srv = http.Server{Handler: mux, ReadTimeout: opsTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: opsHeader}
	go func() { _ = s.srv.Serve(ln) }() // ends after close
	if !p.C.Quiet {
		p.Console.Say("metrics and health on http://%s", ln.Addr())
	}
	return nil
}

// pages returns a handler for all pages about p.
func (s *opsServer) pages(p *Pipeline) (http.Handler, error) {
	ops, err := httpops.New(View{p})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		ops.Metrics(w, r)
		if r.Method == http.MethodGet {
			_, _ = w.Write(View{p}.inputMetrics()) // an error means that the client has disconnected
		}
	})
	mux.HandleFunc("/health", ops.Health)
	mux.HandleFunc("GET /-/level", View{p}.Level)
	mux.HandleFunc("PUT /-/level", func(w http.ResponseWriter, _ *http.Request) { // only allowed over the control socket, because clients of --metrics are not authenticated
		socket := "SOCKET"
		if s.control != nil {
			socket = s.control.Path()
		}
		http.Error(w, "levels are set at the control socket only: curl --unix-socket "+socket+
			" -X PUT -d 'output=NAME&level=LEVEL' http://localhost/-/level", http.StatusForbidden)
	})
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if s.ending.Load() {
			http.Error(w, "the input has ended, or the program is stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux, nil
}

// end makes /-/ready report that the program is not ready any more.
func (s *opsServer) end() {
	if s != nil {
		s.ending.Store(true)
	}
}

// close stops the servers. Requests in progress have 0.1 s to finish.
func (s *opsServer) close() {
	if s == nil {
		return
	}
	if s.control != nil {
		s.control.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if s.srv.Shutdown(ctx) != nil {
		_ = s.srv.Close() // abort requests that are not finished
	}
}

// A View gives HTTP clients, forebay top and Prometheus access to a running pipeline. It returns
// the state and can set levels.
type View struct{ P *Pipeline }

// Stats returns the state of the outputs for package httpops.
func (v View) Stats() (s forebay.Stats) {
	p := v.P
	for _, out := range p.Outputs() {
		d := out.Delivery.Stats()
		out.Limit(&d.Account)
		s.Outputs = append(s.Outputs, forebay.OutputStats{
			Name: out.To, Buffered: true, Account: d.Account, Panics: d.Deliver.Panics,
			FailingSince: d.Deliver.FailingSince, LastError: d.Deliver.LastError, Delivery: &d,
		})
	}
	return s
}

// inputMetrics returns the metrics of the inputs in the text format of Prometheus.
func (v View) inputMetrics() (text []byte) {
	p := v.P
	read := p.Read()
	for _, m := range []struct {
		name, help string
		n          uint64
	}{
		{"forebay_read_records_total", "Lines read.", read.Records},
		{"forebay_read_bytes_total", "Bytes read.", read.Bytes},
		{"forebay_read_filtered_total", "Lines read that are below --level.", read.Filtered},
		{"forebay_read_unparsed_total", "Lines read that are not in --format, treated as text.", read.Unparsed},
		{"forebay_read_oversize_total", "Lines read that are longer than --max-record, dropped.", read.Oversize},
		{"forebay_read_left_out_total", "Lines read that transforms remove.", read.Removed},
		{"forebay_read_lost_bytes_total", "Bytes of files lost before they were read.", read.Lost},
		{"forebay_read_lost_files_total", "Files lost before they were read to the end.", read.LostIn},
	} {
		text = fmt.Appendf(text, "# HELP %s %s\n# TYPE %s counter\n%s %d\n", m.name, m.help, m.name, m.name, m.n)
	}
	return text
}

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

// levels returns the levels of the outputs by name; "" means that no level is set. It is safe for
// concurrent use.
func (v View) levels() map[string]string {
	p := v.P
	p.Mu.Lock()
	defer p.Mu.Unlock()
	all := map[string]string{}
	for _, out := range p.Outs {
		all[out.To] = out.Spec.Level().String()
	}
	return all
}

var errNoOutput = errors.New("there is no such output")

// SetLevel sets the level of an output for all later records. It waits until no input is writing a
// record, or until ctx is done.
func (v View) SetLevel(ctx context.Context, name string, l setting.Level) error {
	p := v.P
	if p.changing.lock(ctx) != nil {
		return errors.New("the configuration is changing; try again later")
	}
	defer p.changing.unlock()
	if !p.retainLive() {
		return errors.New("the input has ended")
	}
	defer p.releaseLive(nil)
	var found *output.Output
	for _, out := range p.Outs {
		if out.To == name || name == "" && len(p.Outs) == 1 {
			found = out
		}
	}
	if found == nil {
		return errNoOutput
	}
	var takes []*intake.Intake
	for _, in := range p.Inlets {
		if found.Spec.Route.Selects(in.Name) {
			takes = append(takes, in.Intakes...)
		}
	}
	for _, take := range takes {
		release, err := take.Hold(ctx)
		if err != nil {
			return errors.New("a record waits for room in an output; try again later")
		}
		defer release()
	}
	p.Mu.Lock()
	*found.Spec.Level() = l
	p.Mu.Unlock()
	for _, take := range takes {
		take.Wire()
	}
	p.Console.Say("%s: the level is %s now", found.To, l.Words())
	return nil
}

// Level answers GET and PUT /-/level. GET returns the levels of all outputs. PUT sets the level of
// one output. The parameters of PUT are level=LEVEL and output=NAME, which may be omitted if there
// is only one output.
func (v View) Level(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, format string, args ...any) { http.Error(w, fmt.Sprintf(format, args...), code) }
	if r.Method == http.MethodPut {
		r.Body = http.MaxBytesReader(w, r.Body, opsHeader)
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if err := r.ParseForm(); err != nil {
			refuse(http.StatusBadRequest, "write level=LEVEL&output=NAME, in the query or as a form: %v", err)
			return
		}
		name, text := r.Form.Get("output"), strings.TrimSpace(r.Form.Get("level"))
		var l setting.Level
		if text != "none" {
			if err := l.Set(text); err != nil {
				refuse(http.StatusBadRequest, "level=%.40s: %v, or none", text, err)
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), changePatience)
		defer cancel()
		switch err := v.SetLevel(ctx, name, l); {
		case err == errNoOutput:
			var names []string
			for name := range v.levels() {
				names = append(names, name)
			}
			refuse(http.StatusNotFound, "output=%.40s: %v; there is %s", name, err, console.InWords(names, "and"))
			return
		case err != nil:
			refuse(http.StatusServiceUnavailable, "%v", err)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v.levels()) // an error means that the client has disconnected
}
