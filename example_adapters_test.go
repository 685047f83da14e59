package forebay_test

import (
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/accesslog"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/forebaytest"
)

// textLog returns a Logger that writes text without times to standard output.
func textLog(opts ...forebay.Option) *forebay.Logger {
	form := encode.Logfmt(&encode.Options{TimeKey: "-"})
	log, err := forebay.New(append(opts, forebay.Writer(os.Stdout, forebay.Encoder(form)))...)
	if err != nil {
		panic(err)
	}
	return log
}

// slog.NewLogLogger makes a *log.Logger, for the standard log and for code that accepts one.
func Example_standardLog() {
	log := textLog()
	defer log.Close()

	std := slog.NewLogLogger(log.Slog().Handler(), slog.LevelWarn)

	std.Printf("%d retries", 3)
	// Output: level=WARN msg="3 retries"
}

// After slog.SetDefault, the functions of the standard log write records at slog.LevelInfo.
func Example_setDefault() {
	log := textLog()
	defer log.Close()
	defer slog.SetDefault(slog.Default())
	defer stdlog.SetFlags(stdlog.Flags())

	slog.SetDefault(log.Slog())

	stdlog.Print("hello")
	slog.Warn("hello", "from", "slog")
	// Output:
	// level=INFO msg=hello
	// level=WARN msg=hello from=slog
}

// The log of a net/http server contains its requests and its errors, such as failed TLS handshakes
// and the stacks of panicking handlers.
func TestHTTPServer(t *testing.T) {
	rec := forebaytest.New(t)
	log := rec.Logger()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { panic("oh no") })

	srv := &http.Server{
		Handler:  accesslog.New(log.Slog(), nil)(mux),
		ErrorLog: slog.NewLogLogger(log.Named("http").Slog().Handler(), slog.LevelError),
	}

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	if resp, err := http.Get("http://" + lis.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("there is an answer")
	}
	rec.Wait(time.Minute, slog.LevelError, "request", "path", "/", "panic", "oh no")
	if err := srv.Shutdown(t.Context()); err != nil { // waits until the connection is closed
		t.Error(err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
	for _, r := range rec.Records() {
		if r.Attrs["logger"] == "http" && strings.Contains(r.Message, "oh no") && strings.Contains(r.Message, "TestHTTPServer.func1") {
			return
		}
	}
	t.Error("no message of the server")
}
