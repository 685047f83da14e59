package httpops

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebay-log/forebay"
)

// Levels reports, sets and removes levels of loggers by name, and the loggers use them.
func TestLevels(t *testing.T) {
	log, err := forebay.New(quiet, forebay.Writer(io.Discard, forebay.Direct()))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	pool := log.Named("db").Named("pool")
	h := Levels(log.Router())
	mux := http.NewServeMux()
	mux.Handle("/levels", h)
	mux.Handle("/levels/{name}", h)

	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
		pool               slog.Level // level of db.pool after the request
	}{
		{"GET", "/levels", "", 200, `{"levels":{"":"INFO","db":"INFO","db.pool":"INFO"}}`, slog.LevelInfo},
		{"HEAD", "/levels", "", 200, "", slog.LevelInfo},
		{"GET", "/levels/db", "", 200, `{"level":"INFO"}`, slog.LevelInfo},
		{"PUT", "/levels/db", "debug", 200, `{"level":"DEBUG"}`, slog.LevelDebug},
		{"GET", "/levels/db.pool", "", 200, `{"level":"DEBUG"}`, slog.LevelDebug},
		{"PUT", "/levels/db.pool", `{"level":"error"}`, 200, `{"level":"ERROR"}`, slog.LevelError},
		{"PUT", "/levels", "warn", 200, `{"level":"WARN"}`, slog.LevelError},
		{"GET", "/levels", "", 200, `{"levels":{"":"WARN","db":"DEBUG","db.pool":"ERROR"}}`, slog.LevelError},
		{"PUT", "/levels/db.pool.idle", "info", 200, `{"level":"INFO"}`, slog.LevelError},
		{"DELETE", "/levels/db.pool.idle", "", 200, `{"level":"ERROR"}`, slog.LevelError}, // level of db.pool
		{"DELETE", "/levels/db.pool", "", 200, `{"level":"DEBUG"}`, slog.LevelDebug},
		{"DELETE", "/levels/db", "", 200, `{"level":"WARN"}`, slog.LevelWarn},
		{"DELETE", "/levels", "", 200, `{"level":"INFO"}`, slog.LevelInfo},

		// No logger has this name yet.
		{"GET", "/levels/http", "", 404, `no logger has the name \"http\", and no level is set for it`, slog.LevelInfo},
		{"PUT", "/levels/http", "debug", 200, `{"level":"DEBUG"}`, slog.LevelInfo},
		{"GET", "/levels/http", "", 200, `{"level":"DEBUG"}`, slog.LevelInfo},
		{"DELETE", "/levels/http", "", 200, `{"level":"INFO"}`, slog.LevelInfo},
		{"GET", "/levels/http", "", 404, "no logger has the name", slog.LevelInfo},

		{"PUT", "/levels/db", "loud", 400, `\"loud\" is not a level`, slog.LevelInfo},
		{"PUT", "/levels/db", strings.Repeat(" ", maxBody) + "debug", 413, "longer than 4096 bytes", slog.LevelInfo},
		{"POST", "/levels/db", "debug", 405, "DELETE to reset one", slog.LevelInfo},
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.body))
		if tt.body != "" {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -X PUT -d sends it
		}
		mux.ServeHTTP(rec, req)
		if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.want) || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %.20q: %d %s", tt.method, tt.path, tt.body, rec.Code, rec.Body)
		}
		if !pool.Enabled(tt.pool) || pool.Enabled(tt.pool-1) {
			t.Errorf("%s %s %.20q: the level of db.pool is not %v", tt.method, tt.path, tt.body, tt.pool)
		}
		if (rec.Code == 405) != (rec.Header().Get("Allow") == "GET, HEAD, PUT, DELETE") {
			t.Errorf("Allow %q", rec.Header().Get("Allow"))
		}
	}
}

func TestLevelsWithoutRouter(t *testing.T) {
	for _, r := range []*forebay.Router{nil, {}} {
		rec := httptest.NewRecorder()
		Levels(r).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "PUT", "/", strings.NewReader("info")))
		if rec.Code != http.StatusNotFound {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
}
