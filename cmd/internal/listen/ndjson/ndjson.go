// Package ndjson writes the records of listeners as JSON, one record per line.
package ndjson

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// bufferBytes is the initial size of the write buffer. A larger record makes the buffer grow.
const bufferBytes = 256 << 10

// A Sink writes each record as one line:
//
//	{"source":"loki","labels":{"app":"x"},"time":"2026-01-02T03:04:05Z","body":"text"}
//
// Missing fields are omitted. While a Write is in progress, further records are collected. The next
// Write writes them together, and all callers of Commit wait for the same Write.
type Sink struct {
	w       io.Writer
	written func(records uint64, err error) // the parameter written of New

	mu     sync.Mutex    // guards the fields below; not held during a write
	buf    []byte        // data for the next write
	spare  []byte        // buffer of the previous write, for reuse
	put    uint64        // total number of records that were passed to Put
	done   uint64        // total number of records that were written
	writes chan struct{} // closed when the write in progress ends; nil if no write is in progress
	err    error         // error of the first failed write; nothing is written after it
}

// New returns a Sink that writes to w. After each write, the Sink calls the function written with
// the total number of records written, or with the error of the write. The function must not block.
// It may be nil.
func New(w io.Writer, written func(records uint64, err error)) *Sink {
	if written == nil {
		written = func(uint64, error) {}
	}
	return &Sink{w: w, written: written, buf: make([]byte, 0, bufferBytes)}
}

// Put adds a record to the buffer. It waits if the buffer is full and a write is in progress.
func (s *Sink) Put(ctx context.Context, r *listen.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && (len(s.buf) > bufferBytes-4<<10 || len(s.buf) > 0 && len(s.buf)+len(r.Body) > bufferBytes) {
		if err := s.writeLocked(ctx); err != nil {
			return err
		}
	}
	if s.err != nil {
		return s.err
	}
	s.buf = appendRecord(s.buf, r)
	s.put++
	return nil
}

// Commit returns when all records that were added before the call are written. If ctx is done,
// Commit stops waiting for the write of another goroutine, but it does not interrupt its own write.
func (s *Sink) Commit(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for all := s.put; s.err == nil && s.done < all; {
		if err := s.writeLocked(ctx); err != nil {
			return err
		}
	}
	return s.err
}

// writeLocked writes buf. If a write is in progress, it only waits until the write ends or ctx is
// done. The caller holds mu, which is unlocked during the write and the wait.
func (s *Sink) writeLocked(ctx context.Context) error {
	if ended := s.writes; ended != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ended := make(chan struct{})
	s.writes = ended
	p, put := s.buf, s.put
	s.buf = s.spare[:0]
	s.mu.Unlock()
	n, err := s.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	s.mu.Lock()
	if s.spare = p; cap(p) > 4*bufferBytes {
		s.spare = nil
	}
	if s.err = err; err == nil {
		s.done = put
	}
	s.writes = nil
	close(ended)
	if err != nil {
		s.written(0, err)
	} else {
		s.written(put, nil)
	}
	return nil
}

// appendRecord appends r as one line of JSON, with the newline.
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
		text("level", strings.ToLower(values.LevelName(r.Level)))
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

// appendLabels appends the text open, which begins a JSON object, and the labels as its members. If
// there are no labels, it appends nothing.
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
