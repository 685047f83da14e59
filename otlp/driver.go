package otlp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
)

// A Driver sends records to an OTLP receiver. It is the [deliver.Destination] of one output and
// provides the encoder for its records. All methods are safe for concurrent use.
type Driver struct {
	c       Config
	enc     *encoder
	lines   *scope
	head    []byte // the resource and the scope in their wire format
	scope   []byte
	post    *httpsend.Poster
	reports callback.Reporter
	control httpsend.Control

	lastErr atomic.Pointer[string]

	body []byte // of the request, for the session
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery. [To] makes the
// Driver and the output in one call. The error names all invalid fields of c. New opens no
// connection.
func New(c Config) (*Driver, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	x := &Driver{c: c, enc: newEncoder(&c)}
	x.lines = x.enc.plain().(*scope)
	x.post, err = httpsend.NewPoster(httpsend.Options{
		Who: "otlp", URL: c.endpoint, ContentType: "application/x-protobuf", HTTP: c.HTTP,
		Gzip: c.Compression == compressGzip, MaxAnswer: maxAnswer,
	})
	if err != nil {
		return nil, err
	}
	x.frame()
	x.control = httpsend.Control{First: []byte{}, Words: answerText, Taken: isTaken}
	return x, nil
}

// frame encodes the part of each request before the records.
func (x *Driver) frame() {
	res := maps.Clone(x.c.Resource)
	if res == nil {
		res = map[string]string{}
	}
	if res["service.name"] == "" {
		res["service.name"] = serviceName()
	}
	var attrs []byte
	var keys keyset.Set
	keys.Open(nil)
	for _, name := range slices.Sorted(maps.Keys(res)) {
		attrs = appendString(attrs, tagOfResource, keys.Name(valid(name)), res[name])
	}
	x.head = append(appendLen(nil, tagResource, len(attrs)), attrs...)
	if x.c.ScopeName != "" || x.c.ScopeVersion != "" {
		var s []byte
		if x.c.ScopeName != "" {
			s = appendText(s, tagScopeName, valid(x.c.ScopeName))
		}
		if x.c.ScopeVersion != "" {
			s = appendText(s, tagScopeVer, valid(x.c.ScopeVersion))
		}
		x.scope = append(appendLen(nil, tagScope, len(s)), s...)
	}
}

// appendRequest appends a request with n bytes of records, which follow.
func (x *Driver) appendRequest(dst []byte, n int) []byte {
	logs := len(x.scope) + n
	dst = appendLen(dst, tagResource, len(x.head)+lenOf(logs))
	dst = append(dst, x.head...)
	return append(appendLen(dst, tagScopeLogs, logs), x.scope...)
}

// Encoder returns the encoder for the records of the Driver.
func (x *Driver) Encoder() encode.Encoder { return x.enc }

// CodecFor returns the codec of records with the given content type, or nil if it is not the type
// of this package; see spool.Options.Codec.
func (x *Driver) CodecFor(contentType string, _ uint32) batch.Codec {
	if accepts(contentType) {
		return codec{x.enc}
	}
	return nil
}

func accepts(form string) bool { return form == contentType }

// Traits returns the limits of a batch and the accepted form of records. One request is in flight
// at a time, so that records stay in order.
func (x *Driver) Traits() deliver.Traits {
	return deliver.Traits{Limits: batch.Limits{Bytes: x.c.BatchBytes, Records: x.c.BatchRecords, Age: x.c.BatchAge}, Accepts: accepts, Defaults: x.defaults}
}

// defaults sets the defaults of memory and delivery.
func (x *Driver) defaults(o *deliver.OutputOptions) {
	defaultTo(&o.Name, "otlp")
	x.reports.SetOutput(o.Name, o.OnError)
	if o.Codec == nil {
		o.Codec = codec{x.enc}
	}
	if o.CodecFor == nil {
		o.CodecFor = x.CodecFor
	}
	if o.BufferBytes == 0 && o.Slab.SlabCount == 0 {
		o.BufferBytes = max(4<<20, 4*x.c.BatchBytes)
	}
	defaultTo(&o.Slab.SlabBytes, 256<<10)
	if o.Slab.FlushLevel == nil {
		o.Slab.FlushLevel = slab.NoFlushLevel // a burst of errors would be a burst of requests
	}
}

// Open starts a session. The first request opens the connection.
func (x *Driver) Open(l deliver.Life) (deliver.Session, error) {
	send := x.send
	if x.c.DryRun != nil {
		send = x.sendDry
	}
	return deliver.SendFunc(x.Traits(), send).Open(l)
}

// Close releases the connections. The output calls it after the last session.
func (x *Driver) Close(ctx context.Context) error {
	x.reports.Wait(ctx)
	x.post.Close()
	return nil
}

// Stats are the counters of a [Driver] since New.
type Stats struct {
	Requests, Failed     uint64 // all requests; requests without an answer or with an error status
	BodyBytes, WireBytes uint64 // of requests, before and after compression
	LastError            string // of the last failed request; "": none
}

// Stats returns the counters. It does not block.
func (x *Driver) Stats() Stats {
	n := x.post.Counts()
	s := Stats{Requests: n.Requests, Failed: n.Failed, BodyBytes: n.BodyBytes, WireBytes: n.WireBytes}
	if p := x.lastErr.Load(); p != nil {
		s.LastError = *p
	}
	return s
}

// send sends b in one request.
func (x *Driver) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	if b.Codec == nil || !accepts(b.Codec.ContentType()) {
		return batch.Outcome{Refused: batch.All(), Refusal: malformedError(b.At(0).Data)}
	}
	var bad []int
	for i, r := range b.All() {
		if !isRecord(r.Data) {
			bad = append(bad, i)
		}
	}
	if bad != nil {
		if len(bad) == b.Len() {
			return batch.Outcome{Refused: batch.All(), Refusal: malformedError(b.At(bad[0]).Data)}
		}
		return batch.Outcome{Refused: batch.Of(bad...), Refusal: malformedError(b.At(bad[0]).Data), Open: others(bad, b.Len()), Why: errBeside}
	}
	x.body = b.AppendTo(x.appendRequest(x.body[:0], b.Bytes()))
	o := x.judge(ctx, b)
	if err := o.Err(); err != nil {
		text := err.Error()
		x.lastErr.Store(&text)
	} else {
		x.control.Keep(time.Now(), func(dst []byte) []byte {
			rec := b.At(0).Data
			return append(x.appendRequest(dst, len(rec)), rec...)
		})
	}
	if cap(x.body) > 4*x.c.BatchBytes+keptBytes {
		x.body = nil // an unusually large one
	}
	return o
}

var errBeside = fmt.Errorf("otlp: another record of the request is not a LogRecord; this one is sent again without it")

// others returns the Set of the records, of n, that are not in bad.
func others(bad []int, n int) batch.Set {
	var rest []int
	for i := range n {
		if _, is := slices.BinarySearch(bad, i); !is {
			rest = append(rest, i)
		}
	}
	return batch.Of(rest...)
}

// malformedError is the error of a record that this package did not encode.
func malformedError(rec []byte) error {
	return fmt.Errorf("otlp: cannot send record %.40q: it is not a LogRecord; use the encoder of its destination", rec)
}

// sendDry writes b to Config.DryRun.
func (x *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
	out := fmt.Appendf(nil, "POST %s: %s, %d bytes\n", httpsend.Shown(x.c.endpoint), plural.Of(b.Len(), "record"), b.Bytes())
	for _, r := range b.All() {
		out = append(codec{x.enc}.AppendJSON(append(out, "  "...), r.Data, r.Meta), '\n')
	}
	if _, err := x.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("otlp: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{}
}
