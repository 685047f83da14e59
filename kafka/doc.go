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
// not succeed within [Config.Timeout], the session ends, and the output uses its circuit breaker,
// error handler and spool. The next session is another producer, so the records that were in flight
// may be stored twice. A consumer removes duplicates by forebay-id with a dedup.Window.
//
// # Rejected records
//
// If the broker names the rejected records of a batch, these become dead letters once the other
// records of the batch are stored. If the batch is too large, or the broker names no record, the
// batch is divided until a single record is rejected. To find out whether the record or the broker
// is at fault, the driver sends a copy of a record that the partition accepted before. The rejected
// record becomes a dead letter if the partition rejects it and accepts the copy eight times in a
// row. If the record is too large, one time is enough. The copies are stored, and a consumer
// removes them by forebay-id. If the broker also rejects the copy, the broker is faulty or its
// topic misconfigured. All records are then held, and none becomes a dead letter. If the partition
// has accepted no record yet, there is nothing to copy, and the records after the rejected one are
// sent first. If the rejected record is accepted later, it is stored after them.
//
// Some failures need a change by an operator: rejected credentials, missing permissions, unknown
// topics, and a host whose clock is ahead. After these, all records are held, and an alarm is
// raised. While one topic is held, the other topics of the output are held, too.
//
// # Memory
//
// In addition to the memory of the output, a session needs memory for:
//
//   - the batches in flight in their wire format, compressed: at most Window times BatchBytes
//   - one batch before compression
//   - the buffers of the connections: one request per broker
//   - copies of records that are sent for comparison: at most 256 KiB
package kafka
