package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/httpsink"
)

// The field HTTP of a Config holds the credentials of the requests.
func ExampleOptions() {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Authorization"), r.Header.Get("X-Team"))
	}))
	defer srv.Close()

	log, err := forebay.New(httpsink.To(srv.URL, forebay.Configure(func(c *httpsink.Config) {
		c.HTTP.BearerToken = "secret"
		c.HTTP.Headers = map[string]string{"X-Team": "shop"}
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("hello")
	log.Close()
	// Output: Bearer secret shop
}

// The events of an output have the error of a failed request.
func ExampleError() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "wrong token", http.StatusUnauthorized)
	}))
	defer srv.Close()

	events := make(chan batch.Event, 10)
	log, err := forebay.New(httpsink.To(srv.URL, forebay.OnError(func(e batch.Event) { events <- e })))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Error("hello")
	e := <-events
	if failed := (*httpclient.Error)(nil); errors.As(e.Err, &failed) {
		fmt.Println(e.Op, failed.Status, failed.Message)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // do not wait for the server
	log.Router().Close(ctx)
	// Output: hold 401 wrong token
}
