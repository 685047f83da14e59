// Package kafka sends records to Apache Kafka and servers with the same protocol.
//
//	log, err := forebay.New(kafka.To("kafka://b1:9092,b2:9092/logs.{app}?key={user}"))
//
// A [Driver] is the driver for [deliver.NewOutput]. Records are sent in their encoded form: the
// value of a Kafka record is the line without its newline, and its timestamp is the time of the
// record. Binary forms are converted to JSON. The headers are:
//
//	forebay-id   the name of the record, see package dedup
//	level        trace, debug, info, warn, error or fatal
//	trace-id     the field [Config.TraceField] of the record, if present
//
// A session is one producer:
//
//	batch ─▶ partition queues ─▶ one request per partition in flight ─▶ broker
//	                                          ▲                           │
//	                                          └── same sequence number ◀──┴──▶ settled
//
// # Order
//
// Records with the same key go to one partition of their topic, in the order of the calls. So do
// records without a key that have the same origin (an output of a process). One request per
// partition is in flight at a time. A record that is not stored blocks the ones after it.
//
// # Duplicates
//
// A session is an idempotent producer with acks=all: if the answer to a request is lost, the
// request is sent again with the same sequence number, and the broker stores it once. If that does
// not succeed within [Config.Timeout], the session ends and the output continues: circuit breaker,
// handler, spool. The next session is another producer, so up to one window of records may be
// stored twice. A consumer removes duplicates by forebay-id with a dedup.Window.
//
// # Rejected records
//
// If the broker rejects a record by name, the record is a dead letter once the others of its batch
// are stored. A batch that is too large, or rejected without names, is divided until a single
// record is rejected. That record becomes a dead letter if eight times in a row the partition
// rejects it and accepts a copy of a record that it accepted before; if the record is too large,
// one time is enough. These copies are stored, and a consumer removes them by forebay-id. If the
// broker also rejects the copy, the broker is faulty or its topic misconfigured: all records are
// held, and none becomes a dead letter. If the partition has not accepted any record yet, records
// after the rejected one are sent first; if the broker was faulty and recovers, these are out of
// order.
//
// Some failures need a change by an operator: rejected credentials, missing permissions, unknown
// topics, and a host whose clock is ahead. After these, all records are held, and an alarm is
// raised. While one topic is held, the other topics of the output are held, too.
//
// # Memory
//
// In addition to the memory of the output, a session holds a second copy of the batches in flight in
// their wire format, compressed: at most Window times BatchBytes, one batch before compression, and
// the buffers of the client's connections, one request per broker. Copies of records for comparison
// use up to 256 KiB.
package kafka
