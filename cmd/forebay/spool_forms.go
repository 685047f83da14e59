package main

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/spool"
)

// storedForms returns the options that read every form this program can store,
// without a destination.
func storedForms() (*spool.Options, error) {
	codecs := map[string]batch.Codec{fluent.ContentType: fluent.Codec()}
	var streams lokiStreams
	for i, wire := range []loki.Wire{loki.Protobuf, loki.JSON} {
		s, err := loki.NewPusher(loki.Config{URL: "http://localhost", Wire: wire}) // it is never asked to send
		if err != nil {
			return nil, err
		}
		streams[i] = s
		codecs[s.Codec().ContentType()] = s.Codec()
	}
	return &spool.Options{Streams: streams, Codec: func(contentType string, _ uint32) batch.Codec {
		if c := codecs[contentType]; c != nil {
			return c
		}
		c, _ := encode.CodecFor(contentType)
		return c
	}}, nil
}

// lokiStreams gives out numbers that both sinks know: they are told of the same
// streams in the same order. (Other destinations have no streams in what their
// codecs print.)
type lokiStreams [2]*loki.Pusher

func (s lokiStreams) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	return s[0].AppendStream(dst, id)
}

func (s lokiStreams) Stream(def []byte) uint32 {
	s[1].Stream(def)
	return s[0].Stream(def)
}
