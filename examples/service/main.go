// Service is a small HTTP shop that shows how a service uses forebay. Its console is for people,
// its file for programs, and Loki for Grafana.
//
//	go run ./service -loki http://localhost:3100
//	curl -X PUT -d debug localhost:8081/levels/db
//	curl localhost:8081/health
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/accesslog"
	"github.com/forebay-log/forebay/httpops"
	"github.com/forebay-log/forebay/loki"
)

type config struct{ listen, ops, file, loki, spool string }

func main() {
	var c config
	flag.StringVar(&c.listen, "listen", "localhost:8080", "address of the service")
	flag.StringVar(&c.ops, "ops", "localhost:8081", "address for operators: metrics, health, levels")
	flag.StringVar(&c.file, "file", "shop.log", "log file")
	flag.StringVar(&c.loki, "loki", "http://localhost:3100", "URL of Loki")
	flag.StringVar(&c.spool, "spool", "shop.spool", "directory for what Loki does not take while it is down")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, forebay.Console(os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run serves requests until ctx is done. It returns when all logged records are delivered or in the
// spool. more contains additional outputs.
func run(ctx context.Context, c config, more ...forebay.Option) (err error) {
	log, err := forebay.New(append(more,
		forebay.RedactKeys("password", "authorization"),
		forebay.Context(traceID),
		forebay.File(c.file, forebay.Rotate(100<<20, 7)),
		loki.To(c.loki, loki.Label("app", "shop"), forebay.Spool(c.spool)))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	defer log.Recover()
	slog.SetDefault(log.Slog())

	lis, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	defer lis.Close()
	opsLis, err := net.Listen("tcp", c.ops)
	if err != nil {
		return err
	}
	defer opsLis.Close()
	ops, err := newOps(log)
	if err != nil {
		return err
	}
	httpLog := log.Named("http").Slog()
	srv := &http.Server{
		Handler:           traced(accesslog.New(httpLog, nil)(newShop(log))),
		ErrorLog:          slog.NewLogLogger(httpLog.Handler(), slog.LevelError),
		ReadHeaderTimeout: 5 * time.Second,
	}
	opsSrv := &http.Server{Handler: ops, ErrorLog: srv.ErrorLog, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- srv.Serve(lis) }()
	go func() { failed <- opsSrv.Serve(opsLis) }()
	log.Info("listening", slog.String("addr", lis.Addr().String()), slog.String("ops", opsLis.Addr().String()))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(srv.Shutdown(ctx), opsSrv.Shutdown(ctx))
}

// newOps returns the handler of the pages for operators: metrics for Prometheus, the health of the
// outputs, and the levels of named loggers.
func newOps(log *forebay.Logger) (http.Handler, error) {
	ops, err := httpops.New(log.Router())
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", ops.Metrics)
	mux.HandleFunc("/health", ops.Health)
	mux.Handle("/levels", httpops.Levels(log.Router()))
	mux.Handle("/levels/{name}", httpops.Levels(log.Router()))
	return mux, nil
}

// shop is the HTTP handler of the service.
type shop struct {
	log, db *forebay.Logger
	prices  map[string]int
}

func newShop(log *forebay.Logger) http.Handler {
	s := &shop{log.Named("shop"), log.Named("db"), map[string]int{"apple": 3, "pear": 4}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("GET /items/{name}", s.item)
	return mux
}

func (s *shop) login(w http.ResponseWriter, r *http.Request) {
	var form struct{ User, Password string }
	if err := json.NewDecoder(r.Body).Decode(&form); err != nil {
		http.Error(w, "not a form", http.StatusBadRequest)
		return
	}
	s.log.InfoContext(r.Context(), "login", slog.Any("form", form)) // the password is redacted
	fmt.Fprintf(w, "hello, %s\n", form.User)
}

var errNoItem = errors.New("no such item")

func (s *shop) item(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	s.db.DebugContext(r.Context(), "query", slog.String("item", name))
	price, ok := s.prices[name]
	if !ok {
		s.log.WarnContext(r.Context(), "cannot show item", slog.Any("err", fmt.Errorf("item %q: %w", name, errNoItem)))
		http.Error(w, errNoItem.Error(), http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, price)
}

type traceKey struct{}

// traced returns a handler that adds the trace id in the W3C Trace Context header to the context,
// and calls next.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parts := strings.Split(r.Header.Get("traceparent"), "-"); len(parts) == 4 {
			r = r.WithContext(context.WithValue(r.Context(), traceKey{}, parts[1]))
		}
		next.ServeHTTP(w, r)
	})
}

// traceID appends the trace id in ctx to dst, the attributes of a record. With OpenTelemetry it
// would call trace.SpanContextFromContext(ctx).
func traceID(ctx context.Context, dst []slog.Attr) []slog.Attr {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		dst = append(dst, slog.String("trace_id", id))
	}
	return dst
}
