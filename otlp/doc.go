// Package otlp sends records to an OpenTelemetry receiver, such as the Collector: OTLP logs over
// HTTP, encoded as protobuf (POST /v1/logs).
//
//	log, err := forebay.New(otlp.To("http://localhost:4318", otlp.Resource("service.name", "shop")))
//
// A record is encoded as a LogRecord once, in the calling goroutine. A request is assembled from
// encoded records without decoding them.
//
//		record ─▶ LogRecord ─▶ memory ─▶ batch ─▶ ExportLogsServiceRequest ─▶ receiver
//
//	  - The severity number is the level plus 9: slog.LevelInfo is 9, INFO. The severity text is the
//	    name of the level in slog. For slog.LevelDebug-4 it is TRACE, and for slog.LevelError+4 FATAL.
//	  - The body is the message.
//	  - Time and observed time are the time of the record. A record without a time has only an
//	    observed time, the current time. OTLP cannot represent a time before 1970 or after 2262. Such
//	    a time becomes the attribute original_time (RFC 3339), and the observed time is the current
//	    time.
//	  - Attributes keep their types. A group becomes a list of pairs, a duration its nanoseconds, a
//	    time its RFC 3339 text, an error its message, and a []byte a bytes value. Other values are
//	    converted from their JSON. An integer above the largest int64 becomes text.
//	  - Keys are unique, as OTLP requires. If a record has the key a three times, the keys are sent as
//	    a, a_ and a__.
//	  - Valid trace_id and span_id attributes become the trace and span ids of the record (see
//	    [Config]). If a record has several of them, later ones with other values remain attributes.
//
// Answers are handled as the protocol requires. After 429 and 5xx the request is retried,
// respecting Retry-After. After a 413, requests become smaller. After 401, 403 and 404 all records
// are held, and an alarm is raised. The same applies to a success status with a body that is not an
// ExportLogsServiceResponse. After 400, the driver tests whether the receiver accepts other
// records. If it does, the batch is searched for the invalid record. A partial_success contains
// only the number of rejected records. That many records of the batch count as dropped{poison},
// without a dead letter, and an event "partial-success" contains the message of the receiver. If
// all records are rejected, they become dead letters.
//
// Module otlpgrpc implements OTLP over gRPC.
//
// Retry, memory, spool, crash safety and the account are the same as for every output, see
// packages forebay and deliver.
//
// # Order and duplicates
//
// One request is in flight at a time, so that records arrive in the order of the calls. If a
// response is missing, the request is sent again, although the receiver may have accepted it. OTLP
// has no record ids, so the receiver cannot recognize the copies and stores the records of that
// batch twice.
//
// # Memory
//
// The encoder does not allocate, except in methods of the attribute values. A batch is copied once,
// into the body of the request. The next request reuses the memory of the body.
//
// # Sources
//
// OTLP specification 1.x (https://opentelemetry.io/docs/specs/otlp/), the logs data model
// (https://opentelemetry.io/docs/specs/otel/logs/data-model/), and the messages in
// opentelemetry/proto/logs/v1/logs.proto.
package otlp
