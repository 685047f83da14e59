package forebay

import (
	"bytes"
	"log"
	"log/slog"
	"testing"
)

// keepDefaults restores, at the end of the test, the settings that slog.SetDefault changes.
func keepDefaults(t *testing.T) {
	l, w, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(l) // slog.SetDefault does not change package log if l is slog's initial logger
		log.SetOutput(w)
		log.SetFlags(flags)
	})
}

// slog.SetDefault also redirects the standard log: its lines become records.
func TestSetDefaultRedirectsStandardLog(t *testing.T) {
	keepDefaults(t)
	var buf bytes.Buffer
	r := newRouter(t, Route(plain(), Writer(&buf, Direct())))
	slog.SetDefault(slog.New(r))
	log.Print("from log")
	log.Printf("two\nlines")
	slog.Info("from slog", "n", 1)
	want := `{"level":"INFO","msg":"from log"}
{"level":"INFO","msg":"two\nlines"}
{"level":"INFO","msg":"from slog","n":1}
`
	if buf.String() != want {
		t.Errorf("got %s\nwant %s", buf.String(), want)
	}
}
