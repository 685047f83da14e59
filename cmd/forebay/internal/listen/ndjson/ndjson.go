// Package ndjson writes the records of listeners as lines of JSON.
package ndjson

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/forebay/internal/listen"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
)

// bufferBytes is how much is written at once, at most but for one record.
const bufferBytes = 256 << 10

// A Sink writes each record as one line:
//
//	{"source":"loki","labels":{"app":"x"},"time":"2026-01-02T03:04:05Z","body":"text"}
//
// What a record has not is left out. Its lines are with the writer when Commit returns.
type Sink struct {
	w io.Writer

	mu      sync.Mutex // held during a write
	buf     []byte
	records uint64 // in buf and before
	err     error  // of a write: there is no other one

	written func(records uint64, err error)
}

// New returns a Sink that writes to w. written is told after each write how many records
// were written in all, or why the write failed; it must not block. nil: nobody is told.
func New(w io.Writer, written func(records uint64, err error)) *Sink {
	if written == nil {
		written = func(uint64, error) {}
	}
	return &Sink{w: w, written: written, buf: make([]byte, 0, bufferBytes)}
}

// Put takes a record.
func (s *Sink) Put(_ context.Context, r *listen.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if len(s.buf) > bufferBytes-4<<10 || len(s.buf) > 0 && len(s.buf)+len(r.Body) > bufferBytes {
		s.write()
	}
	s.buf = appendRecord(s.buf, r)
	s.records++
	return s.err
}

// Commit writes what was put.
func (s *Sink) Commit(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && len(s.buf) > 0 {
		s.write()
	}
	return s.err
}

func (s *Sink) write() {
	n, err := s.w.Write(s.buf)
	if err == nil && n < len(s.buf) {
		err = io.ErrShortWrite
	}
	if s.buf = s.buf[:0]; cap(s.buf) > 4*bufferBytes {
		s.buf = make([]byte, 0, bufferBytes)
	}
	if s.err = err; err != nil {
		s.written(0, err)
		return
	}
	s.written(s.records, nil)
}

func appendRecord(dst []byte, r *listen.Record) []byte {
	dst = append(dst, `{"source":`...)
	dst = jsontext.AppendString(dst, r.Source)
	text := func(key, value string) {
		if value != "" {
			dst = append(append(append(dst, `,"`...), key...), `":`...)
			dst = jsontext.AppendString(dst, value)
		}
	}
	text("tenant", r.Tenant)
	text("tag", r.Tag)
	dst = appendLabels(dst, `,"labels":{`, r.Labels)
	dst = appendLabels(dst, `,"metadata":{`, r.Metadata)
	if r.HasLevel {
		text("level", levelName(r.Level))
	}
	if !r.Time.IsZero() {
		dst = append(dst, `,"time":"`...)
		dst = append(r.Time.UTC().AppendFormat(dst, time.RFC3339Nano), '"')
	}
	dst = append(dst, `,"body":`...)
	if r.JSON {
		dst = append(dst, r.Body...)
	} else {
		dst = append(dst, '"')
		dst = append(jsontext.AppendEscapedBytes(dst, r.Body), '"')
	}
	return append(dst, '}', '\n')
}

func appendLabels(dst []byte, open string, labels []listen.Label) []byte {
	if len(labels) == 0 {
		return dst
	}
	dst = append(dst, open...)
	for i, l := range labels {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsontext.AppendString(dst, l.Name), ':')
		dst = jsontext.AppendString(dst, l.Value)
	}
	return append(dst, '}')
}

// levelName is the level as the program's flags spell it.
func levelName(l slog.Level) string {
	switch {
	case l >= record.Fatal:
		return "fatal"
	case l < slog.LevelDebug:
		return "trace"
	}
	return strings.ToLower(l.String())
}
