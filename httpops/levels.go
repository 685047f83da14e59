package httpops

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/forebay-log/forebay"
)

// Levels returns a handler that reports and sets the levels of named loggers of r; see
// forebay.Logger.Named and forebay.Router.SetLevel. The name is the path value {name} of the
// http.ServeMux pattern. Without it the name is "", which applies to all loggers without a level.
// To support requests with and without a name, register the handler twice:
//
//	levels := httpops.Levels(log.Router())
//	mux.Handle("/levels", levels)
//	mux.Handle("/levels/{name}", levels)
//
//	GET /levels              {"levels":{"":"INFO","db":"INFO","db.pool":"DEBUG"}}
//	GET /levels/db           {"level":"INFO"}
//	PUT /levels/db debug     {"level":"DEBUG"}
//	DELETE /levels/db        {"level":"INFO"}
//
// PUT accepts the same bodies as [Level]. It also accepts a name that no logger has yet. DELETE
// removes the level, so that the name inherits one again. PUT and DELETE respond with the resulting
// level. Errors have the form described at Level; GET of a name without a logger or a level
// responds with
// 404. The handler is safe for concurrent use. It does not authorize requests; the program must
// restrict access.
func Levels(r *forebay.Router) http.Handler { return levels{r} }

// levels is the handler of [Levels].
type levels struct{ router *forebay.Router }

// ServeHTTP handles GET, HEAD, PUT and DELETE.
func (h levels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.router == nil || h.router.Levels() == nil {
		refuse(w, &httpError{http.StatusNotFound, "this handler was made without a router"})
		return
	}
	name := r.PathValue("name")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		all := h.router.Levels()
		if name == "" {
			answer(w, http.StatusOK, map[string]map[string]slog.Level{"levels": all})
			return
		}
		if _, ok := all[name]; !ok {
			refuse(w, &httpError{http.StatusNotFound, fmt.Sprintf("no logger has the name %q, and no level is set for it", name)})
			return
		}
	case http.MethodPut:
		l, err := requestedLevel(w, r)
		if err != nil {
			refuse(w, err)
			return
		}
		h.router.SetLevel(name, l)
	case http.MethodDelete:
		h.router.SetLevel(name, nil)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		refuse(w, &httpError{http.StatusMethodNotAllowed, "use GET to see levels, PUT to set one, DELETE to reset one"})
		return
	}
	answer(w, http.StatusOK, map[string]slog.Level{"level": h.levelOf(name)})
}

// levelOf returns the level of a name or, if it has none, of the nearest ancestor that has one.
func (h levels) levelOf(name string) slog.Level {
	all := h.router.Levels()
	for {
		if l, ok := all[name]; ok || name == "" {
			return l
		}
		name = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
}
