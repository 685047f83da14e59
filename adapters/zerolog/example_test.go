package forebayzerolog_test

import (
	"errors"
	"os"

	"github.com/rs/zerolog"

	"github.com/forebay-log/forebay"
	forebayzerolog "github.com/forebay-log/forebay/adapters/zerolog"
	"github.com/forebay-log/forebay/encode"
)

func ExampleNew() {
	form := encode.Logfmt(&encode.Options{TimeKey: "-"})
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(form)))
	if err != nil {
		panic(err)
	}
	defer log.Close()

	logger := zerolog.New(forebayzerolog.New(log)).With().Timestamp().Logger()

	logger.Info().Dict("http", zerolog.Dict().Str("method", "GET").Int("status", 200)).Msg("request")
	logger.Error().Err(errors.New("connection refused")).Int("attempt", 3).Send()
	// Output:
	// level=INFO msg=request http.method=GET http.status=200
	// level=ERROR msg="" error="connection refused" attempt=3
}

// A SlabWriter is used as the io.Writer of zerolog.
func Example_slabWriter() {
	sw, err := forebay.NewSlabWriter(os.Stdout, nil)
	if err != nil {
		panic(err)
	}
	defer sw.Close()

	logger := zerolog.New(sw)
	logger.Info().Int("port", 8080).Msg("hello")
	// Output: {"level":"info","port":8080,"message":"hello"}
}
