// Package httpops provides HTTP handlers for operating a program's log: metrics for Prometheus,
// health (also for package expvar), and handlers that report and set the levels of named loggers or
// of an output. It is a separate package so that only programs that use it link net/http.
//
//	ops, err := httpops.New(log.Router())
//	if err != nil {
//		…
//	}
//	mux.HandleFunc("/metrics", ops.Metrics)
//	mux.HandleFunc("/health", ops.Health)
//	mux.Handle("/levels", httpops.Levels(log.Router()))
//	mux.Handle("/levels/{name}", httpops.Levels(log.Router()))
//
//	GET /metrics ─┐
//	GET /health  ─┼─▶ Ops ─▶ Router.Stats
//	PUT /levels  ─┴─▶ Router.SetLevel
//
// The handlers do not authorize requests; the program must restrict access. The responses contain
// the names of outputs, counts and the texts of errors, which contain no credentials; see package
// deliver, "Errors and secrets".
package httpops

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/forebay-log/forebay"
)

// Ops serves the metrics and the health of one Router. Its methods are safe for concurrent use,
// including during and after Close of the Router. They do not wait for destinations.
type Ops struct {
	from interface{ Stats() forebay.Stats }
}

// New returns an Ops for r, usually a *forebay.Router, as returned by forebay.Logger.Router. It
// returns an error if r is nil, contains a nil pointer, or has no outputs.
func New(r interface{ Stats() forebay.Stats }) (*Ops, error) {
	if r == nil {
		return nil, errors.New("httpops: the router is nil; give log.Router() of a Logger made by forebay.New")
	}
	if v := reflect.ValueOf(r); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("httpops: the router is a nil %T; give log.Router() of a Logger made by forebay.New", r)
	}
	if len(r.Stats().Outputs) == 0 {
		return nil, fmt.Errorf("httpops: the router (%T) has no outputs; make it with forebay.New or forebay.NewRouter", r)
	}
	return &Ops{from: r}, nil
}

// serve responds to GET and HEAD with body, and to other methods with the status 405.
func serve(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // an error means that the client has disconnected
	}
}
