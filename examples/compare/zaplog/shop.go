// Package zaplog is the service with zap and lumberjack. It writes JSON lines to a rotated file
// that a collector follows.
package zaplog

import (
	"errors"
	"net/http"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

// New returns the service and a function that closes its log. The current file and one rotated file
// have at most maxMB MiB each.
func New(file string, maxMB int) (shop http.Handler, end func() error, err error) {
	out := &lumberjack.Logger{Filename: file, MaxSize: maxMB, MaxBackups: 1}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(out), zap.InfoLevel))
	shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := r.URL.Query().Get("item")
		log.Info("sold", zap.String("item", item), zap.String("customer", "alice"), zap.Int("cents", 1299))
		w.WriteHeader(http.StatusNoContent)
	})
	return shop, func() error { return errors.Join(log.Sync(), out.Close()) }, nil
}
