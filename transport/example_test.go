package transport_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/transport"
)

// A server whose certificate is signed by a private authority.
func ExampleTLS() {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s", body)
	}))
	defer srv.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	log, err := forebay.New(httpsink.To(srv.URL, forebay.Encoder(encode.JSON(&encode.Options{TimeKey: "-"})),
		forebay.Configure(func(c *httpsink.Config) {
			c.HTTP.TLS = transport.TLS{CAFile: ca, MinVersion: "1.3"}
		})))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("hello")
	log.Close()
	// Output: {"level":"INFO","msg":"hello"}
}
