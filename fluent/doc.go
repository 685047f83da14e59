// Package fluent sends events to Fluentd, Fluent Bit, OpenTelemetry's
// fluentforwardreceiver and whatever else speaks the Forward protocol.
//
//   - [Logger] is a client of its own: Post a value under a tag.
//   - [Sink] is an output of a forebay.Router, whose records [Sink.Encoder] makes
//     into events.
//   - [Client] is the bare destination behind both, for a pipeline put together by
//     hand: a deliver.Output in front of a Client.
//
// # The wire
//
// The protocol is that of
// https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1, of
// which only what all the servers above take is spoken: PackedForward messages,
// on request compressed with gzip, with an option map; entries of an EventTime
// and a map; no extension type but EventTime, no empty messages. The tag of a
// record is its stream ([batch.Meta]).
//
// Acknowledgements are on by default. A chunk keeps its id when it is sent again,
// within one process. No receiver removes duplicates: delivery is at least once.
//
// A message has one tag. Records of one tag arrive in the order of the calls;
// between tags there is no order: a batch is sent tag by tag
// (docs/adr/0015-keep-order-within-a-tag-or-stream.md).
package fluent
