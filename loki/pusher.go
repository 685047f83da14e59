package loki

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// A Pusher pushes entries to Loki. It is the [deliver.Destination] of a [Sink], and has
// the encoder for its records. All methods may be called from any goroutine.
//
// It consists of two independent parts: an encoder creates entries from records, and a
// client pushes entries and reads the responses. They share the registry, which maps the
// numbers of streams to labels.
type Pusher struct {
	c       Config
	noticed *noticed
	streams *registry
	enc     *encoder
	push    *client
	reports *reports
}

// NewPusher returns a Pusher without buffer and delivery; most programs use [New]. Batches
// must have the Codec of its Encoder, or of a Pusher with another Wire. A spool needs the
// Dictionary of its Traits, which contains the streams. The error lists every problem of
// c. NewPusher does not connect.
func NewPusher(c Config) (*Pusher, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s := &Pusher{c: c, noticed: new(noticed), reports: newReports(&c)}
	s.streams = newRegistry(c.MaxStreams, c.Nudge, s.noticed)
	if s.push, err = newClient(&s.c, s.streams, s.noticed, s.reports); err != nil {
		return nil, err
	}
	s.enc = newEncoder(&s.c, s.streams, s.noticed, s.reports)
	return s, nil
}

// Encoder returns the encoder for records of this Pusher.
func (s *Pusher) Encoder() encode.Encoder { return s.enc }

// CodecFor returns the codec of entries with that content type, which may belong to
// another Wire. It returns nil for any other content type: see spool.Options.Codec.
func (s *Pusher) CodecFor(contentType string, _ uint32) batch.Codec {
	if f, ok := formNamed(contentType); ok {
		return codec{s.enc, f}
	}
	return nil
}

// accepts reports whether records of that content type can be sent: entries in the form of
// any Wire. They are pushed in their present form.
func (s *Pusher) accepts(contentType string) bool {
	_, ok := formNamed(contentType)
	return ok
}

// Traits returns the limits of a batch, the accepted forms of records, and the dictionary
// of the streams. Batches are passed sequentially, so that each stream is sent in
// order.
func (s *Pusher) Traits() deliver.Traits {
	return deliver.Traits{Limits: s.limits(), Accepts: s.accepts, Dictionary: s.streams}
}

// limits returns the limits of a batch.
func (s *Pusher) limits() batch.Limits {
	return batch.Limits{Bytes: s.c.BatchBytes, Records: s.c.BatchRecords, Age: s.c.BatchAge}
}

// Open begins a session. It does not connect: the first push does.
func (s *Pusher) Open(l deliver.Life) (deliver.Session, error) {
	if s.c.DryRun != nil {
		dry, err := deliver.SendFunc(s.Traits(), s.sendDry).Open(l)
		return drySession{dry, s.push}, err
	}
	return &session{s.push, l}, nil
}

// AppendLine appends an entry with the given line to dst, for programs that forward the
// lines of other programs. attrs are not written into the line; labels, metadata and the
// tenant are derived from them according to the Config. AppendLine does not retain its
// arguments. The line does not pass through a Router, so forebay.RedactKeys and similar
// rules do not apply.
func (s *Pusher) AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	return s.enc.appendLine(dst, t, level, line, attrs)
}

// Stats returns the counters. It does not block.
func (s *Pusher) Stats() Stats {
	c := s.push
	st := Stats{
		Requests: c.requests.Load(), Failed: c.failed.Load(), Splits: c.splits.Load(), Paced: c.paced.Load(),
		WireBytes: c.wireBytes.Load(), BodyBytes: c.bodyBytes.Load(),
		Streams: s.streams.len(), Unreachable: c.unreachable.Load(),
	}
	if p := c.lastErr.Load(); p != nil {
		st.LastError = *p
	}
	counts := s.noticed.counts()
	st.ByReason = counts.byReason()
	return st
}
