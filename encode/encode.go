// Package encode converts records to bytes in their final format, in the goroutine and the
// buffer of the caller.
//
// [JSON], [Logfmt] and [Console] return an [Encoder]. A logger holds a [Scope] of the
// Encoder, which encodes the attributes of With and the groups of WithGroup once.
//
//	Encoder ─▶ Scope ─▶ WithAttrs, WithGroup ─▶ Scope ─▶ Append(dst, record) ─▶ bytes
//
// [CodecFor] returns the codec of records encoded by another program. To select an encoder for
// an output, use the option forebay.Encoder:
//
//	forebay.File("app.log", forebay.Encoder(encode.Logfmt(&encode.Options{AddSource: true})))
package encode

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/values"
)

// A Record is one log event that is passed to an encoder.
//
// A Record is meant to be pooled: keep it between calls and overwrite all exported fields except
// Cache. It caches the text of the current second and memory for the attributes of AttrAppenders.
// It must not be used by several goroutines concurrently.
type Record struct {
	Time    time.Time // zero: the record has no time
	Level   slog.Level
	Message string
	PC      uintptr     // of the log call, for encoders that add the source; 0: unknown
	Attrs   []slog.Attr // in call order; only read during Append, not retained

	// Cache holds data that encoders reuse. Callers must not change it.
	Cache values.Cache
}

// An AttrAppender is a value that logs as a group of attributes.
//
// It has the effect of a [slog.LogValuer] that returns a group, without the allocations: dst
// has spare capacity and is reused. AppendAttrs appends to dst, returns the result, and must
// retain neither. To log such a value without an allocation, pass a pointer:
// slog.Any("user", &user). Slices of AttrAppenders, and pointers to them, are arrays in JSON. If
// a value is also a LogValuer, only LogValue is called.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// An Encoder makes the scopes of one route: the outputs of a Router that share an encoder. It must
// be safe for concurrent use. If it also has a method Validate() error, forebay.NewRouter calls the
// method and returns its error. If it has a method Durations(form string) Encoder,
// forebay.Durations uses the result instead.
type Encoder interface {
	// Scope returns the scope without attributes or groups.
	Scope() Scope
	// Codec returns the codec that parses the records written by the scopes.
	Codec() batch.Codec
	// NeedsPC reports whether Append reads Record.PC.
	NeedsPC() bool
}

// A Scope encodes records with the attributes and groups from which it was derived. It is
// immutable and safe for concurrent use.
type Scope interface {
	// WithAttrs returns a scope that adds attrs to every record. It encodes the attributes
	// and resolves LogValuers immediately, like slog. The scope may retain attrs.
	WithAttrs(attrs []slog.Attr) Scope

	// WithGroup returns a scope that puts later attributes into the named group. If name
	// is empty, it returns the scope itself.
	WithGroup(name string) Scope

	// Append appends the encoded r to dst. It retains neither dst nor r. It does not panic:
	// a panicking LogValuer, a cyclic value or invalid UTF-8 is written as a description of
	// the fault. If Append returns an error, the content of dst beyond its original length
	// is undefined, and the record must be dropped with [batch.Encode].
	Append(dst []byte, r *Record) ([]byte, batch.Meta, error)
}
