package httpops

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/forebay-log/forebay"
)

// Levels returns a handler that shows and sets the levels of named loggers of r; see
// forebay.Logger.Named and forebay.Router.SetLevel. The name is the part of the path that
// the pattern of an http.ServeMux calls {name}. Without one it is "", the name of all
// loggers that have no level of their own. Mount it twice to have both:
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
// PUT takes what [Level] takes, and sets the level of a name that has no logger yet, too.
// DELETE takes back what was set; the name follows those above it again. Both answer with
// the level that now holds. Faults are answered as by Level; GET of a name that has neither
// a logger nor a level is a 404. It may be used by several goroutines at once. Who may call
// it is for the caller to see to.
func Levels(r *forebay.Router) http.Handler { return levels{r} }

type levels struct{ router *forebay.Router }

// ServeHTTP answers GET, HEAD, PUT and DELETE.
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
		refuse(w, &httpError{http.StatusMethodNotAllowed, "use GET to see levels, PUT to set one, DELETE to take back what was set"})
		return
	}
	answer(w, http.StatusOK, map[string]slog.Level{"level": h.levelOf(name)})
}

// levelOf returns the level of a name, also of one without a logger.
func (h levels) levelOf(name string) slog.Level {
	all := h.router.Levels()
	for {
		if l, ok := all[name]; ok || name == "" {
			return l
		}
		name = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
}
