package accesslog

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A writer is the http.ResponseWriter of a handler. It records the status and the size of the response. The
// optional methods of the server's ResponseWriter are always present and return an error if the server
// does not support them. Like every ResponseWriter, it is not safe for concurrent use.
type writer struct {
	http.ResponseWriter
	status   int   // 0: none yet
	bytes    int64 // size of the body
	hijacked bool  // the handler has taken over the connection
}

// Unwrap supports http.ResponseController, which sets deadlines and full duplex.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the final status. Informational ones, except 101, precede it.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString implements io.StringWriter, without the copy of the string that Write requires.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, with which the server sends a file by sendfile(2).
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	rf, ok := w.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	n, err := rf.ReadFrom(src)
	if n > 0 {
		w.begin()
	}
	w.bytes += n
	return n, err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is the Flush of http.ResponseController.
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begin()
	}
	return err
}

// Hijack implements http.Hijacker. The status and the size of a hijacked response are not known.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// begin notes that the response has begun, with status 200 if none was set.
func (w *writer) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
