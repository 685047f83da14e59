package forebayzap_test

import (
	"errors"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay"
	forebayzap "github.com/forebay-log/forebay/adapters/zap"
	"github.com/forebay-log/forebay/encode"
)

func ExampleNew() {
	form := encode.JSON(&encode.Options{TimeKey: "-", Duration: "text"})
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(form)))
	if err != nil {
		panic(err)
	}
	defer log.Close()

	logger := zap.New(forebayzap.New(log), zap.AddCaller())
	zap.ReplaceGlobals(logger)

	db := logger.Named("db").With(zap.Namespace("query"), zap.String("table", "users"))
	db.Info("slow", zap.Duration("took", 1500*time.Millisecond), zap.Strings("keys", []string{"id", "name"}))
	zap.S().Errorw("lost", zap.Error(errors.New("connection refused")), "attempt", 3)
	// Output:
	// {"level":"INFO","msg":"slow","logger":"db","caller":"zap/example_test.go:28","query":{"table":"users","took":"1.5s","keys":["id","name"]}}
	// {"level":"ERROR","msg":"lost","caller":"zap/example_test.go:29","error":"connection refused","attempt":3}
}

// A SlabWriter is used as the zapcore.WriteSyncer of zap's own encoder.
func Example_slabWriter() {
	sw, err := forebay.NewSlabWriter(os.Stdout, nil)
	if err != nil {
		panic(err)
	}
	defer sw.Close()

	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), sw, zap.InfoLevel))
	logger.Info("hello", zap.Int("port", 8080))
	// Output: {"msg":"hello","port":8080}
}
