package httpops

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLevelHandler(t *testing.T) {
	const (
		asJSON = "application/json; charset=utf-8"
		asForm = "application/x-www-form-urlencoded"
		asText = "text/plain"
	)
	for _, tt := range []struct {
		method, kind, body string
		status             int
		want               string // body of the answer
		level              slog.Level
	}{
		{"GET", "", "", 200, `{"level":"WARN"}`, slog.LevelWarn},
		{"HEAD", "", "", 200, "", slog.LevelWarn},
		{"PUT", asJSON, `{"level":"debug"}`, 200, `{"level":"DEBUG"}`, slog.LevelDebug},
		{"PUT", asJSON, ` {"level": "Info+2"} `, 200, `{"level":"INFO+2"}`, slog.LevelInfo + 2},
		{"PUT", asJSON, `{"level":-8}`, 200, `{"level":"DEBUG-4"}`, -8},
		{"PUT", asForm, `level=error`, 200, `{"level":"ERROR"}`, slog.LevelError},
		{"PUT", asForm, `level=info%2B1`, 200, `{"level":"INFO+1"}`, slog.LevelInfo + 1},
		{"PUT", asForm, "debug", 200, `{"level":"DEBUG"}`, slog.LevelDebug}, // as curl -X PUT -d debug sends it
		{"PUT", asForm, "WARN+2", 200, `{"level":"WARN+2"}`, slog.LevelWarn + 2},
		{"PUT", asForm, `{"level":"debug"}`, 200, `{"level":"DEBUG"}`, slog.LevelDebug},
		{"PUT", asText, "info\n", 200, `{"level":"INFO"}`, slog.LevelInfo},
		{"PUT", "", "8", 200, `{"level":"ERROR"}`, slog.LevelError},
		{"PUT", "", `{"level":"debug"}`, 200, `{"level":"DEBUG"}`, slog.LevelDebug},

		{"PUT", "", "", 400, `\"\" is not a level; use DEBUG, INFO, WARN, ERROR`, slog.LevelWarn},
		{"PUT", asText, "loud", 400, `\"loud\" is not a level`, slog.LevelWarn},
		{"PUT", asJSON, "loud", 400, "cannot read the JSON: invalid character", slog.LevelWarn},
		{"PUT", asJSON, "{}", 400, `no member \"level\"`, slog.LevelWarn},
		{"PUT", asJSON, `{"level":null}`, 400, `no member \"level\"`, slog.LevelWarn},
		{"PUT", asJSON, `{"level":1.5}`, 400, `\"1.5\" is not a level`, slog.LevelWarn},
		{"PUT", asForm, "loud", 400, `\"loud\" is not a level`, slog.LevelWarn},
		{"PUT", asForm, "lvel=debug", 400, `no field \"level\"`, slog.LevelWarn},
		{"PUT", asForm, "level=%zz", 400, "cannot read the form", slog.LevelWarn},
		{"PUT", "/;", "debug", 400, "cannot read the Content-Type", slog.LevelWarn},
		{"PUT", "application/xml", "<level/>", 415, "content type application/xml is not one of", slog.LevelWarn},
		{"PUT", asText, strings.Repeat(" ", maxBody) + "info", 413, "longer than 4096 bytes", slog.LevelWarn},
		{"POST", asText, "info", 405, "use GET to see the level", slog.LevelWarn},
		{"DELETE", "", "", 405, "use GET", slog.LevelWarn},
	} {
		v := new(slog.LevelVar)
		v.Set(slog.LevelWarn)
		srv := httptest.NewServer(Level(v))
		req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.kind != "" {
			req.Header.Set("Content-Type", tt.kind)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		srv.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.want) || v.Level() != tt.level {
			t.Errorf("%s %s %q: %d %s, level %v", tt.method, tt.kind, tt.body, resp.StatusCode, body, v.Level())
		}
		if got := resp.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type %q", got)
		}
		if (resp.StatusCode == 405) != (resp.Header.Get("Allow") == "GET, HEAD, PUT") {
			t.Errorf("Allow %q", resp.Header.Get("Allow"))
		}
	}
}

func TestLevelHandlerWithoutLevel(t *testing.T) {
	rec := httptest.NewRecorder()
	Level(nil).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "PUT", "/", strings.NewReader("info")))
	if rec.Code != http.StatusNotFound {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
