package accesslog

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer notes what a handler answers.
type writer struct {
	http.ResponseWriter
	status   int // 0: none yet
	bytes    int64
	hijacked bool
}

// Unwrap is for http.ResponseController, with which deadlines and full duplex are set.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the final status. Others, but for 101, come before it.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString spares the copy that Write needs of a string.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send a file without reading it.
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

// Flush is FlushError for those who ask for an http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begin()
	}
	return err
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// begin notes that the response has begun, with 200 if nothing else was said.
func (w *writer) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
