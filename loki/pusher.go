package loki

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// A Pusher pushes entries to Loki. It is the [deliver.Destination] at the end of a
// [Sink], and has the encoder whose records it takes. All methods may be called from
// any goroutine.
//
// It consists of two parts that know nothing of each other: an encoder makes entries
// of records, and a client pushes entries and reads the answers. Both know the
// registry, which says what the number of a stream stands for.
type Pusher struct {
	c       Config
	noticed *noticed
	streams *registry
	enc     *encoder
	push    *client
	reports *reports
}

// NewPusher returns a Pusher, for those who wire memory and delivery themselves;
// others want [New]. Batches must have the Codec of its Encoder, or that of a Pusher with
// another Wire. A spool takes the Dictionary of its Traits, which knows the
// streams. The error names everything that is wrong with c. No connection is made.
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

// Encoder returns the encoder of the records this Pusher takes.
func (s *Pusher) Encoder() encode.Encoder { return s.enc }

// CodecFor returns the codec of entries with that content type, be it that of another
// Wire, and nil for any other: see spool.Options.Codec.
func (s *Pusher) CodecFor(contentType string, _ uint32) batch.Codec {
	if f, ok := formNamed(contentType); ok {
		return codec{s.enc, f}
	}
	return nil
}

// accepts reports whether records of that content type can be sent: entries in the
// form of any Wire. They are pushed in the form they have.
func (s *Pusher) accepts(contentType string) bool {
	_, ok := formNamed(contentType)
	return ok
}

// Traits returns the limits of a batch, the forms of records that are taken, and the
// dictionary of the streams. Batches are handed over one after the other, so that those
// of a stream go out in order.
func (s *Pusher) Traits() deliver.Traits {
	return deliver.Traits{Limits: s.limits(), Accepts: s.accepts, Dictionary: s.streams}
}

// limits are those of a batch.
func (s *Pusher) limits() batch.Limits {
	return batch.Limits{Bytes: s.c.BatchBytes, Records: s.c.BatchRecords, Age: s.c.BatchAge}
}

// Open begins a session. It makes no connection: the first push does.
func (s *Pusher) Open(l deliver.Life) (deliver.Session, error) {
	if s.c.DryRun != nil {
		dry, err := deliver.SendFunc(s.Traits(), s.sendDry).Open(l)
		return drySession{dry, s.push}, err
	}
	return &session{s.push, l}, nil
}

// AppendLine appends an entry whose line is given to dst: for programs that ship
// lines they did not log themselves. attrs are no part of the line, but what the
// Config makes of attributes beside it (labels, metadata, the tenant) is made of
// them. It keeps nothing it is given. The line passes no Router, so the rules of
// forebay.RedactKeys and the like do not hold for it.
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
