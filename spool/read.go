package spool

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
)

// stored is one batch as read from disk, with its memory.
type stored struct {
	batch  batch.Batch
	origin [16]byte
	buf    []byte
	slots  []layout.Slot
}

// bytes returns how much memory s holds.
func (s *stored) bytes() int { return cap(s.buf) + cap(s.slots)*batch.SlotBytes }

// segmentReader reads the batches of one segment in order.
type segmentReader struct {
	f       vfs.File
	frames  frames
	codec   batch.Codec
	streams batch.Dictionary
	known   map[uint32]uint32 // stream numbers in the segment → here
	dict    []byte
}

// open begins to read the segment with the given name and header. Its first size bytes may
// be read.
func (r *segmentReader) open(fsys vfs.FS, dir, name string, h *segmentHeader, size int64, o *Options) error {
	f, err := openIn(fsys, dir, name)
	if err != nil {
		return err
	}
	r.f = f
	r.frames = startFrames(f, size, h)
	r.codec = codecFor(o, h.contentType, h.schema)
	r.streams = o.Streams
	if r.known == nil {
		r.known = map[uint32]uint32{}
	}
	clear(r.known)
	return nil
}

func (r *segmentReader) close() {
	_ = r.f.Close() // only read
	r.f, r.frames.f = nil, nil
}

// skipTo steps over the frames before batch seq, minding the streams they
// define.
func (r *segmentReader) skipTo(seq uint64) error {
	var h frameHeader
	for r.frames.seq < seq {
		if err := r.frames.header(&h); err != nil {
			return err
		}
		if h.dict > 0 {
			var err error
			if r.dict, err = r.frames.streams(&h, r.dict); err != nil {
				return err
			}
			if err := r.define(r.dict); err != nil {
				return err
			}
		}
		r.frames.skip(&h)
	}
	return nil
}

// next reads the next batch into s. On error it has not stepped.
func (r *segmentReader) next(s *stored) (frameHeader, error) {
	var h frameHeader
	if err := r.frames.header(&h); err != nil {
		return h, err
	}
	at := r.frames.place()
	var err error
	if s.buf, err = r.frames.body(&h, s.buf); err == nil {
		err = r.decode(&h, s)
	}
	if err != nil {
		r.frames.back(at)
	}
	return h, err
}

// decode makes s.batch of s.buf, the body of the frame that h begins.
func (r *segmentReader) decode(h *frameHeader, s *stored) error {
	dict, rest := s.buf[:h.dict], s.buf[h.dict:]
	index, payload := rest[:h.index], rest[h.index:]
	if err := r.define(dict); err != nil {
		return err
	}
	var err error
	if s.slots, err = decodeIndex(s.slots[:0], index, h, r.stream); err != nil {
		return err
	}
	s.batch.Reset()
	s.origin = h.origin
	s.batch.Codec, s.batch.Origin = r.codec, h.origin
	s.batch.Add(layout.NewRun(payload, s.slots))
	return nil
}

// define notes the stream definitions in p.
func (r *segmentReader) define(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return eachStream(p, func(id uint32, def []byte) {
		if r.streams != nil {
			r.known[id] = r.streams.Stream(def)
		}
	})
}

// stream translates a stream number of the segment to one of this process.
func (r *segmentReader) stream(id uint32) (uint32, bool) {
	if r.streams == nil {
		return id, true
	}
	local, ok := r.known[id]
	return local, ok || id == 0 // 0 needs no definition
}

// codecFor returns the codec for batches of the given form.
func codecFor(o *Options, contentType string, schema uint32) batch.Codec {
	if o.Codec != nil {
		if c := o.Codec(contentType, schema); c != nil {
			return c
		}
	}
	if contentType == "" {
		return nil
	}
	return opaque(contentType)
}

// opaque is the codec of an unknown form.
type opaque string

func (c opaque) ContentType() string { return string(c) }

func (c opaque) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	p, err := json.Marshal(strings.TrimSuffix(string(rec), "\n"))
	if err != nil {
		p = []byte(`""`) // strings always marshal
	}
	dst = append(dst, `{"raw":`...)
	dst = append(dst, p...)
	return append(dst, '}')
}

func (c opaque) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }
