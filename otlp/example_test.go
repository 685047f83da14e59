package otlp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/otlp"
)

// receiver returns an OTLP receiver for the examples.
func receiver() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}))
}

func Example() {
	srv := receiver()
	defer srv.Close()
	log, err := forebay.New(otlp.To(srv.URL, otlp.Resource("service.name", "shop")))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("order placed", slog.Int("id", 42))
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	// Output: POST /v1/logs application/x-protobuf
}

func ExampleTo_configure() {
	log, err := forebay.New(otlp.To("http://localhost:4318", forebay.Configure(func(c *otlp.Config) {
		c.DryRun, c.ScopeName = os.Stdout, "checkout"
		c.HTTP.Headers = map[string]string{"X-Api-Key": "…"}
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Close()
	// Output:
}
