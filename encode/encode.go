// Package encode turns records into wire-ready bytes, in the caller's goroutine
// and into the caller's buffer.
//
// [JSON], [Logfmt] and [Console] make an [Encoder]. A logger holds a [Scope] of it: the
// attributes and groups of With and WithGroup, encoded once. [CodecFor] finds the codec
// of records that another program has encoded.
package encode

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/values"
)

// A Record is one log event on its way into an encoder.
//
// A Record is meant to be pooled: keep it between calls and overwrite its exported
// fields. It caches the text of the last second, and room for the attributes of
// AttrAppenders. Never use one Record from two goroutines at once.
type Record struct {
	Time    time.Time // zero: the record has no time
	Level   slog.Level
	Message string
	PC      uintptr     // of the log call, for encoders that add the source; 0: unknown
	Attrs   []slog.Attr // in call order; read during Append only, never kept

	// Cache holds what encoders keep from one use to the next. Callers leave it alone.
	Cache values.Cache
}

// An AttrAppender is a value that logs as a group of attributes.
//
// It is a [slog.LogValuer] that returns a group, without the allocations: dst has room
// to spare and is used again. AppendAttrs appends to dst and returns the result, and
// keeps neither. To log such a value without an allocation, hand in a pointer:
// slog.Any("user", &user). Slices of AttrAppenders, and pointers to them, are arrays in
// JSON. If a value is also a LogValuer, only LogValue is called.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// An Encoder makes the scopes of one route. It must be safe for concurrent use. If it
// also has a method Validate() error, forebay.NewRouter calls it and returns its error.
type Encoder interface {
	// Scope returns the scope without attributes or groups.
	Scope() Scope
	// Codec reads what the scopes write.
	Codec() batch.Codec
	// NeedsPC reports whether Append looks at Record.PC.
	NeedsPC() bool
}

// A Scope encodes records under the attributes and groups it was derived with.
// It is immutable and safe for concurrent use.
type Scope interface {
	// WithAttrs returns a scope that adds attrs, encoded now, to every record.
	// The scope may keep attrs. LogValuers are resolved now, as slog does.
	WithAttrs(attrs []slog.Attr) Scope

	// WithGroup returns a scope whose later attributes lie in group name. An
	// empty name returns the scope itself.
	WithGroup(name string) Scope

	// Append appends r, wire-ready, to dst. It keeps neither dst nor anything
	// of r. It never panics: a panicking LogValuer, a cyclic value or invalid
	// UTF-8 is written as a description of the fault. After an error the
	// content of dst beyond its original length is undefined, and the record is
	// dropped with [batch.Encode].
	Append(dst []byte, r *Record) ([]byte, batch.Meta, error)
}
