package fluent

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/callback"
	memory "github.com/forebay-log/forebay/internal/layout"
)

// A Driver is the driver of the Forward protocol: a [deliver.Destination] that sends batches of
// Forward entries ([Codec]) to a Fluentd, Fluent Bit or OpenTelemetry receiver. A session is one
// connection to the first reachable server of the list. Batches are sent without waiting for
// earlier acknowledgements, up to Config.Window. A batch counts as delivered when the server
// acknowledges it or, with Config.NoAck, when it is written.
//
//	Open ─▶ dial, TLS, handshake
//	Send ──────frames──────▶ server
//	                           │
//	Answer ◀── reader ◀──acks──┘
//
// A Driver does not retry and stores no records: package deliver implements retries, fallbacks
// and dead letters. If a batch is sent again, its chunks keep their ids. Delivery is at least
// once: after a lost connection, up to Window batches may arrive twice.
//
// Goroutines: each session has a reader, which notices acknowledgements and the end of the
// connection at once. If the session does not use the first server of the list, another goroutine
// sometimes tries the servers before it. While an acknowledgement is overdue, a third goroutine
// opens a second connection to the server (Config.Heartbeat). All these goroutines end with their
// session.
//
// The exported methods of a Driver are safe for concurrent use, except Open, which package deliver
// calls only after the previous session has been closed.
type Driver struct {
	c       *resolved
	seed    maphash.Seed // seed of the ids of chunks
	salt    uint64       // part of the chunk ids; differs between Drivers
	framer  *framer      // used only by the open session
	roster  *roster
	awaited *awaited
	counts  counts
	reports callback.Reporter // posts events to OnError of the output
	enc     encode.Encoder

	// maxRecord is the maximum size of a record of the output, in bytes. Only the method defaults
	// sets it, before the output is open.
	maxRecord int
}

// Stats is a snapshot of the counters of a [Driver].
type Stats struct {
	Server      string // HOST:PORT or unix:PATH of the server in use; "" if there is none
	Connects    uint64 // connections opened, including the handshake
	Frames      uint64 // frames written
	Bytes       uint64 // bytes written, including frame headers, before TLS
	Acks        uint64 // frames acknowledged
	UnknownAcks uint64 // acknowledgements that match no pending chunk
	Lost        uint64 // connections that ended with chunks pending
	Refused     uint64 // records rejected before sending: too large, empty, unknown tag
	// LearnedFrame and LearnedRecord are limits in bytes of payload, learned because the last
	// server closed connections at larger sizes. Frames are no larger than LearnedFrame. Records of
	// LearnedRecord bytes or more become dead letters immediately. A limit is discarded when the
	// server accepts something larger. LearnedFrame is valid for an hour, LearnedRecord for a
	// minute at first (docs/adr/0031-learn-the-limits-of-forward-servers.md). 0: no limit.
	LearnedFrame, LearnedRecord int
	// LastError is the last failure to connect, or the last error that ended a session with records
	// in flight. It is retained after the server has recovered.
	LastError string
}

// counts contains the counters of a Driver.
type counts struct {
	mu sync.Mutex // guards the fields below; no other lock is acquired under it
	Stats
}

// add calls the function fn with the lock held. fn must not block.
func (c *counts) add(fn func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.Stats)
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery, or use [To], which
// makes the Driver and the output in one call. The Driver connects when there are records to send,
// so the server may be started later. The error lists every problem of c and of the files named in
// it.
func New(c Config) (*Driver, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	enc, err := NewEncoder(&EncoderOptions{MessageKey: r.MessageKey, IntegerTime: r.IntegerTime, TimeFields: r.TimeFields, Errors: r.Errors})
	if err != nil {
		return nil, err
	}
	return &Driver{
		c: r, seed: maphash.MakeSeed(), salt: rand.Uint64(), framer: newFramer(r),
		roster: newRoster(r.servers), awaited: newAwaited(), enc: enc,
	}, nil
}

// Encoder returns the encoder for the records of the Driver. It uses MessageKey, Errors,
// IntegerTime and TimeFields of the Config, and records have the tag Config.Tag. For other
// settings, use [NewEncoder].
func (c *Driver) Encoder() encode.Encoder { return c.enc }

// defaults sets options of memory and delivery that the user has not set. A record must fit into
// one frame, so the default of MaxRecord is at most MaxFrameBytes minus the frame header.
func (c *Driver) defaults(o *deliver.OutputOptions) {
	setDefault(&o.Name, "fluent")
	c.reports.SetOutput(o.Name, o.OnError)
	if o.Codec == nil {
		o.Codec = Codec()
	}
	if o.CodecFor == nil {
		o.CodecFor = codecFor
	}
	if o.BufferBytes == 0 && o.Slab.SlabCount == 0 {
		o.BufferBytes = defaultBufferBytes
	}
	setDefault(&o.Slab.MaxRecord, min(memory.DefaultMaxRecord, max(1, c.c.MaxFrameBytes-maxHead)))
	c.maxRecord = o.Slab.MaxRecord
}

// codecFor returns the codec for records that an earlier process has stored. They are Forward
// entries or records of package encode. For an unknown content type, codecFor returns nil.
func codecFor(contentType string, _ uint32) batch.Codec {
	if contentType == entryType {
		return Codec()
	}
	c, _ := encode.CodecFor(contentType)
	return c
}

// Traits requests batches of one frame, with up to Config.Window batches in flight. The Dictionary
// maps the streams of Forward entries to tags; all Drivers of the process share it.
func (c *Driver) Traits() deliver.Traits {
	t := deliver.Traits{
		Limits: batch.Limits{Bytes: c.c.FrameBytes}, Window: c.c.Window,
		Accepts: accepts, Dictionary: dictionary{}, Refused: c.refused, Defaults: c.defaults,
	}
	if c.c.DryRun != nil {
		t.Window = 1 // in a dry run, Send reports the outcome before it returns
	}
	return t
}

