package batch

import "time"

// A Codec knows a wire form: it comes with the encoder that writes it and
// travels with every batch, so that a fallback, a dead-letter file or a spool
// reader can render records it did not encode. Its methods may be called from
// several goroutines at once.
type Codec interface {
	// ContentType names the wire form, such as "application/x-ndjson". Two
	// codecs with equal content types read each other's records. Sinks that
	// need a certain form refuse others when they are built.
	ContentType() string

	// AppendJSON appends rec as one JSON object, without a newline, to dst. rec
	// is one record as its encoder wrote it. Bytes that cannot be read in that
	// form are rendered as {"raw":"…"} and no error.
	AppendJSON(dst, rec []byte, m Meta) []byte

	// AppendMarker appends a record in this wire form which says that d were
	// dropped since the last marker. A form that has no room for such a record
	// returns dst as it is.
	AppendMarker(dst []byte, d Drops, now time.Time) []byte
}
