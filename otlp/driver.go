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

// A Driver sends records to an OTLP receiver. It is the [deliver.Destination] of one output and has
// the encoder for the records of that output. All methods are safe for concurrent use.
//
// A Driver has no state for a session: httpsend.Poster manages the connections, and each request is
// complete in itself.
type Driver struct {
	c   Config
	enc *encoder
	// lines is the scope that AppendLine uses. It writes no source positions.
	lines *scope
	// head is the encoded field "resource" of ResourceLogs.
	head []byte
	// scope is the encoded field "scope" of ScopeLogs, or empty without a scope.
	scope   []byte
	post    *httpsend.Poster
	reports callback.Reporter
	// prober decides whether a record or the receiver causes a refusal. Only the method send uses
	// it.
	prober httpsend.Prober

	// lastErr is the text of the last failed request, for Stats.LastError.
	lastErr atomic.Pointer[string]

	// body is the buffer of the request. The method send reuses it for each request.
	body []byte
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery; the function [To] of
// this package does both. The error lists every invalid field of c, or names a file of c that
// cannot be read. New does not connect.
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
	x.encodeHead()
	x.prober = httpsend.Prober{First: []byte{}, Message: answerText, Accepts: accepts}
	return x, nil
}

// encodeHead encodes the parts that are the same in every request: the resource and the scope. It
// is called once, by New.
func (x *Driver) encodeHead() {
	res := maps.Clone(x.c.Resource)
	if res == nil {
		res = map[string]string{}
	}
	// The specification of OpenTelemetry requires service.name in each resource.
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

// appendRequest appends the beginning of an ExportLogsServiceRequest. The caller appends n bytes of
// encoded records.
func (x *Driver) appendRequest(dst []byte, n int) []byte {
	logs := len(x.scope) + n
	dst = appendLen(dst, tagResource, len(x.head)+fieldLen(logs))
	dst = append(dst, x.head...)
	return append(appendLen(dst, tagScopeLogs, logs), x.scope...)
}

// Encoder returns the encoder for records of the Driver. Records of other encoders are refused,
// because they are not LogRecords.
func (x *Driver) Encoder() encode.Encoder { return x.enc }

// codecFor returns the codec of records with the given content type, or nil for a content type of
// another package. It is the default of OutputOptions.CodecFor. The second parameter, a schema
// version, is ignored.
func (x *Driver) codecFor(contentType string, _ uint32) batch.Codec {
	if isOwnType(contentType) {
		return codec{x.enc}
	}
	return nil
}

// isOwnType reports whether form is the content type of this package.
func isOwnType(form string) bool { return form == contentType }

// Traits returns the limits of a batch and the accepted content type. Traits.Window is not set, so
// that one request is in flight at a time, which keeps records in order.
func (x *Driver) Traits() deliver.Traits {
	return deliver.Traits{Limits: batch.Limits{Bytes: x.c.BatchBytes, Records: x.c.BatchRecords, Age: x.c.BatchAge}, Accepts: isOwnType, Defaults: x.defaults}
}

// defaults sets the options of memory and delivery that the user has not set. It also passes events
// of the Driver to OnError.
func (x *Driver) defaults(o *deliver.OutputOptions) {
	defaultTo(&o.Name, "otlp")
	x.reports.SetOutput(o.Name, o.OnError)
	if o.Codec == nil {
		o.Codec = codec{x.enc}
	}
	if o.CodecFor == nil {
		o.CodecFor = x.codecFor
	}
	if o.BufferBytes == 0 && o.Slab.SlabCount == 0 {
		o.BufferBytes = max(4<<20, 4*x.c.BatchBytes)
	}
	defaultTo(&o.Slab.SlabBytes, 256<<10)
	if o.Slab.FlushLevel == nil {
		// With the default FlushLevel, each record of level ERROR would cause a request.
		o.Slab.FlushLevel = slab.NoFlushLevel
	}
}

// Open begins a session. It does not connect: the first request opens the connection.
func (x *Driver) Open(l deliver.Life) (deliver.Session, error) {
	send := x.send
	if x.c.DryRun != nil {
		send = x.sendDry
	}
	s, err := deliver.SendFunc(x.Traits(), send).Open(l)
	return session{s, x}, err
}

// A session is a session of a Driver.
type session struct {
	deliver.Session
	x *Driver
}

// Close ends the session, waits until its events are reported, and closes idle connections.
func (s session) Close() {
	s.Session.Close()
	s.x.reports.Wait(context.Background())
	s.x.post.Close()
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
	// LastError is the error of the last failed request, without credentials. It is empty if no
	// request has failed.
	LastError string
}

// Stats returns the current counters. It does not block. If a request is in flight, some counters
// may already include it and others may not.
func (x *Driver) Stats() Stats {
	n := x.post.Counts()
	s := Stats{Requests: n.Requests, Failed: n.Failed, BodyBytes: n.BodyBytes, WireBytes: n.WireBytes}
	if p := x.lastErr.Load(); p != nil {
		s.LastError = *p
	}
	return s
}

// send sends b in one request and returns the outcome. Only one goroutine at a time calls send.
// Records that this package did not encode are refused before the request, because they would make
// the whole request invalid.
func (x *Driver) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	if b.Codec == nil || !isOwnType(b.Codec.ContentType()) {
		return batch.Outcome{Refused: batch.All(), Refusal: malformedError(b.At(0).Data)}
	}
	// isRecord reads a few bytes of each record. Records from the encoder always pass this check.
	// Records from a spool or a crash-safe file may be damaged.
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
		return batch.Outcome{Refused: batch.Of(bad...), Refusal: malformedError(b.At(bad[0]).Data), Open: others(bad, b.Len()), Why: errOtherRefused}
	}
	x.body = b.AppendTo(x.appendRequest(x.body[:0], b.Bytes()))
	o := x.exchange(ctx, b)
	// If the request succeeded, the prober keeps its first record as the reference record. The
	// prober sends this record again to test whether the receiver accepts any record.
	if err := o.Err(); err != nil {
		text := err.Error()
		x.lastErr.Store(&text)
	} else {
		x.prober.Keep(time.Now(), func(dst []byte) []byte {
			rec := b.At(0).Data
			return append(x.appendRequest(dst, len(rec)), rec...)
		})
	}
	if cap(x.body) > 4*x.c.BatchBytes+keptBytes {
		x.body = nil // the memory of an unusually large request is not reused
	}
	return o
}

// errOtherRefused is the reason why records of a batch are sent again when other records of the
// batch are refused.
var errOtherRefused = fmt.Errorf("otlp: another record of the request is not a LogRecord; this one is sent again without it")

// others returns the indexes below n that are not in bad. bad must be sorted.
func others(bad []int, n int) batch.Set {
	var rest []int
	for i := range n {
		if _, is := slices.BinarySearch(bad, i); !is {
			rest = append(rest, i)
		}
	}
	return batch.Of(rest...)
}

// malformedError returns the error for rec, a record that this package did not encode.
func malformedError(rec []byte) error {
	return fmt.Errorf("otlp: cannot send record %.40q: it is not a LogRecord; use the encoder of its destination", rec)
}

// sendDry writes b to Config.DryRun: a line for the request, followed by the records as JSON. If
// the write fails, the outlet drops the records.
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
