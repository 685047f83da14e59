// Package otlp sends records to an OpenTelemetry receiver, such as the Collector: the logs
// of OTLP over HTTP, as protobuf (POST /v1/logs).
//
//	log, err := forebay.New(otlp.To("http://localhost:4318", otlp.Resource("service.name", "shop")))
//
// A record becomes a LogRecord in the caller, once; a request is made of records without
// another look at them.
//
//   - The severity is the level and 9: slog.LevelInfo is 9, INFO. Its text is that of slog,
//     and TRACE and FATAL for slog.LevelDebug-4 and slog.LevelError+4.
//   - The body is the message. Both times are that of the record; one without a time has
//     the observed one alone. A time before 1970 or after 2262, which OTLP does not have, is
//     the attribute original_time (RFC 3339), and the record is observed now.
//   - Attributes keep their kinds. Groups are lists of pairs, durations nanoseconds, times
//     text (RFC 3339), errors their message, []byte bytes, and other values what JSON has
//     for them. Numbers above the largest int64 are text.
//   - Keys are unique, as OTLP demands: a later one gets a "_" for each before it (a, a_, a__).
//   - trace_id and span_id, if they are ids, become the trace and the span of the record (see
//     [Config]). Later ones that differ stay attributes.
//
// Answers are treated as the protocol demands: 429 and 5xx are tried again after Retry-After, 413
// makes requests smaller, 401, 403 and 404 hold everything with an alarm, and so does a success
// whose body is not an ExportLogsServiceResponse. A 400 is searched for the record at fault, as
// soon as it is known that others are taken. Of partial_success only the number of refused
// records is known: so many of the batch count as dropped for poison, without a dead letter, and
// an event (partial-success) has the receiver's words. If all are refused they are dead letters.
//
// Over gRPC: module otlpgrpc.
//
// Retry, memory, spool, crash safety and the account are those of every output, see packages
// forebay and deliver.
package otlp
