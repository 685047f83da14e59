package examples

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/accesslog"
	"github.com/forebay-log/forebay/forebaytest"
)

// newChi returns the handler of a service that is written with chi.
func newChi(log *forebay.Logger) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.RequestID)
	r.Use(accesslog.New(log.Slog(), &accesslog.Options{Attrs: func(r *http.Request) []slog.Attr {
		return []slog.Attr{
			slog.String("route", chi.RouteContext(r.Context()).RoutePattern()),
			slog.String("chi_id", middleware.GetReqID(r.Context())),
		}
	}}))
	r.Use(middleware.Recoverer)

	r.Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, chi.URLParam(r, "id")) })
	r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("oh no") })
	return r
}

func TestChiLogsRequests(t *testing.T) {
	rec := forebaytest.New(t)
	srv := httptest.NewServer(newChi(rec.Logger()))
	defer srv.Close()

	if status, body := get(t, srv.URL+"/items/7"); status != 200 || body != "7" {
		t.Errorf("%d %s", status, body)
	}
	r := rec.Wait(timeout, slog.LevelInfo, "request", "route", "/items/{id}", "path", "/items/7", "status", 200, "bytes", 1)
	if id, _ := r.Attrs["chi_id"].(string); id == "" {
		t.Errorf("no id: %v", r)
	}
	if status, _ := get(t, srv.URL+"/panic"); status != 500 {
		t.Errorf("status %d", status)
	}
	rec.Wait(timeout, slog.LevelError, "request", "route", "/panic", "status", 500)
}
