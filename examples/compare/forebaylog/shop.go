// Package forebaylog is the service with forebay. It sends records over the network to a collector,
// and stores them on disk while the collector is down.
package forebaylog

import (
	"log/slog"
	"net/http"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/fluent"
)

// New returns the service and its log. The caller must close the log.
func New(collector, spool string, more ...forebay.Option) (shop http.Handler, log *forebay.Logger, err error) {
	log, err = forebay.New(append(more,
		fluent.To(collector, "shop", forebay.Spool(spool), forebay.WhenFull("spill")))...)
	if err != nil {
		return nil, nil, err
	}
	shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := r.URL.Query().Get("item")
		log.Info("sold", slog.String("item", item), slog.String("customer", "alice"), slog.Int("cents", 1299))
		w.WriteHeader(http.StatusNoContent)
	})
	return shop, log, nil
}
