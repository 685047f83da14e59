package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

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
