// Package httpops serves what an operator asks a running program about its log: metrics
// for Prometheus, health, the same for package expvar, and levels to look at and set: those
// of named loggers, or that of an output. It is apart from the front door so that programs without it do not link net/http.
//
//	ops, err := httpops.New(log.Router())
//	if err != nil {
//		…
//	}
//	mux.HandleFunc("/metrics", ops.Metrics)
//	mux.HandleFunc("/healthz", ops.Health)
//	mux.Handle("/levels", httpops.Levels(log.Router()))
//	mux.Handle("/levels/{name}", httpops.Levels(log.Router()))
//
// Who may call these is for the program to see to. They show the names of outputs, counts
// and the texts of errors, which hold no credentials; see package deliver, "Errors and
// secrets".
package httpops

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/forebay-log/forebay"
)

// Ops answers for the outputs of one Router. Its methods may be called from any goroutine,
// also beside and after Close of the Router. They wait for no destination.
type Ops struct {
	from interface{ Stats() forebay.Stats }
}

// New returns an Ops for r, usually a *forebay.Router: forebay.Logger.Router returns it.
// It is an error if r is nil, or a nil pointer, or has no outputs.
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

// serve answers GET and HEAD.
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
		_, _ = w.Write(body) // else the client is gone
	}
}
