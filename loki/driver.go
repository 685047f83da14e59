package loki

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
)

// A Driver pushes records to Loki. It is the [deliver.Destination] of one output, and has the
// encoder for the records of that output. All methods are safe for concurrent use.
//
// A Driver has two independent parts: an encoder creates entries from records, and a client pushes
// entries and reads the responses. Both parts use the registry, which maps stream ids to labels,
// and the observations, which count problems by reason.
type Driver struct {
	c        Config
	observed *observations
	streams  *registry
	enc      *encoder
	push     *client
	reports  *callback.Reporter
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery, or use [To], which
// makes the Driver and the output in one call. The counters of the Driver are in [Driver.Stats].
// The error lists every problem of c, or concerns a file named in c. New does not connect.
func New(c Config) (*Driver, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s := &Driver{c: c, observed: new(observations), reports: new(callback.Reporter)}
	s.streams = newRegistry(c.Limits.MaxStreams, c.UniqueTimes, s.observed)
	if s.push, err = newClient(&s.c, s.streams, s.observed, s.reports); err != nil {
		return nil, err
	}
	s.enc = newEncoder(&s.c, s.streams, s.observed, s.reports)
	return s, nil
}

// Encoder returns the encoder for records of this Driver. Records of other encoders are refused,
// because they are not entries.
func (s *Driver) Encoder() encode.Encoder { return s.enc }

// codecFor returns the codec of entries with the given content type, or nil for a content type of
// another package. It is the default of OutputOptions.CodecFor. A spool may contain entries for
// another Config.Wire, which have another content type.
func (s *Driver) codecFor(contentType string, _ uint32) batch.Codec {
	if f, ok := formNamed(contentType); ok {
		return codec{s.enc, f}
	}
	return nil
}

// accepts reports whether records of the given content type can be sent. Entries are pushed in the
// form in which they were encoded, so entries for any Config.Wire are accepted.
func (s *Driver) accepts(contentType string) bool {
	_, ok := formNamed(contentType)
	return ok
}

// Traits returns the limits of a batch, the accepted content types, and the dictionary of the
// streams. Window is not set, so batches are sent one after another. This keeps each stream in
// order.
func (s *Driver) Traits() deliver.Traits {
	return deliver.Traits{Limits: s.limits(), Accepts: s.accepts, Dictionary: s.streams, Defaults: s.defaults}
}

// defaults sets options of memory and delivery that the user has not set. ParkedBytes is set
// because the records of a refused stream are parked while other records are sent.
func (s *Driver) defaults(o *deliver.OutputOptions) {
	defaultTo(&o.Name, "loki")
	s.reports.SetOutput(o.Name, o.OnError)
	if o.Codec == nil {
		o.Codec = s.enc.codec
	}
	if o.CodecFor == nil {
		o.CodecFor = s.codecFor
	}
	if o.BufferBytes == 0 && o.Slab.SlabCount == 0 {
		o.BufferBytes = max(defaultBufferBytes, 4*s.c.BatchBytes)
	}
	defaultTo(&o.Slab.SlabBytes, s.c.slabBytes())
	if o.BufferBytes > 0 {
		defaultTo(&o.Deliver.ParkedBytes, min(maxParkedBytes, o.BufferBytes))
	}
	if o.Slab.FlushLevel == nil {
		// With the default FlushLevel, each record of level ERROR would cause a request.
		o.Slab.FlushLevel = slab.NoFlushLevel
		if s.enc.eager != nil {
			o.Slab.FlushLevel = s.enc.eager
		}
	}
}

// limits returns the limits of a batch from the Config.
func (s *Driver) limits() batch.Limits {
	return batch.Limits{Bytes: s.c.BatchBytes, Records: s.c.BatchRecords, Age: s.c.BatchAge}
}

// Open begins a session. The connection is made by the first push, so Open neither blocks nor fails
// because of the network.
func (s *Driver) Open(l deliver.Life) (deliver.Session, error) {
	if s.c.DryRun != nil {
		dry, err := deliver.SendFunc(s.Traits(), s.sendDry).Open(l)
		return drySession{dry, s.push}, err
	}
	return &session{s.push, l}, nil
}

// AppendLine appends an entry with the given line to dst, for programs that forward the lines of
// other programs. The Config determines which labels, metadata and tenant are taken from attrs. The
// attributes are not written into the line. If t is zero, the entry gets the current time. If the
// level is [batch.NoLevel], the entry gets no level label. AppendLine fails if the entry is larger
// than 256 MiB. It does not retain its arguments. The record does not pass through a Router, so
// options such as forebay.RedactKeys have no effect on it.
func (s *Driver) AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	return s.enc.appendLine(dst, t, level, line, attrs)
}

// Stats returns the current counters. It takes no lock, so a request in flight may be included in
// some counters and not in others.
func (s *Driver) Stats() Stats {
	c := s.push
	st := Stats{
		Requests: c.requests.Load(), Failed: c.failed.Load(), Splits: c.splits.Load(), Paced: c.paced.Load(),
		WireBytes: c.wireBytes.Load(), BodyBytes: c.bodyBytes.Load(),
		Streams: s.streams.len(), Unreachable: c.unreachable.Load(),
	}
	if p := c.lastErr.Load(); p != nil {
		st.LastError = *p
	}
	counts := s.observed.counts()
	st.ByReason = counts.byReason()
	return st
}

// A drySession is the session of a Driver with Config.DryRun. It sends nothing.
type drySession struct {
	deliver.Session
	push *client
}

// Close ends the session. Package deliver calls it after Send has returned.
func (s drySession) Close() {
	s.Session.Close()
	s.push.close()
}

// sendDry writes the requests of b to Config.DryRun: a line for each stream, followed by its
// entries. Records that exceed the limits of the Config are refused as in a push. If the write
// fails, the advice batch.Gone makes package deliver drop the records.
func (s *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
	form, err := formOfBatch(b)
	if err != nil {
		return batch.Outcome{Refused: batch.All(), Refusal: err}
	}
	p := s.push.getPush()
	defer s.push.release(p)
	p.form = form
	s.push.gather(p, b)
	var out []byte
	u := *s.c.endpoint
	if u.RawQuery != "" { // a query may contain a secret
		u.RawQuery = "…"
	}
	for i := range p.groups {
		g := &p.groups[i]
		out = fmt.Appendf(out, "POST %s", u.String())
		tenant := g.st.tenant
		if tenant == "" {
			tenant = s.c.Tenant
		}
		if tenant != "" {
			out = fmt.Appendf(out, " tenant=%s", tenant)
		}
		out = fmt.Appendf(out, " %s: %d entries, %d bytes\n", g.st.labels, len(g.order), g.bytes)
		for _, k := range g.order {
			out = append(out, "  "...)
			out = codec{s.enc, form}.AppendJSON(out, p.recs[k].data, batch.Meta{Stream: unknownStream})
			out = append(out, '\n')
		}
	}
	if _, err := s.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("loki: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	var o batch.Outcome
	o.Refused, o.Refusal = p.refusal()
	return o
}

// unknownStream is an id that no stream has.
const unknownStream = 1<<32 - 1
