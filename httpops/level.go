package httpops

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxBody limits the body of a request, in bytes.
const maxBody = 4 << 10

// formType is the content type of HTML forms, which curl sends by default.
const formType = "application/x-www-form-urlencoded"

// Level returns a handler that reports and sets v, which is usually passed to forebay.Level for an
// output.
//
//	GET            {"level":"INFO"}
//	PUT {"level":"debug"}   as application/json
//	PUT level=debug         as application/x-www-form-urlencoded
//	PUT debug               as text/plain, as application/x-www-form-urlencoded or without a type
//
// A level is a name, optionally with an offset (WARN+2), or a number. PUT responds with the
// resulting level. Errors have the body {"error":"…"} and status 400, 404 (v is nil), 405, 413 or
// 415. The handler is safe for concurrent use. It does not authorize requests; the program must
// restrict access.
func Level(v *slog.LevelVar) http.Handler { return &handler{v} }

// A handler is the handler of [Level].
type handler struct{ v *slog.LevelVar }

// An httpError is an error with an HTTP status.
type httpError struct {
	status int
	text   string
}

// Error returns the text without the status.
func (e *httpError) Error() string { return e.text }

// badRequest returns an error with the status 400.
func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ServeHTTP handles GET, HEAD and PUT.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.v == nil {
		refuse(w, &httpError{http.StatusNotFound, "this handler was made without a level"})
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		l, err := requestedLevel(w, r)
		if err != nil {
			refuse(w, err)
			return
		}
		h.v.Set(l)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		refuse(w, &httpError{http.StatusMethodNotAllowed, "use GET to see the level, PUT to set it"})
		return
	}
	answer(w, http.StatusOK, map[string]slog.Level{"level": h.v.Level()})
}

// refuse responds with err as JSON. An httpError determines the status. For any other error, the
// status is 400.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var he *httpError
	if errors.As(err, &he) {
		status = he.status
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

// answer responds with body as JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}

// requestedLevel parses the level of a PUT request.
func requestedLevel(w http.ResponseWriter, r *http.Request) (slog.Level, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return 0, &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxBody)}
		}
		return 0, badRequest("cannot read the body: %v", err)
	}
	kind := r.Header.Get("Content-Type")
	if kind != "" {
		if kind, _, err = mime.ParseMediaType(kind); err != nil {
			return 0, badRequest("cannot read the Content-Type: %v", err)
		}
	}
	text := strings.TrimSpace(string(body))
	switch kind {
	case "application/json":
		return jsonLevel(text)
	case formType:
		if strings.HasPrefix(text, "{") || !strings.Contains(text, "=") {
			return bareLevel(text) // curl --data sends any body with this type
		}
		form, err := url.ParseQuery(text)
		if err != nil {
			return 0, badRequest("cannot read the form: %v", err)
		}
		if !form.Has("level") {
			return 0, badRequest(`the form has no field "level"; send level=debug`)
		}
		return parseLevel(form.Get("level"))
	case "", "text/plain":
		return bareLevel(text)
	}
	return 0, &httpError{http.StatusUnsupportedMediaType,
		fmt.Sprintf("content type %s is not one of application/json, %s, text/plain", kind, formType)}
}

// bareLevel parses a level, or an object that contains a level.
func bareLevel(text string) (slog.Level, error) {
	if strings.HasPrefix(text, "{") {
		return jsonLevel(text)
	}
	return parseLevel(text)
}

// jsonLevel parses an object with the member level.
func jsonLevel(text string) (slog.Level, error) {
	var body struct {
		Level json.RawMessage `json:"level"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return 0, badRequest("cannot read the JSON: %v", err)
	}
	if body.Level == nil || string(body.Level) == "null" {
		return 0, badRequest(`the object has no member "level"; send {"level":"debug"}`)
	}
	var name string
	if json.Unmarshal(body.Level, &name) != nil {
		name = string(body.Level) // a number, or a value that parseLevel rejects
	}
	return parseLevel(name)
}

// parseLevel parses the name of a level, with or without an offset, or a number.
func parseLevel(s string) (slog.Level, error) {
	s = strings.TrimSpace(s)
	if n, err := strconv.Atoi(s); err == nil {
		return slog.Level(n), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, badRequest("%q is not a level; use DEBUG, INFO, WARN, ERROR, one of these with an offset such as WARN+2, or a number", s)
	}
	return l, nil
}
