// Package fluent sends events to Fluentd, Fluent Bit, OpenTelemetry's fluentforwardreceiver and
// other servers with the Forward protocol.
//
//	log, err := forebay.New(fluent.To("localhost:24224", "shop.web"))
//
// [To] is an output of package forebay. A [Logger] posts values under a tag, without a Router:
//
//	Logger.Post ─────────────────┐
//	forebay.Logger ─▶ encoder ─▶ memory, delivery, spool ─▶ Driver ─▶ server
//
// # The protocol
//
// The protocol is https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1. The
// package uses only the parts that all servers above support:
//
//   - PackedForward messages with an option map, optionally compressed with gzip
//   - entries that consist of an EventTime and a map
//   - no extension type except EventTime
//   - no empty messages
//
// The tag of a record is its stream ([batch.Meta]).
//
// The keys of a record of the Encoder, of [AppendJSONEvent] or of [AppendAttrsEvent] are unique in
// each map: a later key that equals an earlier one is renamed (a, a_, a__). Fluentd would keep only
// the last value.
//
// Acknowledgements are enabled by default. A chunk that is sent again keeps its id within one
// process. Receivers do not remove duplicates: delivery is at least once.
//
// # Failures
//
// When a connection ends, package deliver sends its unacknowledged batches again, in order, over
// the next connection. If the server rejects this client because of its shared key, user or
// certificate, all records are kept, because only a change of the configuration helps. Records that
// cannot be sent, and records that package deliver gives up, become dead letters.
//
// A Driver uses one connection at a time: to the first reachable server of Config.Servers or, with
// Config.Weights, to each server for a share of the time. A server that fails is skipped for a time
// that grows with its failures. Config.Standby is used only while no other server is available.
//
// # Memory
//
// With compression, with TLS, and for batches of several tags, a session copies each batch before
// it writes it. It then needs Config.FrameBytes of memory, or more for a larger record, in addition
// to the memory of the output. The process keeps up to 65,536 tags until it ends.
//
// # Order
//
// A message has one tag. Records of one tag arrive in the order of the calls. Records of
// different tags are not ordered, because a batch is sent tag by tag
// (docs/adr/0015-keep-order-within-a-tag-or-stream.md).
package fluent
