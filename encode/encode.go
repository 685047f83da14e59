// Package encode turns records into wire-ready bytes, in the caller's goroutine
// and into the caller's buffer.
//
// An [Encoder] is what the user configures, made by [JSON], [Logfmt] or
// [Console]; its [Scope] is what a logger holds: the attributes and groups of
// With and WithGroup, encoded once. [CodecFor] finds who can read records that
// somebody else has encoded.
package encode

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/values"
)

// A Record is one log event on its way into an encoder.
//
// It is meant to be pooled: keep the Record between calls and overwrite its
// exported fields, and what it caches (the last second, formatted, and room for
// the attributes of AttrAppenders) is reused.
// Never use one Record from two goroutines at once.
type Record struct {
	Time    time.Time // zero: the record has no time
	Level   slog.Level
	Message string
	PC      uintptr     // of the log call, for encoders that add the source; 0: unknown
	Attrs   []slog.Attr // in call order; read during Append only, never kept

	// Cache is what encoders keep from one use to the next. It is none of a caller's
	// business.
	Cache values.Cache
}

// An AttrAppender is a value that logs as a group of attributes.
//
// It does what a [slog.LogValuer] that returns a group does, without the
// allocations: dst has room to spare and is used again. AppendAttrs appends to
// dst and returns the result, and keeps neither. To log such a value without an
// allocation, hand in a pointer: slog.Any("user", &user). Slices of
// AttrAppenders, and pointers to them, are written as arrays in JSON. A value
// that is a LogValuer as well is asked as that.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// An Encoder makes the scopes of one route. It must be safe for concurrent use.
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
	// of r. What a caller hands in (panicking LogValuers, cyclic values,
	// invalid UTF-8) never panics out of Append: it is rendered as a
	// description of the fault. On error dst's content beyond its original
	// length is undefined and the record is dropped with [batch.Encode].
	Append(dst []byte, r *Record) ([]byte, batch.Meta, error)
}
