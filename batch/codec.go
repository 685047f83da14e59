package batch

import "time"

// A Codec describes a wire form. The encoder that writes the form provides the Codec, and every
// batch refers to it, so that a fallback, a dead-letter file or a spool reader can convert records
// it did not encode. Its methods must be safe for concurrent use.
//
// A Codec whose wire form has several versions has the method SchemaVersion() uint32. Stored batches
// contain the version; without the method it is 0.
type Codec interface {
	// ContentType returns the name of the wire form, such as "application/x-ndjson". Codecs
	// with equal content types can read each other's records. A destination that requires a
	// certain form returns an error for others when it is created.
	ContentType() string

	// AppendJSON appends rec, one record in this wire form, as one JSON object without a
	// newline to dst. Bytes that cannot be parsed are written as {"raw":"…"}, without an
	// error. AppendJSON retains neither slice.
	AppendJSON(dst, rec []byte, m Meta) []byte

	// AppendMarker appends a record in this wire form that reports the drops d since the
	// last marker. If the form has no such record, it returns dst unchanged.
	AppendMarker(dst []byte, d Drops, now time.Time) []byte
}
