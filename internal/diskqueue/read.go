package diskqueue

import (
	"os"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A handout is one batch in memory, read from a segment and returned by Next.
type handout struct {
	seg    *segment
	at     mark // mark before the batch
	end    mark // mark after the batch
	batch  batch.Batch
	origin [16]byte // Origin of the batch; the caller of Next may change the batch
	buf    []byte   // body of the frame
	slots  []layout.Slot
}

// bytes returns the size in bytes of the memory that o keeps.
func (o *handout) bytes() int { return cap(o.buf) + cap(o.slots)*layout.SlotBytes }

// A segmentReader reads the batches of one segment in order. It embeds the walk over the frames and
// decodes their bodies. A body depends on the stream definitions in earlier frames.
type segmentReader struct {
	walk
	file    vfs.File
	codec   batch.Codec
	streams batch.Dictionary  // translates streams; nil: stream numbers are returned unchanged
	defined map[uint32]uint32 // translation of stream numbers of the segment to those of this process
	dict    []byte            // reused by skipTo
}

// open begins to read the first size bytes of the file of g. Only the fields Codec and Streams of o
// are used.
func (r *segmentReader) open(d *directory, g *segment, size int64, o *spool.Options) error {
	f, err := d.open(g.name, os.O_RDONLY)
	if err != nil {
		return err
	}
	*r = segmentReader{
		walk: startWalk(f, size, &g.segmentHeader), file: f, dict: r.dict,
		codec: codecFor(o, g.form()), streams: o.Streams, defined: map[uint32]uint32{},
	}
	return nil
}

// close closes the file. An error is meaningless, because the file was only read.
func (r *segmentReader) close() { _ = r.file.Close() }

// skipTo steps over the frames before batch seq and applies their stream definitions. It reads no
// payload. It does nothing if the next frame contains batch seq.
func (r *segmentReader) skipTo(seq uint64) (err error) {
	var h frameHeader
	for r.at.seq < seq {
		if err := r.header(&h); err != nil {
			return err
		}
		if r.dict, err = r.walk.streams(&h, r.dict); err != nil {
			return err
		}
		if err := r.define(r.dict); err != nil {
			return err
		}
		r.skip(&h)
	}
	return nil
}

// read reads the next frame, which has the header h, into o, whose memory it reuses. It does not
// advance, so that a failed read can be repeated.
func (r *segmentReader) read(h *frameHeader, o *handout) (err error) {
	if o.buf, err = r.body(h, o.buf); err != nil {
		return err
	}
	dict, rest := o.buf[:h.dict], o.buf[h.dict:]
	if err := r.define(dict); err != nil {
		return err
	}
	if o.slots, err = decodeIndex(o.slots[:0], rest[:h.index], h, r.local); err != nil {
		return err
	}
	o.at, o.end, o.origin = h.at, h.end(), h.origin
	o.batch.Reset()
	o.batch.Codec, o.batch.Origin = r.codec, h.origin
	o.batch.Add(layout.NewRun(rest[h.index:], o.slots))
	return nil
}

// define applies the stream definitions in p. If r.streams is nil, it only checks them.
func (r *segmentReader) define(p []byte) error {
	return eachStream(p, func(id uint32, def []byte) {
		if r.streams != nil {
			r.defined[id] = r.streams.Stream(def)
		}
	})
}

// local translates a stream number of the segment to one of this process. It returns false for an
// undefined stream, except stream 0.
func (r *segmentReader) local(id uint32) (uint32, bool) {
	if r.streams == nil {
		return id, true
	}
	local, ok := r.defined[id]
	return local, ok || id == 0
}

// codecFor returns the codec for batches of the form f; see [spool.Options.Codec].
func codecFor(o *spool.Options, f form) batch.Codec {
	if o.Codec != nil {
		if c := o.Codec(f.contentType, f.schema); c != nil {
			return c
		}
	}
	if f.contentType == "" {
		return nil
	}
	return opaque(f.contentType)
}

// opaque is the codec of a form for which Options.Codec has no codec. Its value is the content
// type, by which a destination recognizes records that it cannot read.
type opaque string

// ContentType returns the content type that is stored in the segment.
func (c opaque) ContentType() string { return string(c) }

// AppendJSON appends the record as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func (c opaque) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	dst = jsontext.AppendString(append(dst, `{"raw":`...), strings.TrimSuffix(string(rec), "\n"))
	return append(dst, '}')
}

// AppendMarker appends nothing: the form of a marker is unknown.
func (c opaque) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }
