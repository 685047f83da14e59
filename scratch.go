package forebay

import (
	"log/slog"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// Above these sizes, scratch memory is left to the garbage collector instead of
// being kept for the next record.
const (
	maxScratchBytes = 64 << 10
	maxScratchAttrs = 256
)

// scratch is what one call needs. Only that call uses it.
type scratch struct {
	rec   encode.Record
	attrs []slog.Attr // backing of rec.Attrs
	buf   []byte      // the record as each route encodes it, one after the other
	spans []span      // by route
	step  int         // the next of core.steps
	err   error       // the first one
}

// span is one route's part of scratch.buf.
type span struct {
	ok       bool
	from, to int
	meta     batch.Meta
}

func (sp *span) of(buf []byte) []byte { return buf[sp.from:sp.to:sp.to] }

type scratchPool struct {
	pool   sync.Pool
	routes int
}

func (sp *scratchPool) get() *scratch {
	if s, ok := sp.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{
		attrs: make([]slog.Attr, 0, 16),
		buf:   make([]byte, 0, 1<<10),
		spans: make([]span, sp.routes),
	}
}

// put takes s back. Nothing of the caller's stays reachable through it.
func (sp *scratchPool) put(s *scratch) {
	clear(s.attrs)
	s.attrs = s.attrs[:0]
	s.buf = s.buf[:0]
	s.rec.Attrs = nil
	s.rec.Message = ""
	s.step, s.err = 0, nil
	if cap(s.buf) > maxScratchBytes || cap(s.attrs) > maxScratchAttrs {
		s.trim()
	}
	sp.pool.Put(s)
}

func (s *scratch) trim() {
	if cap(s.buf) > maxScratchBytes {
		s.buf = make([]byte, 0, 1<<10)
	}
	if cap(s.attrs) > maxScratchAttrs {
		s.attrs = make([]slog.Attr, 0, 16)
	}
}
