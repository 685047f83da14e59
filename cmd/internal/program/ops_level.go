package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// levels returns the level of each output, "" for none. Any goroutine may ask.
func (p *pipeline) levels() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]string{}
	for _, out := range p.outs {
		all[out.to] = out.c.Level().String()
	}
	return all
}

var errNoOutput = errors.New("there is no such output")

// setLevel gives an output another level, from the next record on. It waits for records on
// their way, at most until ctx is done.
func (p *pipeline) setLevel(ctx context.Context, name string, l setting.Level) error {
	if p.changing.take(ctx) != nil {
		return errors.New("the configuration is changing; try again later")
	}
	defer p.changing.leave()
	if !p.join() {
		return errors.New("the input has ended")
	}
	defer p.leave(nil)
	var found *output
	for _, out := range p.outs {
		if out.to == name || name == "" && len(p.outs) == 1 {
			found = out
		}
	}
	if found == nil {
		return errNoOutput
	}
	var takes []*intake
	for _, in := range p.inlets {
		if found.c.route.takes(in.name) {
			takes = append(takes, in.intakes...)
		}
	}
	for _, take := range takes {
		release, err := take.hold(ctx)
		if err != nil {
			return errors.New("a record waits for room in an output; try again later")
		}
		defer release()
	}
	p.mu.Lock()
	*found.c.Level() = l
	p.mu.Unlock()
	for _, take := range takes {
		take.wire()
	}
	p.con.Say("%s: the level is %s now", found.to, l.Words())
	return nil
}

// level answers GET and PUT /-/level: the levels of the outputs, and another one for one of
// them, with level=LEVEL and, if there are several, output=NAME.
func (p *pipeline) level(w http.ResponseWriter, r *http.Request) {
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
		switch err := p.setLevel(ctx, name, l); {
		case err == errNoOutput:
			var names []string
			for name := range p.levels() {
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
	_ = json.NewEncoder(w).Encode(p.levels()) // else the client is gone
}