// accepts reports whether records of a content type can be sent. The Driver does not convert
// records, so it accepts only Forward entries.
func accepts(contentType string) bool { return contentType == entryType }

// Stats returns a snapshot of the counters. It does not wait for the server.
func (c *Driver) Stats() Stats {
	c.counts.mu.Lock()
	st := c.counts.Stats
	c.counts.mu.Unlock()
	st.LearnedFrame, st.LearnedRecord = c.roster.learned()
	return st
}

// Open connects to a server and performs the handshake. It tries the servers in order; those that
// failed recently are tried last. It implements [deliver.Destination].
func (c *Driver) Open(l deliver.Life) (deliver.Session, error) {
	if c.c.DryRun != nil {
		return c.openDry(l)
	}
	nc, err := c.connect(l.Context())
	if err != nil {
		c.counts.add(func(st *Stats) { st.LastError = err.Error() })
		return nil, err
	}
	return newSession(c, l, nc), nil
}

// connect connects to the first reachable server in the order of preference. Servers that failed
// recently come last. The error joins the errors of all servers. It is fatal if every server
// rejected this client, because only a change of configuration can help.
func (c *Driver) connect(ctx context.Context) (*conn, error) {
	var errs []error
	refused := true
	// Each server is tried once. Package deliver waits before it calls Open again.
	for _, i := range c.roster.order() {
		nc, err := c.c.dial(ctx, i)
		if err == nil {
			c.roster.noteConnected(i)
			c.roster.noteSelected(i)
			c.counts.add(func(st *Stats) { st.Connects, st.Server = st.Connects+1, nc.label })
			return nc, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.roster.recordFailure(i, c.c.ReconnectMin, c.c.ReconnectMax)
		errs = append(errs, err)
		refused = refused && errors.Is(err, errRefused)
	}
	err := errors.Join(errs...)
	if refused {
		return nil, batch.Fatal(err)
	}
	return nil, err
}

// preferredReachable reports whether a server that is preferred to the one with the given index is
// reachable. It tests each such server with a complete connection, including TLS and the handshake,
// and closes that connection immediately.
func (c *Driver) preferredReachable(ctx context.Context, index int) bool {
	for _, i := range c.roster.promising(index) {
		if nc, err := c.c.dial(ctx, i); err == nil {
			nc.close()
			c.roster.noteConnected(i)
			return true
		}
	}
	return false
}

// nextPreferredProbe returns the time at which to try the preferred servers next, or the zero time
// for never. The time is random, so that clients that lost a server at the same time do not return
// at the same time.
func (c *Driver) nextPreferredProbe() time.Time {
	d := c.c.Failback
	if d < 0 {
		return time.Time{}
	}
	return time.Now().Add(backoff.Jitter(d-d/4, d))
}

// refused is called with a batch b that is permanently rejected for the reason cause (see
// Traits.Refused). If b contains a single record, the record may have been too large for the
// server, so its size is recorded to learn the limit. refused runs on the goroutine that writes
// dead letters.
func (c *Driver) refused(cause error, b *batch.Batch) {
	if b.Len() == 1 {
		rec := b.At(0)
		_, entry, _ := splitTag(rec.Data)
		c.roster.noteCondemned(len(entry))
	}
	c.awaited.refused(cause, b)
}

// due reports whether the duration d has passed since the time t. It returns false if d is 0 or
// less.
func due(t time.Time, d time.Duration) bool {
	return d > 0 && time.Since(t) >= d
}

// dryRun is the session of a Driver with Config.DryRun. It writes a description of the frames to
// Config.DryRun and sends nothing.
type dryRun struct {
	c      *Driver
	lay    layout
	frames int // number of frames of this session
}

// modeNames maps each value of Config.Mode to its name in the specification.
var modeNames = map[string]string{modePacked: "PackedForward", modeForward: "Forward", modeMessage: "Message"}

// openDry returns a session that does not connect.
func (c *Driver) openDry(l deliver.Life) (deliver.Session, error) {
	d := &dryRun{c: c}
	return deliver.SendFunc(c.Traits(), d.send).Open(l)
}

// send writes a description of b to Config.DryRun: one line for each frame, followed by its records
// as JSON. It rejects the records that a real session would reject, and counts all others as
// delivered. If the write fails, the advice batch.Gone makes package deliver drop the records.
func (d *dryRun) send(_ context.Context, b *batch.Batch) batch.Outcome {
	l := &d.lay
	l.cut(b, d.c.c, d.c.c.bounds())
	l.name(b, d.c.seed, 0)
	var out, buf []byte
	for i := range l.frames {
		f := &l.frames[i]
		d.frames++
		buf = d.c.framer.append(buf[:0], l, b, f)
		out = fmt.Appendf(out, "frame %d: %s tag=%q size=%d payload=%d bytes, message=%d bytes", d.frames, modeNames[d.c.framer.mode], f.tag, f.to-f.from, f.bytes, len(buf))
		if d.c.framer.zip != nil {
			out = append(append(out, " compressed="...), d.c.framer.name...)
		}
		if d.c.framer.ack {
			out = fmt.Appendf(out, " chunk=%s", f.id[:])
		}
		out = append(out, '\n')
		for _, k := range l.indexes(nil, f) {
			rec := b.At(k)
			out = append(out, "  "...)
			out = entryCodec{}.AppendJSON(out, rec.Data, batch.Meta{})
			out = append(out, '\n')
		}
	}
	if _, err := d.c.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("fluent: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{Refused: batch.Of(slices.Clone(l.refused)...), Refusal: l.why}
}
