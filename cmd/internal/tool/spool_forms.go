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

// storedForms returns spool options with the codecs of all formats that a spool may contain,
// although no destination is open.
func storedForms() (*spool.Options, error) {
	streams := new(storedStreams)
	forward, err := fluent.New(fluent.Config{}) // only its codec is used
	if err != nil {
		return nil, err
	}
	codecs := map[string]batch.Codec{fluent.Codec().ContentType(): storedCodec{fluent.Codec(), forward.Traits().Dictionary, streams}}
	for _, wire := range []string{"protobuf", "json"} {
		s, err := loki.New(loki.Config{URL: "http://localhost", Wire: wire}) // only its codec is used
		if err != nil {
			return nil, err
		}
		codecs[s.Encoder().Codec().ContentType()] = storedCodec{s.Encoder().Codec(), s.Traits().Dictionary, streams}
	}
	x, err := otlp.New(otlp.Config{URL: "http://localhost"}) // only its codec is used
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

// storedStreams assigns numbers to the streams of stored records: tags or label sets. It implements
// batch.Dictionary.
type storedStreams struct {
	to batch.Dictionary // dictionary of the destination, which assigns the numbers; may be nil

	mu   sync.Mutex
	ids  map[string]uint32 // numbers by definition
	defs map[uint32]string // definitions by number
}

// AppendStream appends the definition of the stream with the number id.
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

// storedCodec is a codec for stored records. Its field from assigns their stream numbers.
type storedCodec struct {
	batch.Codec
	dictionary batch.Dictionary // the dictionary that Codec uses
	from       *storedStreams
}

// AppendJSON appends the JSON form of a record, with the definition of its stream.
func (c storedCodec) AppendJSON(dst, rec []byte, m batch.Meta) []byte {
	if def, ok := c.from.def(m.Stream); ok && def != "" {
		m.Stream = c.dictionary.Stream([]byte(def))
	} else {
		m.Stream = 0
	}
	return c.Codec.AppendJSON(dst, rec, m)
}
