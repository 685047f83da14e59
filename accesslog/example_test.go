package accesslog_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/accesslog"
	"github.com/forebay-log/forebay/encode"
)

func ExampleNew() {
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(encode.Logfmt(&encode.Options{
		TimeKey: "-",
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "duration" || a.Key == "remote" { // different in each run
				return slog.Attr{}
			}
			return a
		},
	}))))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", r.PathValue("name"))
	})
	handler := accesslog.New(log.Slog(), &accesslog.Options{
		Attrs: func(r *http.Request) []slog.Attr { return []slog.Attr{slog.String("route", r.Pattern)} },
	})(mux)

	for _, path := range []string{"/hello/bob", "/bye"} { // in place of a server
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	// Output:
	// level=INFO msg=request method=GET path=/hello/bob status=200 bytes=11 route="GET /hello/{name}"
	// level=WARN msg=request method=GET path=/bye status=404 bytes=19 route=""
}
