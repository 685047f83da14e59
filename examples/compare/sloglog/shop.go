// Package sloglog is the service with log/slog alone. It writes JSON lines to a stream, such as the
// standard output that a collector reads.
package sloglog

import (
	"io"
	"log/slog"
	"net/http"
)

// New returns the service and a function that closes its log.
func New(out io.Writer) (shop http.Handler, end func() error, err error) {
	log := slog.New(slog.NewJSONHandler(out, nil))
	shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := r.URL.Query().Get("item")
		log.LogAttrs(r.Context(), slog.LevelInfo, "sold", slog.String("item", item), slog.String("customer", "alice"), slog.Int("cents", 1299))
		w.WriteHeader(http.StatusNoContent)
	})
	return shop, func() error { return nil }, nil
}
