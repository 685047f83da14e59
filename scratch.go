package forebay

import (
	"log/slog"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/redact"
)

const (
	// ownScratchBytes is the size of the field scratch.own. Larger records use memory borrowed from
	// bigRecords.
	ownScratchBytes = 2 << 10

	// Buffers larger than these sizes are left to the garbage collector.
	maxScratchBytes = 64 << 10
	maxScratchAttrs = 256

	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after which a
	// scratch stops borrowing memory.
	shrinkAfter = 1 << 10
)

// bigRecords provides the memory for encoded records larger than ownScratchBytes.
var bigRecords = newBigRecords(false)

// newBigRecords returns the pool for bigRecords. If debug is set, the pool detects misuse of its
// buffers.
func newBigRecords(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		SizeClasses: []int{4 << 10, 16 << 10, maxScratchBytes},
		NoZero:      true, // nothing reads beyond the written bytes
		Debug:       debug,
	})
	if err != nil {
		panic(err) // the constants of this file are invalid
	}
	return p
}

// A scratch is the memory of one log call. Only that call accesses it.
type scratch struct {
	rec      encode.Record
	ownLevel slog.Level  // level of the logger, for outputs without a level
	attrs    []slog.Attr // memory of rec.Attrs
	nest     []slog.Attr // attributes of the groups in rec.Attrs, see handler.compose
	buf      []byte      // the encodings of the record, one per route, in sequence
	spans    []span      // position of each encoding in buf, by route
	step     int         // index of the next step in core.steps
	err      error       // first error of an output or encoder
	last     bool        // the record comes from log.Fatal or log.Panic, see handler.handle

	own      []byte // memory of buf for records of at most ownScratchBytes
	borrowed []byte // memory of buf for larger records, from bigRecords
	want     int    // number of bytes to borrow for the next record; 0 if own is sufficient
	small    int    // number of consecutive records that fit into the field own

	redacted bool           // rec is redacted; its message and attributes are memory of walker
	walker   *redact.Walker // nil until a record is redacted
}

// A span is the position in scratch.buf of the record as encoded for a route. ok is false if the
// record is not encoded for the route.
type span struct {
	ok       bool
	from, to int
	meta     batch.Meta
}

// encoded returns the encoded record, which is a part of buf. Its capacity ends with the record, so
// that appending to it does not overwrite the next one.
func (sp *span) encoded(buf []byte) []byte { return buf[sp.from:sp.to:sp.to] }

// A scratchPool is a pool of scratch memory for one core.
type scratchPool struct {
	pool   sync.Pool
	routes int
}

// get returns an empty scratch. The caller returns it with put.
func (sp *scratchPool) get() *scratch {
	s, ok := sp.pool.Get().(*scratch)
	if !ok {
		return newScratch(sp.routes)
	}
	if s.want > 0 {
		s.borrow()
	}
	return s
}

// put resets s and returns it to the pool.
func (sp *scratchPool) put(s *scratch) {
	s.reset()
	sp.pool.Put(s)
}

// newScratch returns a scratch for the given number of routes.
func newScratch(routes int) *scratch {
	own := make([]byte, 0, ownScratchBytes)
	return &scratch{attrs: make([]slog.Attr, 0, 16), own: own, buf: own, spans: make([]span, routes)}
}

// borrow gets memory for the next record from bigRecords. Its size is the size of the largest
// recent record.
func (s *scratch) borrow() {
	s.borrowed, _ = bigRecords.Get(s.want)
	s.buf = s.borrowed[:0]
}

// reset prepares s for the next record. It drops all references to the caller's values.
func (s *scratch) reset() {
	clear(s.attrs)
	s.attrs = s.attrs[:0]
	if len(s.nest) > 0 {
		clear(s.nest)
		s.nest = s.nest[:0]
	}
	s.rec.Attrs = nil
	s.rec.Message = ""
	s.step, s.err = 0, nil
	if s.redacted {
		s.forget()
	}
	if s.want > 0 || cap(s.buf) > ownScratchBytes {
		s.returnBorrowed()
	}
	s.buf = s.own
	if cap(s.attrs) > maxScratchAttrs {
		s.attrs = make([]slog.Attr, 0, 16)
	}
	if cap(s.nest) > maxScratchAttrs {
		s.nest = nil
	}
}

// forget implements reset for a redacted record. It is not inlined, because that would slow down
// reset for all other records.
//
//go:noinline
func (s *scratch) forget() {
	s.redacted = false
	s.walker.Reset()
}

// returnBorrowed returns the borrowed memory and computes the size to borrow for the next record.
// If append moved the record to a larger slice, that slice is left to the garbage collector.
func (s *scratch) returnBorrowed() {
	if s.borrowed != nil {
		bigRecords.Put(s.borrowed)
		s.borrowed = nil
	}
	switch n := len(s.buf); {
	case n > maxScratchBytes:
	case n > ownScratchBytes:
		s.want, s.small = max(s.want, n), 0
	default:
		if s.small++; s.small >= shrinkAfter {
			s.want, s.small = 0, 0
		}
	}
}
