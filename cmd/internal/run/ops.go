package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/httpops"
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
		return errors.New(console.ListenRemedy(fmt.Sprintf("--metrics %s: cannot listen: %s", f.Metrics, console.BareNet(err))))
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
