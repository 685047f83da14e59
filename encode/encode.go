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

// A Record is one log event, the input of an encoder.
//
// A Record is meant to be pooled: keep it between calls and overwrite all exported fields except
// Cache. The Cache holds the text of the current second, and memory for the attributes of
// AttrAppenders. A Record must not be used by several goroutines concurrently.
type Record struct {
	Time    time.Time // zero: the record has no time
	Level   slog.Level
	Message string
	PC      uintptr     // program counter of the log call, for encoders that add the source; 0: unknown
	Attrs   []slog.Attr // in call order; only read during Append, not retained

	// Cache holds data that encoders reuse between calls. Callers must not change it.
	Cache values.Cache
}

// An AttrAppender is a value that logs as a group of attributes.
//
// It has the effect of a [slog.LogValuer] that returns a group, but does not allocate: dst has
// spare capacity and is reused. AppendAttrs appends the attributes to dst, returns the result, and
// must retain neither. To log such a value without an allocation, pass a pointer: slog.Any("user",
// &user). Slices of AttrAppenders, and pointers to them, are arrays in JSON. If a value is also a
// LogValuer, only LogValue is called.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// An Encoder makes the scopes of a route, which consists of the outputs of a Router that share the
// encoder. It must be safe for concurrent use. If it has a method Validate() error,
// forebay.NewRouter calls it and returns its error. If it has a method Durations(form string)
// Encoder, the option forebay.Durations replaces the Encoder with the result.
type Encoder interface {
	// Scope returns the scope without attributes or groups.
	Scope() Scope
	// Codec returns the codec that parses the records written by the scopes.
	Codec() batch.Codec
	// NeedsPC reports whether Append reads Record.PC.
	NeedsPC() bool
}

// A Scope encodes records with the attributes and groups that WithAttrs and WithGroup have added to
// it. It is immutable and safe for concurrent use.
type Scope interface {
	// WithAttrs returns a scope that adds attrs to every record. It encodes the attributes and
	// calls LogValue immediately, like slog. The scope may retain attrs.
	WithAttrs(attrs []slog.Attr) Scope

	// WithGroup returns a scope that puts later attributes into the named group. If name
	// is empty, it returns the scope itself.
	WithGroup(name string) Scope

	// Append appends the encoded record r to dst. It retains neither dst nor r. It does not panic:
	// a panicking LogValuer, a cyclic value or invalid UTF-8 is written as a description of the
	// fault. If Append returns an error, the content of dst beyond its original length is
	// undefined, and the record must be dropped with [batch.Encode].
	Append(dst []byte, r *Record) ([]byte, batch.Meta, error)
}
