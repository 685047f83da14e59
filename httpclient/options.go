// Package httpclient has the settings and the error that destinations over HTTP share:
// authentication, TLS, proxy, and a failed request.
//
//	loki.Config, otlp.Config, httpsink.Config ─▶ Options ─▶ transport.TLS
//
// Options are the field HTTP of their Config:
//
//	loki.To("https://logs.example.com", forebay.Configure(func(c *loki.Config) {
//		c.HTTP.BearerTokenFile = "/run/secrets/loki"
//		c.HTTP.TLS.CAFile = "/etc/ssl/private-ca.pem"
//	}))
package httpclient

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/transport"
)

// Options configures the requests of a destination. All fields are optional.
type Options struct {
	// Username and Password are used for basic authentication. Default "": none.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// BearerToken is sent as a bearer token. BearerTokenFile is a file that contains the
	// token; it is read again when it changes and after a 401. Default "": none.
	BearerToken     string `yaml:"bearer_token"`
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Headers are sent with every request. Default: none.
	Headers map[string]string `yaml:"headers"`
	// TLS configures https. Default: the authorities of the system, no client certificate.
	TLS transport.TLS `yaml:"tls"`
	// NoProxy ignores the environment variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	// Default false.
	NoProxy bool `yaml:"no_proxy"`
	// UnixSocket is the path of a unix socket to connect to instead of the host of the URL.
	// Default "": none.
	UnixSocket string `yaml:"unix_socket"`
	// Timeout limits one request. The default is stated by each destination.
	Timeout time.Duration `yaml:"timeout"`
	// Client, if not nil, makes the requests, for example to sign them; TLS, NoProxy and
	// UnixSocket are then ignored. The client is copied, and the copy follows no redirects.
	// Default nil: a client configured by the fields above.
	Client *http.Client `yaml:"-"`
}

// Format writes no field, for every verb, because several may be credentials.
func (o Options) Format(f fmt.State, _ rune) { io.WriteString(f, "httpclient.Options{…}") }

// An Error is a failed request: an error status, or no answer. It is shown in dead letters and
// events.
type Error struct {
	Package string // package that sent the request, such as "loki"
	Status  int    // HTTP status; 0 if there is no response
	Message string // the beginning of the answer, or the reason for its absence, without credentials
	Labels  string // for Loki: labels of the first stream of the request; otherwise ""
	Cause   error  // error of the connection, or nil
	// MaybeStored reports whether the server may have stored the records: a connection was
	// made, and there is no answer. The error then wraps [batch.ErrUnanswered].
	MaybeStored bool
}

// Error returns the status, the message and the stream.
func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Package + ": cannot send: " + e.Message
	}
	text := fmt.Sprintf("%s: server answered %d", e.Package, e.Status)
	if t := http.StatusText(e.Status); t != "" {
		text += " " + t
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Labels != "" && !strings.Contains(e.Message, e.Labels) {
		text += " (stream " + e.Labels + ")"
	}
	return text
}

// HTTPStatus returns Status. It is a field of dead letters.
func (e *Error) HTTPStatus() int { return e.Status }

// Unwrap returns Cause and, if MaybeStored is set, [batch.ErrUnanswered].
func (e *Error) Unwrap() (errs []error) {
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	if e.MaybeStored {
		errs = append(errs, batch.ErrUnanswered)
	}
	return errs
}
