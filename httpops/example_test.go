package httpops_test

import (
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpops"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// get prints the status of a response, and the lines of its body that begin with a prefix.
func get(url, prefix string) {
	resp, err := http.Get(url)
	check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(err)
	fmt.Println(resp.Status)
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, prefix) {
			fmt.Print(line)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// The handlers for operators use a separate port.
func ExampleNew() {
	level := new(slog.LevelVar)
	log, err := forebay.New(forebay.Writer(io.Discard, forebay.Level(level)))
	check(err)
	defer log.Close()

	ops, err := httpops.New(log.Router())
	check(err)
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", ops.Metrics)
	mux.HandleFunc("/health", ops.Health)
	mux.Handle("/level", httpops.Level(level))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	get(srv.URL+"/level", "")
	// Output:
	// 200 OK
	// {"level":"INFO"}
}

func ExampleOps_Metrics() {
	log, err := forebay.New(forebay.Writer(io.Discard, forebay.Name("archive")))
	check(err)
	defer log.Close()
	ops, err := httpops.New(log.Router())
	check(err)
	srv := httptest.NewServer(http.HandlerFunc(ops.Metrics))
	defer srv.Close()

	log.Info("listening")
	get(srv.URL, "forebay_records_accepted_total")
	// Output:
	// 200 OK
	// forebay_records_accepted_total{output="archive"} 1
}

func ExampleOps_Health() {
	closed, err := os.Open(os.DevNull)
	check(err)
	check(closed.Close())
	log, err := forebay.New(
		forebay.OnError(func(batch.Event) {}),
		forebay.Writer(closed, forebay.Direct(), forebay.Name("closed")))
	check(err)
	defer log.Close()
	ops, err := httpops.New(log.Router())
	check(err)
	srv := httptest.NewServer(http.HandlerFunc(ops.Health))
	defer srv.Close()

	get(srv.URL, "-")
	log.Info("listening")
	get(srv.URL, "-")
	// Output:
	// 200 OK
	// 503 Service Unavailable
}

// An expvar.Map accepts a new Ops when the program creates a new Logger.
func ExampleOps_String() {
	logs := expvar.NewMap("logs")
	for range 2 {
		log, err := forebay.New(forebay.Writer(io.Discard, forebay.Direct(), forebay.Name("null")))
		check(err)
		ops, err := httpops.New(log.Router())
		check(err)
		logs.Set("app", ops)
		log.Info("listening")
		check(log.Close())
	}
	fmt.Println(expvar.Get("logs"))
	// Output:
	// {"app": {"status":"closed","refused":0,"events_lost":0,"outputs":[{"name":"null","state":"ok","accepted":1,"recovered":0,"delivered":1,"handled":0,"dropped":{},"pending":{"slab":0,"spill":0,"inflight":0}}]}}
}

// PUT changes the level of the loggers with a name while the program runs.
func ExampleLevels() {
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Direct(), forebay.Encoder(encode.JSON(&encode.Options{TimeKey: "-"}))))
	check(err)
	defer log.Close()
	mux := http.NewServeMux()
	mux.Handle("/levels", httpops.Levels(log.Router()))
	mux.Handle("/levels/{name}", httpops.Levels(log.Router()))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	db := log.Named("db")
	db.Debug("too early")
	req, err := http.NewRequest(http.MethodPut, srv.URL+"/levels/db", strings.NewReader("debug"))
	check(err)
	resp, err := http.DefaultClient.Do(req)
	check(err)
	resp.Body.Close()
	db.Debug("query")
	get(srv.URL+"/levels", "")
	// Output:
	// {"level":"DEBUG","msg":"query","logger":"db"}
	// 200 OK
	// {"levels":{"":"INFO","db":"DEBUG"}}
}

// PUT changes the level of the output.
func ExampleLevel() {
	level := new(slog.LevelVar)
	srv := httptest.NewServer(httpops.Level(level))
	defer srv.Close()

	req, err := http.NewRequest(http.MethodPut, srv.URL, strings.NewReader(`{"level":"debug"}`))
	check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	check(err)
	fmt.Println(level.Level())
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// {"level":"DEBUG"}
	// DEBUG
}
