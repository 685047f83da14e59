package examples

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/accesslog"
	"github.com/forebay-log/forebay/forebaytest"
)

// newGin returns the handler of a service that is written with gin.
func newGin(log *forebay.Logger) http.Handler {
	gin.DefaultWriter = slog.NewLogLogger(log.Slog().Handler(), slog.LevelDebug).Writer()
	gin.DefaultErrorWriter = slog.NewLogLogger(log.Slog().Handler(), slog.LevelError).Writer()
	engine := gin.New() // without gin.Logger
	engine.Use(gin.Recovery())
	handler := accesslog.New(log.Slog(), nil)(engine) // for http.Server.Handler

	engine.GET("/items/:id", func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"id": c.Param("id")}) })
	engine.GET("/stream", func(c *gin.Context) {
		c.String(http.StatusAccepted, "a")
		c.Writer.Flush()
		c.Writer.WriteString("b")
	})
	engine.GET("/panic", func(c *gin.Context) { panic("oh no") })
	return handler
}

func TestGinLogsRequests(t *testing.T) {
	rec := forebaytest.New(t)
	srv := httptest.NewServer(newGin(rec.Logger()))
	defer srv.Close()

	if status, body := get(t, srv.URL+"/items/7"); status != 200 || body != `{"id":"7"}` {
		t.Errorf("%d %s", status, body)
	}
	if _, body := get(t, srv.URL+"/stream"); body != "ab" {
		t.Error(body)
	}
	if status, _ := get(t, srv.URL+"/panic"); status != 500 {
		t.Errorf("status %d", status)
	}
	rec.Wait(timeout, slog.LevelInfo, "request", "method", "GET", "path", "/items/7", "status", 200, "bytes", 10)
	rec.Wait(timeout, slog.LevelInfo, "request", "path", "/stream", "status", 202, "bytes", 2)
	rec.Wait(timeout, slog.LevelError, "request", "path", "/panic", "status", 500)

	own := map[slog.Level]bool{}
	for _, r := range rec.Records() {
		own[r.Level] = own[r.Level] || r.Message != "request"
	}
	if !own[slog.LevelDebug] || !own[slog.LevelError] {
		t.Error("what gin itself says is missing")
	}
}
