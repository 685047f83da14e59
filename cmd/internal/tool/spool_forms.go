package tool

import (
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/spool"
)

// storedForms returns options for reading a spool. They contain codecs for all formats, although no
// destination is open.
func storedForms() (*spool.Options, error) {
	streams := new(storedStreams)
	forward, err := fluent.New(fluent.Config{}) // only its codec is used
	if err != nil {
		return nil, err
	}
	codecs := map[string]batch.Codec{fluent.Codec().ContentType(): storedCodec{fluent.Codec(), forward.Traits().Dictionary, streams}}
	for _, wire := range []string{"protobuf", "json"} {
		s, err := loki.New(loki.Config{URL: "http://localhost", Wire: wire}) // needed only for its codec
		if err != nil {
			return nil, err
		}
		codecs[s.Encoder().Codec().ContentType()] = storedCodec{s.Encoder().Codec(), s.Traits().Dictionary, streams}
	}
	x, err := otlp.New(otlp.Config{URL: "http://localhost"}) // needed only for its codec
	if err != nil {
		return nil, err
	}
	codecs[x.Encoder().Codec().ContentType()] = x.Encoder().Codec()
	return &spool.Options{Streams: streams, Codec: func(contentType string, _ uint32) batch.Codec {
		if c := codecs[contentType]; c != nil {
			return c
		}
		c, _ := encode.CodecFor(contentType)
		return c
	}}, nil
}

// storedStreams assigns numbers to the streams of stored records. A stream is a tag or a label set.
// storedStreams implements batch.Dictionary.
type storedStreams struct {
	to batch.Dictionary // dictionary of the destination, which assigns the numbers; nil if there is none

	mu   sync.Mutex
	ids  map[string]uint32 // numbers by definition
	defs map[uint32]string // definitions by number
}

// AppendStream appends the definition of the stream with the number id to dst.
func (s *storedStreams) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	def, ok := s.def(id)
	return append(dst, def...), ok || id == 0
}

// Stream returns the number of the stream with the definition def. An empty definition has the
// number 0.
func (s *storedStreams) Stream(def []byte) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.ids[string(def)]
	switch {
	case ok:
		return id
	case s.to != nil:
		id = s.to.Stream(def)
	case len(def) > 0:
		id = uint32(len(s.ids) + 1)
	}
	if s.ids == nil {
		s.ids, s.defs = map[string]uint32{}, map[uint32]string{}
	}
	s.ids[string(def)], s.defs[id] = id, string(def)
	return id
}

func (s *storedStreams) def(id uint32) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	def, ok := s.defs[id]
	return def, ok
}

// storedCodec is a codec for stored records. The numbers of streams in these records are defined in
// the field from.
type storedCodec struct {
	batch.Codec
	dictionary batch.Dictionary // dictionary of the embedded Codec
	from       *storedStreams
}

// AppendJSON appends a record as JSON, with the definition of its stream.
func (c storedCodec) AppendJSON(dst, rec []byte, m batch.Meta) []byte {
	if def, ok := c.from.def(m.Stream); ok && def != "" {
		m.Stream = c.dictionary.Stream([]byte(def))
	} else {
		m.Stream = 0
	}
	return c.Codec.AppendJSON(dst, rec, m)
}
