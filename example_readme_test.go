package forebay_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
)

// The six lines of the README.
func Example() {
	f, _ := file.Open("app.log", &file.Options{RotateBytes: 100 << 20, KeepFiles: 7})
	w, _ := deliver.NewOutput(deliver.ToWriteCloser(f), nil) // 8 × 64 KiB
	r, _ := forebay.NewRouter(forebay.Route(encode.JSON(nil), forebay.OutputCloser(slog.LevelInfo, w)))
	defer r.Close(context.Background())
	slog.SetDefault(slog.New(r))
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
