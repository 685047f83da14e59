package httpsink

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
)

// Limits of the part of a response that is read, in bytes.
const (
	maxAnswer     = 64 << 10
	maxBulkAnswer = 16 << 20 // larger, because a response of the bulk API has a result for each record
)

// A request buffer is kept for the next request if it has at most four times BatchBytes plus
// keptBytes.
const keptBytes = 64 << 10

// A Driver sends records to an HTTP server. It is the [deliver.Destination] of one output. All
// methods are safe for concurrent use.
type Driver struct {
	c Config
	// The following fields are used only by the method send. One goroutine at a time calls send.
	framer framer
	post   *httpsend.Poster
	prober httpsend.Prober
	// body is the memory of the request, and bulk the memory of the decoded response. Their memory
	// is reused.
	body []byte
	bulk bulkAnswer

	// duplicates and lastErr are fields of Stats.
	duplicates atomic.Uint64
	lastErr    atomic.Pointer[string]
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery. [To] makes the
// Driver and the output in one call. The error lists every invalid field of c, or names a file of c
// that cannot be read. New does not connect.
func New(c Config) (*Driver, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	f := c.api
	o := httpsend.Options{
		Who: "httpsink", URL: c.endpoint, ContentType: f.contentType, HTTP: c.HTTP, Plain: f.headers,
		TokenHeader: f.tokenHeader, TokenWord: f.tokenPrefix,
		Gzip: c.Compression == compressGzip, MaxAnswer: maxAnswer,
	}
	if f.bulk {
		o.MaxAnswer = maxBulkAnswer
	}
	d := &Driver{c: c, framer: newFramer(&c)}
	if d.post, err = httpsend.NewPoster(o); err != nil {
		return nil, err
	}
	d.prober = httpsend.Prober{Message: answerText, Accepts: d.accepts}
	switch {
	// The bulk API rejects a request without records even if the server works, so each test request
	// contains a record.
	case f.bulk:
	case f.array:
		d.prober.First = []byte("[]")
	default:
		d.prober.First = []byte{}
	}
	return d, nil
}

// Encoder returns the default encoder for the records of the Driver: JSON with the keys that the
// server expects for time and message.
func (d *Driver) Encoder() encode.Encoder { return encode.JSON(&d.c.api.keys) }

// Traits returns the limits of a batch. Records of any content type are accepted. Traits.Window is
// not set, so that one request is in flight at a time, which keeps records in order.
func (d *Driver) Traits() deliver.Traits {
	return deliver.Traits{Limits: batch.Limits{Bytes: d.c.BatchBytes, Records: d.c.BatchRecords, Age: d.c.BatchAge}, Defaults: d.defaults}
}

// defaults sets the options of memory and delivery that the user has not set.
func (d *Driver) defaults(o *deliver.OutputOptions) {
	name := "http"
	if api := d.c.api.name; api != "ndjson" && api != "array" {
		name = api
	}
	defaultTo(&o.Name, name)
	if o.BufferBytes == 0 && o.Slab.SlabCount == 0 {
		o.BufferBytes = max(4<<20, 4*d.c.BatchBytes)
	}
	defaultTo(&o.Slab.SlabBytes, 256<<10)
	if o.Slab.FlushLevel == nil {
		// With the default FlushLevel, each record of level ERROR would cause a request.
		o.Slab.FlushLevel = slab.NoFlushLevel
	}
}

// Open begins a session. It does not connect: the first request opens the connection.
func (d *Driver) Open(l deliver.Life) (deliver.Session, error) {
	send := d.send
	if d.c.DryRun != nil {
		send = d.sendDry
	}
	s, err := deliver.SendFunc(d.Traits(), send).Open(l)
	return session{s, d}, err
}

// A session is a session of a Driver.
type session struct {
	deliver.Session
	d *Driver
}

// Close ends the session and closes idle connections.
func (s session) Close() {
	s.Session.Close()
	s.d.post.Close()
}

// Stats are the counters of a [Driver] since New.
type Stats struct {
	// Requests is the number of requests, including repeated ones.
	Requests uint64
	// Failed is the number of requests without a response or with an error status.
	Failed uint64
	// BodyBytes and WireBytes are the total size of all requests: before compression, and as sent.
	BodyBytes uint64
	WireBytes uint64
	// Duplicates is the number of records that elasticsearch already had when they were sent
	// again. They count as delivered and are stored once.
	Duplicates uint64
	// LastError is the error of the last failed request, without credentials. It is empty if no
	// request has failed.
	LastError string
}

// Stats returns the current counters. It does not block. If a request is in flight, some counters
// may already include it and others may not.
func (d *Driver) Stats() Stats {
	n := d.post.Counts()
	s := Stats{Requests: n.Requests, Failed: n.Failed, BodyBytes: n.BodyBytes, WireBytes: n.WireBytes, Duplicates: d.duplicates.Load()}
	if p := d.lastErr.Load(); p != nil {
		s.LastError = *p
	}
	return s
}

// send sends b in one request and returns the outcome. Only one goroutine at a time calls send.
func (d *Driver) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	d.body = d.framer.append(d.body[:0], b)
	o := d.exchange(ctx, b)
	if err := o.Err(); err != nil {
		text := err.Error()
		d.lastErr.Store(&text)
	}
	if cap(d.body) > 4*d.c.BatchBytes+keptBytes {
		d.body = nil // the memory of an unusually large request is not reused
	}
	return o
}

// keep stores a copy of record i of b, which the server has accepted. The copy is sent to test
// whether the server still accepts records.
func (d *Driver) keep(b *batch.Batch, i int) {
	d.prober.Keep(time.Now(), func(dst []byte) []byte { return d.framer.append(dst, b.Slice(nil, i, i+1)) })
}

// sendDry writes b to Config.DryRun: a line for the request, followed by its body. If the write
// fails, the outlet drops the records.
func (d *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
	d.body = d.framer.append(d.body[:0], b)
	out := fmt.Appendf(nil, "POST %s: %s, %d bytes\n%s", httpsend.Shown(d.c.endpoint), plural.Of(b.Len(), "record"), len(d.body), d.body)
	if d.c.api.array {
		out = append(out, '\n')
	}
	if _, err := d.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("httpsink: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{}
}
