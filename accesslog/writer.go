package accesslog

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A writer is the http.ResponseWriter that a handler receives. It records the status and the size
// of the response. It always has the optional methods, such as Hijack. They return an error if the
// server's ResponseWriter lacks them. Like every ResponseWriter, a writer is not safe for
// concurrent use.
type writer struct {
	http.ResponseWriter
	status   int   // 0: no status was sent yet
	bytes    int64 // size of the body
	hijacked bool  // the handler has taken over the connection
}

// Unwrap supports http.ResponseController, which sets deadlines and full duplex.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader stores the final status. It ignores informational statuses, which precede the final
// one. Status 101 is final.
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

// WriteString implements io.StringWriter. Unlike Write, it needs no copy of the string.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom. It lets the server send a file with sendfile(2).
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

// FlushError is the method that http.ResponseController calls for Flush.
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begin()
	}
	return err
}

// Hijack implements http.Hijacker. The status and the size of a hijacked response are unknown.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// begin is called when the response begins. If no status was sent, it is 200.
func (w *writer) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
