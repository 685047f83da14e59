package httpsink_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpsink"
)

// server returns a server for the examples.
func server() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s\n%s", r.Method, r.URL.Path, body)
	}))
}

func Example() {
	srv := server()
	defer srv.Close()
	log, err := forebay.New(httpsink.To(srv.URL+"/logs", forebay.Encoder(encode.JSON(&encode.Options{TimeKey: "-"}))))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("order placed", slog.Int("id", 42))
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// POST /logs
	// {"level":"INFO","msg":"order placed","id":42}
}

// Records are sent to Elasticsearch with an API key. The path of the URL is the index.
func ExampleAPI() {
	log, err := forebay.New(httpsink.To("https://localhost:9200/logs-shop", httpsink.API("elasticsearch"),
		forebay.Configure(func(c *httpsink.Config) { c.HTTP.BearerTokenFile = "/run/secrets/elastic" })))
	if err != nil {
		fmt.Println("cannot read the file of the token")
		return
	}
	log.Close()
	// Output: cannot read the file of the token
}

// Records are sent to Splunk. HEC adds members to each event.
func ExampleTo_configure() {
	log, err := forebay.New(httpsink.To("https://localhost:8088", httpsink.API("hec"), forebay.Configure(func(c *httpsink.Config) {
		c.DryRun, c.HTTP.BearerToken = os.Stdout, "…"
		c.HEC = map[string]string{"index": "main", "sourcetype": "shop"}
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Close()
	// Output:
}
