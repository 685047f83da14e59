package forebay_test

import (
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/loki"
)

// The example of the README. Loki need not be running.
func Example() {
	log, err := forebay.New(
		forebay.Console(os.Stderr),
		forebay.File("app.log", forebay.Rotate(100<<20, 7)),
		loki.To("http://localhost:3100", loki.Label("app", "shop")))
	if err != nil {
		panic(err) // lists every mistake in the options, each with its remedy
	}
	defer log.Close() // bounded in time; reports lost and kept records on standard error
	slog.SetDefault(log.Slog())
	slog.Info("listening", "port", 8080)
}

func TestReadme(t *testing.T) {
	def, out, flags := slog.Default(), log.Writer(), log.Flags()
	defer func() { // SetDefault has redirected the log
		slog.SetDefault(def)
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	t.Chdir(t.TempDir())
	Example()
	b, err := os.ReadFile("app.log")
	if err != nil || strings.Count(string(b), "\n") != 1 || !strings.HasSuffix(string(b), `"level":"INFO","msg":"listening","port":8080}`+"\n") {
		t.Errorf("%s, %v", b, err)
	}
}
