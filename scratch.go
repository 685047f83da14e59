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
	// ownScratchBytes is the room of a scratch for the encoded record. Larger records
	// go through the memory of bigRecords.
	ownScratchBytes = 1 << 10

	// Above these sizes, scratch memory is left to the garbage collector instead
	// of being kept for the next record.
	maxScratchBytes = 64 << 10
	maxScratchAttrs = 256

	// shrinkAfter is the number of records in a row that would have fitted
	// ownScratchBytes after which a scratch no longer borrows.
	shrinkAfter = 1 << 10
)

// bigRecords lends the memory for encoded records larger than ownScratchBytes.
var bigRecords = newBigRecords(false)

func newBigRecords(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		SizeClasses: []int{4 << 10, 16 << 10, maxScratchBytes},
		NoZero:      true, // only what was written is read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // nothing a caller could have caused
	}
	return p
}

// scratch is the memory of one call. Only that call uses it.
type scratch struct {
	rec      encode.Record
	ownLevel slog.Level  // what outputs without a level take
	attrs    []slog.Attr // backing of rec.Attrs
	nest     []slog.Attr // backing of the groups among them, see compose
	buf      []byte      // the record as each route encodes it, one after the other
	spans    []span      // by route
	step     int         // the next of core.steps
	err      error       // the first one
	last     bool        // it is that of a log.Fatal or log.Panic, see handler.handle

	own      []byte // what buf begins as, unless
	borrowed []byte // this, from bigRecords, which holds
	want     int    // so many bytes, because a record needed them; 0: own will do
	small    int    // how many records in a row did not

	redacted bool           // rec is as the outputs may see it, and walker holds parts of it
	walker   *redact.Walker // nil: this scratch has redacted nothing
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
	s, ok := sp.pool.Get().(*scratch)
	if !ok {
		return newScratch(sp.routes)
	}
	if s.want > 0 {
		s.borrow()
	}
	return s
}

func (sp *scratchPool) put(s *scratch) {
	s.reset()
	sp.pool.Put(s)
}

func newScratch(routes int) *scratch {
	own := make([]byte, 0, ownScratchBytes)
	return &scratch{attrs: make([]slog.Attr, 0, 16), own: own, buf: own, spans: make([]span, routes)}
}

// borrow has the record encoded into memory as large as the largest of late.
func (s *scratch) borrow() {
	s.borrowed, _ = bigRecords.Get(s.want)
	s.buf = s.borrowed[:0]
}

// reset makes s ready for another record. Nothing of the caller's stays reachable
// through it.
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
		s.giveBack()
	}
	s.buf = s.own
	if cap(s.attrs) > maxScratchAttrs {
		s.attrs = make([]slog.Attr, 0, 16)
	}
	if cap(s.nest) > maxScratchAttrs {
		s.nest = nil
	}
}

// forget is the rest of reset for a record that was redacted. It is not inlined, so that
// others do not pay for it.
//
//go:noinline
func (s *scratch) forget() {
	s.redacted = false
	s.walker.Reset()
}

// giveBack gives back the borrowed memory, and learns how much to borrow next time. If the
// record outgrew its memory, append has moved it to memory of its own, which is dropped.
func (s *scratch) giveBack() {
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
