// Package loki sends records to Grafana Loki, and loses none without saying so.
//
//	h, err := loki.NewHandler(loki.Config{
//		URL:    "http://localhost:3100",
//		Labels: map[string]string{"app": "shop"},
//	})
//	…
//	defer h.Close(ctx)
//	slog.SetDefault(slog.New(h))
//
// # Parts
//
//	Pusher   renders a record, in the caller, as the entry that the request will have;
//	         gathers the entries of a batch by stream, pushes them, reads the answer
//	Sink     a Pusher behind memory and delivery (deliver.Output)
//	Handler  a Sink behind a forebay.Router
//
// A record's way, with the room where records wait (‖) and what is asked when Loki
// is down:
//
//	slog ─▶ encoder ─▶ slab.Writer ‖ outlet ─▶ Pusher ─▶ Loki
//	                                  └▶ ErrorHandler, SpoolDir
//
// # Lines
//
// A line is a JSON object: the message under "msg", then the attributes in their order.
// Values are those of package encode: times as RFC 3339 with nanoseconds in UTC, durations
// as text, UUIDs in lower case with hyphens, NaN and the infinities as strings; in
// labels and metadata they have the same text. An error is its message. No key stands
// twice in an object: a later one gets a "_" for each before it. An error whose chain and
// stack stand beside it gets one also if there is a key that these would have.
//
// With Config.Errors "object" an error is an object,
//
//	{"Type":"*fs.PathError","Message":"…","Source":"dir/file.go:12",
//	 "StackTrace":"function /path/file.go:12\n…","Inner":{…}}
//
// in which Inner is the error that it wraps, or a list of the errors it joins. With
// "exception" the former is InnerException, the latter InnerExceptions. Source is
// the first frame of the stack. Errors without a stack, see Errors of [encode.Options], have
// neither Source nor StackTrace. Errors nested deeper than 20, and those beyond the
// hundredth, are left out, and a note says so.
//
// Values in lists, maps and the fields of structs have the same form, except that an
// error is its message. LogValue and AppendAttrs are called for them, too. Otherwise lists,
// maps and structs are written as encoding/json does, tags included. Types with methods for
// JSON or text (json.Marshaler, encoding.TextMarshaler) write themselves.
//
// Each value is asked once for what it is, although it stands in the line and beside
// it: LogValue, AppendAttrs, Error, Unwrap and the methods of stacks are called once
// for a record, of each error of a chain. Beyond 1024 groups that LogValuers and
// AttrAppenders of one record make they are asked again where they are written.
//
// # What Loki refuses
//
// The limits of the [Config] are checked before sending; what Loki itself refuses
// is read from its answer. Both are counted by reason in [Stats], and refused
// records go to the dead letters, if there are some. One refused entry costs no other
// one its place. Where Loki refuses a request and does not say which entry it means,
// the request is sent again in pieces.
//
// Records wait without holding up others if Loki has no room for their stream, nor for
// the stream of their level, or if Loki refuses their tenant while it takes others.
//
// Limits that an answer tells are kept from then on. A tenant's rate, or that of a stream,
// is used up to nine tenths. A label with too many values becomes metadata before Loki has
// too many streams (Config.MaxLabelValues). Records that are too old can be sent with the
// present time (Config.TooOld).
//
// # Order
//
// The batches of a stream go out in the order of the calls. Within a batch the
// records of a stream are sorted by their time, those of one time are in the order
// of the calls. Between streams there is no order
// (docs/adr/0015-keep-order-within-a-tag-or-stream.md).
//
// Records of level ERROR wait for their batch like others, for at most BatchAge
// (docs/adr/0034-stay-within-the-limits-of-loki.md).
//
// # One request for several streams
//
// A request carries all streams of a batch, up to MaxRequestBytes, for one tenant. A refusal
// that names entries is attributed to their streams by its text. After any other refusal each
// half of the streams is sent by itself.
//
// Loki reports only the last stream of a request where an ingester refuses entries: because
// there are too many streams, because entries are too far behind, or because a stream takes
// too many bytes a second. A stream for which that is likely therefore has its own requests:
// with records older than 15 minutes, above 1 MiB/s, or if Loki has reported a limit for it.
// The other streams take turns at the end, where a refusal is visible. An unreported loss
// remains possible if other processes write to the same streams or create streams, or if limits
// are far below Loki's defaults. Loki reports such a stream after at most as many requests as
// there are streams.
//
// # What arrives twice
//
// A push that was not answered is sent again, whether Loki has stored it or not. Of two
// entries with the same time, labels and line Loki keeps one, but only while the first is
// in the block that it fills at present (about 256 KiB of a stream). Until that block is
// full a second copy leaves no trace; then it stays. So after a lost answer at most the
// records of one batch can be in Loki twice. See [Config.Nudge] for records that are alike
// and meant to be two.
//
// An answer that breaks off is no answer. A 400 is read to its end, because it names the
// entries that were refused, and all others are stored. In words that Loki is not known to say
// it may be of another server, or of one that is ill: its records stay, and one of them is refused
// only while others of its stream are taken.
//
// Protocol: https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs
// and pkg/push of Loki 3.7.
package loki
