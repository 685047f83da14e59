// Package accesslog logs the requests of a net/http server, one record per request.
//
//	handler := accesslog.New(log.Slog(), nil)(mux)
//
//	request ─▶ middleware ─▶ handler
//	               └─▶ one record, after the handler returns ─▶ slog.Logger
//
// It is a separate package so that only programs that use it link net/http. It imports only
// log/slog and net/http. The middleware works with every router that accepts an http.Handler, such
// as chi, and wraps routers that implement http.Handler, such as gin.
package accesslog

import (
	"log/slog"
	"net/http"
	"time"
)

// Options configures [New]. The zero value is valid.
type Options struct {
	// Level returns the level of the record of a request. status is 0 if the handler has hijacked
	// or aborted the connection without sending a status. If the logger is disabled at the level,
	// the request is not logged. If the handler panics, Level is not called, and the level is
	// slog.LevelError. If Level panics, the level is slog.LevelError, and the attribute level_panic
	// is the value of the panic. Default: slog.LevelError for status 500 and above, slog.LevelWarn
	// for 400 and above, and slog.LevelInfo below.
	Level func(r *http.Request, status int) slog.Level

	// Attrs returns additional attributes of a completed request, such as its route:
	// slog.String("route", r.Pattern). It is called only for requests that are logged. If it
	// panics, the attribute attrs_panic is the value of the panic. Default: none.
	Attrs func(r *http.Request) []slog.Attr
}

// New returns a middleware that logs each request, with its context, after its handler has
// returned. The record has the message "request" and these attributes:
//
//	method      GET
//	path        without the query, which often contains secrets
//	status      including the default 200; 500 if the handler panics before it sends one
//	bytes       the size of the response body
//	duration    from the call of the handler to its return
//	remote      the address of the client, or of the proxy in front
//	request_id  the header X-Request-Id of the request, otherwise of the response, if any
//	user_agent  if any
//	hijacked    true, if the handler has hijacked the connection
//	aborted     true, if the handler has panicked with http.ErrAbortHandler
//	panic       the value, if the handler has panicked with another value
//
// All requests have the same message, so forebay.Sample drops some of them if it applies to their
// level. To sample only frequent requests, log them at slog.LevelDebug and sample that level, or
// give requests a separate level.
//
// A panic is passed on to the server, which logs its stack. The handler receives an
// http.ResponseWriter that wraps the server's. It also implements http.Flusher, http.Hijacker,
// io.ReaderFrom and io.StringWriter, and has the method Unwrap for http.ResponseController.
//
// The middleware is safe for concurrent use. o may be nil. A nil log discards all records, like a
// nil forebay.Logger.
func New(log *slog.Logger, o *Options) func(http.Handler) http.Handler {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := logger{handler: log.Handler()}
	if o != nil {
		l.Options = *o
	}
	if l.Level == nil {
		l.Level = levelOf
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(next, w, r) })
	}
}

// levelOf is the default of Options.Level.
func levelOf(_ *http.Request, status int) slog.Level {
	switch {
	case status >= 500:
		return slog.LevelError
	case status >= 400:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// A logger is the middleware. It is immutable.
type logger struct {
	handler slog.Handler
	Options // with defaults for nil fields
}

// serve calls next, and logs the request when next returns or panics. After logging a panic, it
// passes the panic on to the server.
func (l *logger) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	rw := &writer{ResponseWriter: w}
	path := r.URL.Path // a copy, because handlers may change r.URL
	start := time.Now()
	returned := false
	defer func() {
		p := recover()
		if returned && rw.status == 0 && !rw.hijacked {
			rw.status = http.StatusOK
		}
		l.log(rw, r, path, time.Since(start), p)
		if p != nil {
			panic(p)
		}
	}()
	next.ServeHTTP(rw, r)
	returned = true
}

// log logs the request r with the given path and duration. p is the value of the handler's panic,
// or nil.
func (l *logger) log(w *writer, r *http.Request, path string, took time.Duration, p any) {
	aborted := p == http.ErrAbortHandler
	panicked := p != nil && !aborted
	if panicked && w.status == 0 && !w.hijacked {
		w.status = http.StatusInternalServerError
	}
	level, levelFault := slog.LevelError, any(nil)
	if !panicked {
		levelFault = contain(func() { level = l.Level(r, w.status) })
	}
	ctx := r.Context()
	if !l.handler.Enabled(ctx, level) {
		return
	}
	var buf [14]slog.Attr // room for all attributes, on the stack
	attrs := append(buf[:0], slog.String("method", r.Method), slog.String("path", path))
	if w.status != 0 {
		attrs = append(attrs, slog.Int("status", w.status))
	}
	attrs = append(attrs, slog.Int64("bytes", w.bytes), slog.Duration("duration", took), slog.String("remote", r.RemoteAddr))
	if id := requestID(w, r); id != "" {
		attrs = append(attrs, slog.String("request_id", id))
	}
	if agent := r.UserAgent(); agent != "" {
		attrs = append(attrs, slog.String("user_agent", agent))
	}
	if w.hijacked {
		attrs = append(attrs, slog.Bool("hijacked", true))
	}
	if aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if panicked {
		attrs = append(attrs, slog.Any("panic", p))
	}
	if levelFault != nil {
		attrs = append(attrs, slog.Any("level_panic", levelFault))
	}
	rec := slog.NewRecord(time.Now(), level, "request", 0)
	rec.AddAttrs(attrs...)
	if l.Attrs != nil {
		if fault := contain(func() { rec.AddAttrs(l.Attrs(r)...) }); fault != nil {
			rec.AddAttrs(slog.Any("attrs_panic", fault))
		}
	}
	_ = l.handler.Handle(ctx, rec) // a forebay.Router counts its errors
}

// contain calls f, a function supplied by the application. It returns the value with which f
// panicked, or nil.
func contain(f func()) (fault any) {
	defer func() { fault = recover() }()
	f()
	return nil
}

// requestID returns the id of a request: the header X-Request-Id of the request, which a proxy may
// have set, or of the response if the request has none.
func requestID(w *writer, r *http.Request) string {
	const header = "X-Request-Id"
	if id := r.Header.Get(header); id != "" {
		return id
	}
	return w.Header().Get(header)
}
