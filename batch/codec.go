package batch

import "time"

// A Codec describes the wire format of records. The encoder that writes the format provides the
// Codec, and every batch refers to it. Therefore a fallback, a dead-letter file or a spool reader
// can convert records that it did not encode. The methods of a Codec must be safe for concurrent
// use.
//
// A Codec whose wire format has several versions has the method SchemaVersion() uint32. Stored
// batches contain the version; without the method it is 0.
type Codec interface {
	// ContentType returns the name of the wire format, such as "application/x-ndjson". Codecs with
	// equal content types can read each other's records. A destination that requires one format
	// rejects other formats when it is created.
	ContentType() string

	// AppendJSON appends rec, one record in this wire format, to dst as one JSON object without a
	// newline. It appends a record that it cannot parse as {"raw":"…"}. It retains neither slice.
	AppendJSON(dst, rec []byte, m Meta) []byte

	// AppendMarker appends a gap marker: a record in this wire format that reports d, the drops
	// since the previous marker. If the format has no gap markers, it returns dst unchanged.
	AppendMarker(dst []byte, d Drops, now time.Time) []byte
}
