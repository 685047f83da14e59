package forebay_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/forebay-log/forebay"
)

// A login has fields that should not be logged.
type login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// The rules apply to every output. They hide the values of all attributes, fields and members with
// these names.
func ExampleRedactKeys() {
	r, err := forebay.NewRouter(
		forebay.RedactKeys("password", "authorization", "card.number"),
		forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	log := slog.New(r)
	log.Info("login", "user", "bob", "password", "hunter2")
	log.Info("login", "form", login{"bob", "hunter2"})
	log.Info("request", "header", http.Header{"Authorization": {"Bearer abc"}, "Accept": {"*/*"}})
	log.Info("answer", "body", `{"token":1,"card":{"number":"4111","holder":"bob"}}`)
	log.WithGroup("card").Info("paid", "number", "4111", "amount", 12)
	// Output:
	// {"level":"INFO","msg":"login","user":"bob","password":"[redacted]"}
	// {"level":"INFO","msg":"login","form":{"user":"bob","password":"[redacted]"}}
	// {"level":"INFO","msg":"request","header":{"Accept":["*/*"],"Authorization":"[redacted]"}}
	// {"level":"INFO","msg":"answer","body":"{\"token\":1,\"card\":{\"number\":\"[redacted]\",\"holder\":\"bob\"}}"}
	// {"level":"INFO","msg":"paid","card":{"number":"[redacted]","amount":12}}
}

func ExampleRedactPaths() {
	r, err := forebay.NewRouter(
		forebay.RedactPaths("user.id", "http.*.cookie"),
		forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	log := slog.New(r)
	log.Info("order", "id", 7, slog.Group("user", "id", 42))
	log.WithGroup("http").Info("done", "request", map[string]string{"cookie": "abc", "path": "/"})
	// Output:
	// {"level":"INFO","msg":"order","id":7,"user":{"id":"[redacted]"}}
	// {"level":"INFO","msg":"done","http":{"request":{"cookie":"[redacted]","path":"/"}}}
}

func ExampleRedactPattern() {
	r, err := forebay.NewRouter(
		forebay.RedactPattern(regexp.MustCompile(`\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b`)),
		forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	log := slog.New(r)
	log.Info("card 4111-1111-1111-1111 was refused", "card", int64(4111111111111111))
	log.Error("cannot pay", "err", fmt.Errorf("bank: %w", errors.New("no account for 4111 1111 1111 1111")))
	// Output:
	// {"level":"INFO","msg":"card [redacted] was refused","card":"[redacted]"}
	// {"level":"ERROR","msg":"cannot pay","err":"bank: no account for [redacted]"}
}

func ExampleReplaceAttr() {
	r, err := forebay.NewRouter(
		forebay.ReplaceAttr(func(groups []string, a slog.Attr) slog.Attr {
			switch {
			case a.Key == "email":
				_, domain, _ := strings.Cut(a.Value.String(), "@")
				return slog.String("email", "…@"+domain)
			case a.Key == "debug" && len(groups) == 0:
				return slog.Attr{} // left out
			}
			return a
		}),
		forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	slog.New(r).Info("welcome", "debug", true, slog.Group("user", "name", "Bob", "email", "bob@example.org"))
	// Output:
	// {"level":"INFO","msg":"welcome","user":{"name":"Bob","email":"…@example.org"}}
}
