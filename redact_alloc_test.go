package forebay

import (
	"io"
	"log/slog"
	"testing"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// Redaction by key and path does not allocate for values of slog's built-in kinds, whether or not a
// rule matches. Other values allocate no more than without redaction, as long as no rule matches.
func TestRedactionAllocates(t *testing.T) {
	race.Skip(t)
	r, err := NewRouter(Route(encode.JSON(nil), Writer(io.Discard, Direct())), RedactKeys("password", "user.token", "*secret*"), RedactPaths("http.*.authorization"))
	if err != nil {
		t.Fatal(err)
	}
	log := r.Logger()
	in := log.With(slog.Int("a", 1)).WithGroup("http")
	u := &struct {
		Name string
		N    []int
	}{"bob", []int{1}}
	group := slog.GroupValue(slog.String("name", "x"), slog.String("token", "x"))
	for name, f := range map[string]func(){
		"no match": func() {
			log.Info("message", slog.String("name", "x"), slog.Int("n", 1), slog.Bool("b", true), slog.Duration("d", 1))
		},
		"match": func() {
			log.Info("message", slog.String("Password", "x"), slog.Int("password", 1), slog.Int("theSecretOf", 1))
		},
		"match in a group":  func() { log.Info("message", slog.Attr{Key: "user", Value: group}) },
		"match by path":     func() { in.Info("message", slog.Attr{Key: "get", Value: group}, slog.String("a.authorization", "x")) },
		"pointer to struct": func() { log.Info("message", slog.Any("u", u)) },
		"error":             func() { log.Info("message", slog.Any("err", io.EOF)) },
		"quotes":            func() { log.Info(`say "hello" and "good bye"`, slog.String("j", `{"a":["b",1]}`)) },
	} {
		f()
		if n := allocs.PerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
