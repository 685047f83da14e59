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
}

// NewPusher returns a Pusher, for those who wire memory and delivery themselves;
// others want [New]. Batches must have the Codec of the Pusher, or that of a Pusher
// with another [Wire]. The error names everything that is wrong with c. No connection
// is made.
func NewPusher(c Config) (*Pusher, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s := &Pusher{c: c, noticed: new(noticed)}
	s.streams = newRegistry(c.MaxStreams, c.Nudge, s.noticed)
	if s.push, err = newClient(&s.c, s.streams, s.noticed); err != nil {
		return nil, err
	}
	s.enc = newEncoder(&s.c, s.streams, s.noticed)
	return s, nil
}

// Encoder returns the encoder of the records this Pusher takes.
func (s *Pusher) Encoder() encode.Encoder { return s.enc }

// Codec reads the records that the encoder makes.
func (s *Pusher) Codec() batch.Codec { return s.enc.codec }

// CodecFor returns the codec of entries with that content type, be it that of another
// [Wire], and nil for any other: see spool.Options.Codec.
func (s *Pusher) CodecFor(contentType string, _ uint32) batch.Codec {
	if f, ok := formNamed(contentType); ok {
		return codec{s.enc, f}
	}
	return nil
}

// Accepts reports whether records of that content type can be sent: entries in the
// form of any [Wire]. They are pushed in the form they have.
func (s *Pusher) Accepts(contentType string) bool {
	_, ok := formNamed(contentType)
	return ok
}

// Name is Config.Name.
func (s *Pusher) Name() string { return s.c.Name }

// Traits says how batches are to be handed over: one after the other, since batches of
// a stream go out in the order of the calls.
func (s *Pusher) Traits() deliver.Traits {
	return deliver.Traits{Limits: s.Limits(), Accepts: s.Accepts, Dictionary: s}
}

// Limits are those of a batch.
func (s *Pusher) Limits() batch.Limits {
	return batch.Limits{Bytes: s.c.BatchBytes, Records: s.c.BatchRecords, Age: s.c.BatchAge}
}

// Open begins a session. It makes no connection: the first push does.
func (s *Pusher) Open(l deliver.Life) (deliver.Session, error) {
	return &session{s.push, l}, nil
}

// AppendLine appends an entry whose line is given to dst: for programs that ship
// lines they did not log themselves. attrs are no part of the line, but what the
// Config makes of attributes beside it (labels, metadata, the tenant) is made of
// them. It keeps nothing it is given.
func (s *Pusher) AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	return s.enc.appendLine(dst, t, level, line, attrs)
}

// Stats returns the counters. It does not block.
func (s *Pusher) Stats() Stats {
	c := s.push
	st := Stats{
		Requests: c.requests.Load(), Failed: c.failed.Load(), Splits: c.splits.Load(),
		WireBytes: c.wireBytes.Load(), BodyBytes: c.bodyBytes.Load(),
		Streams: s.streams.len(), Unreachable: c.unreachable.Load(),
	}
	if p := c.lastErr.Load(); p != nil {
		st.LastError = *p
	}
	for i := range st.ByReason {
		st.ByReason[i] = s.noticed[i].Load()
	}
	return st
}

// AppendStream appends the definition of stream id: its tenant and labels.
func (s *Pusher) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	st := s.streams.get(id)
	if st == nil {
		return dst, false
	}
	return append(dst, st.key...), true
}

// Stream returns the number of the stream with that definition and gives one out
// if there is none. A definition that another version has written with values that
// Loki refuses is that of the stream this one would have made.
func (s *Pusher) Stream(def []byte) uint32 {
	if !plainDef(def) {
		if tenant, labels, ok := parseStreamDef(def); ok {
			def = appendFit(appendStreamDef(nil, []byte(tenant)), labels)
		}
	}
	st := s.streams.add(def, true)
	st.owner.use()
	return st.id
}
