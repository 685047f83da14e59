// Zapservice is a service that was written for zap and now uses forebay. Only newLogger differs:
// handlers and workers keep their *zap.Logger. Their records are redacted and sent to all outputs,
// and calls do not wait for the outputs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay"
	forebayzap "github.com/forebay-log/forebay/adapters/zap"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "address of the service")
	file := flag.String("file", "mailer.log", "log file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *file, forebay.Console(os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, "mailer:", err)
		os.Exit(1)
	}
}

// newLogger replaces zap.NewProduction. closeLog must be called instead of logger.Sync.
func newLogger(file string, more ...forebay.Option) (logger *zap.Logger, closeLog func() error, err error) {
	log, err := forebay.New(append(more,
		forebay.RedactKeys("password"),
		forebay.File(file, forebay.Rotate(100<<20, 7)))...)
	if err != nil {
		return nil, nil, err
	}
	slog.SetDefault(log.Slog()) // used by libraries that log with slog
	logger = zap.New(forebayzap.New(log), zap.AddCaller(), zap.AddStacktrace(zap.DPanicLevel))
	zap.ReplaceGlobals(logger)
	return logger, log.Close, nil
}

// run serves requests until ctx is done. It returns when all mails are sent and all records are
// delivered.
func run(ctx context.Context, listen, file string, more ...forebay.Option) (err error) {
	logger, closeLog, err := newLogger(file, more...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()

	lis, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	m := newMailer(logger.Named("mailer"))
	srv := &http.Server{
		Handler:           m,
		ErrorLog:          zap.NewStdLog(logger.Named("http")),
		ReadHeaderTimeout: 5 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(lis) }()
	logger.Info("listening", zap.Stringer("addr", lis.Addr()))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	logger.Info("stopping")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return err
	}
	m.drain()
	return nil
}

// A mail is the body of a request POST /.
type mail struct{ to, password string }

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (m mail) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("to", m.to)
	enc.AddString("password", m.password)
	return nil
}

// mailer sends mails in a background goroutine.
type mailer struct {
	logger *zap.Logger
	queue  chan mail
	done   sync.WaitGroup
}

func newMailer(logger *zap.Logger) *mailer {
	m := &mailer{logger: logger, queue: make(chan mail, 100)}
	m.done.Go(m.work)
	return m
}

func (m *mailer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	logger := m.logger.With(zap.Namespace("http"), zap.String("method", r.Method), zap.String("path", r.URL.Path))
	mail := mail{r.FormValue("to"), r.FormValue("password")}
	if mail.to == "" {
		logger.Warn("refused", zap.Error(errors.New("no recipient")))
		http.Error(w, "no recipient", http.StatusBadRequest)
		return
	}
	m.queue <- mail
	logger.Info("accepted", zap.Object("mail", mail))
	w.WriteHeader(http.StatusAccepted)
}

func (m *mailer) work() {
	sugar := m.logger.Named("worker").Sugar()
	for mail := range m.queue {
		sugar.Infow("sent", "to", mail.to, zap.Duration("took", 20*time.Millisecond))
	}
	sugar.Debugf("nothing left in a queue of %d", cap(m.queue))
}

// drain waits until all queued mails are sent. No mail may be queued after it is called.
func (m *mailer) drain() {
	close(m.queue)
	m.done.Wait()
}
