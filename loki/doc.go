// Package loki sends records to Grafana Loki and accounts for every record that it
// cannot deliver.
//
//	log, err := forebay.New(loki.To("http://localhost:3100", loki.Label("app", "shop")))
//	…
//	defer log.Close()
//	slog.SetDefault(log.Slog())
//
// The diagram shows the path of a record. Records wait in the memory marked ‖. While Loki is down,
// they can also go to an error handler or a spool:
//
//	slog ─▶ encoder ─▶ memory ‖ delivery ─▶ Driver ─▶ Loki
//	                              └▶ error handler, spool
//
// The encoder is a part of the [Driver]. In the calling goroutine, it encodes a record as the entry
// of a request. Later the Driver groups the entries of a batch by stream, pushes them and reads the
// response.
//
// # Lines
//
// A line is a JSON object: the message under the key "msg", then the attributes in their order.
// Values are written as in package encode: times as RFC 3339 with nanoseconds in UTC, durations as
// integer nanoseconds (see forebay.Durations), UUIDs in lower case with hyphens, NaN and the
// infinities as strings. Labels and metadata contain the same text. An error is written as its
// message. The keys of an object are unique. If an object has the key a three times, the keys are
// written as a, a_ and a__. The chain and the stack of an error are attributes with additional
// keys. If one of these keys exists already, "_" is added to the key of the error.
//
// With Config.Line.Errors "object" an error is an object,
//
//	{"Type":"*fs.PathError","Message":"…","Source":"dir/file.go:12",
//	 "StackTrace":"function /path/file.go:12\n…","Inner":{…}}
//
// in which Inner is the wrapped error or a list of the joined errors. With "exception"
// the keys are InnerException for a wrapped error and InnerExceptions for joined errors.
// Source is the first frame of the stack. Errors without a stack, see Errors of
// [encode.Options], have neither Source nor StackTrace. Errors nested deeper than 20, and
// those after the hundredth, are omitted and replaced by a note.
//
// Values in lists, maps and struct fields have the same form, except that only the message of an
// error is written. LogValue and AppendAttrs are also called for these values. Otherwise lists,
// maps and structs are written like encoding/json, struct tags included. Types with methods for
// JSON or text (json.Marshaler, encoding.TextMarshaler) marshal themselves.
//
// Each value is evaluated once, even if it is written both in the line and as a label or metadata.
// For each value and each error of a chain, LogValue, AppendAttrs, Error, Unwrap and the methods of
// stacks are called once per record. There is one exception: after the LogValuers and AttrAppenders
// of one record have created 1024 groups, the methods for later groups are called again for each
// place where such a group is written.
//
// # Refused records
//
// Records that exceed the limits of the [Config] are refused before they are sent. Records that
// Loki refuses are found in its response. [Stats] counts both kinds by reason, and refused records
// go to the dead letters, if configured. One refused entry does not affect the others. If Loki
// refuses a request and does not name the entry, the request is sent again in parts.
//
// In two cases, records are kept without delaying other records: if Loki refuses their tenant and
// accepts other tenants, and if Loki has no room for their stream, not even for a stream with the
// level as its only label.
//
// When a response names a limit, the client stays below it from then on. If it is the rate of a
// tenant or stream, the client uses up to nine tenths of the rate. A label with too many values
// becomes metadata before Loki has too many streams (Config.Limits.MaxLabelValues). Records that
// are too old can be sent with the current time (Config.Limits.TooOld).
//
// # Order
//
// The batches of a stream are sent in the order of the calls. Within a batch the records
// of a stream are sorted by time; records with the same time are in the order of the
// calls. There is no order between streams
// (docs/adr/0015-keep-order-within-a-tag-or-stream.md).
//
// Records of level ERROR wait for their batch like others, for at most BatchAge
// (docs/adr/0034-stay-within-the-limits-of-loki.md).
//
// # One request for several streams
//
// A request carries all streams of a batch for one tenant, up to MaxRequestBytes. The text
// of a refusal that names entries identifies their streams. After any other refusal
// each half of the streams is sent separately.
//
// Some entries are refused only by Loki's ingesters: if there are too many streams, if entries are
// too old, and if a stream exceeds its rate in bytes per second. Loki reports such a refusal only
// for the last stream of a request. Therefore a stream is sent in separate requests if it is likely
// to be refused: if it has records older than 15 minutes, exceeds 1 MiB/s, or has a limit that Loki
// reported. The other streams take turns as the last stream of a request. An unreported loss
// remains possible if other processes write to the same streams or create streams, or if limits are
// far below Loki's defaults. Loki reports such a stream after at most as many requests as there are
// streams.
//
// # Duplicates
//
// A push without a response is sent again, whether Loki has stored it or not. Loki discards an
// entry that has the same time, labels and line as an earlier one, but only while the earlier one
// is in the block that is being filled (about 256 KiB of a stream). After that block is full, a
// second copy is stored. So after a lost response, at most the records of one batch can be in Loki
// twice. For equal records that must all be kept, see [Config.UniqueTimes].
//
// An incomplete response counts as no response. A response with status 400 is read to its end,
// because it names the refused entries and all others are stored. If its text is unknown, it may
// come from another server or from a faulty Loki. The records of that request are then kept, and
// one of them is refused only while other records of the same stream are accepted.
//
// Protocol: https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs
// and pkg/push of Loki 3.7.
package loki
