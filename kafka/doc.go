// Package kafka sends records to Apache Kafka, and to what speaks its protocol.
//
//	log, err := forebay.New(kafka.To("kafka://b1:9092,b2:9092/logs.{app}?key={user}"))
//
// A [Destination] is the driver of an outlet: see [deliver.NewOutput]. Records go as the
// caller encoded them: the value of a Kafka record is the line without its newline, and
// its timestamp the record's time. Binary forms become JSON. Headers:
//
//	forebay-id   the name of the record: see package dedup
//	level        trace, debug, info, warn, error or fatal
//	trace-id     the field [Config.TraceField] of the record, where it has one
//
// # Order
//
// Records of one key, or without a key those of one origin (a process, an output of it),
// go into one partition of their topic, in the order of the calls. One request per
// partition is under way at a time. What is not stored holds up what is behind it.
//
// # Once
//
// A session is an idempotent producer with acks=all: a request whose answer was lost is
// sent again under its sequence number, and the broker stores it once. When that does not
// succeed within [Config.Timeout], the session ends and the outlet takes over: circuit
// breaker, handler, spool. The next session is another producer, so up to one window of
// records may come twice; a consumer drops them by forebay-id with a dedup.Window.
//
// # Refusals
//
// A record that the broker refuses by name is a dead letter once the others of its batch are
// stored. A batch that is too large, or refused without names, is cut until one record is
// refused alone. That one is a dead letter if the partition still takes a copy of a record
// that it took before, each time, eight times over; for one that is too large once is enough.
// These copies are stored, and a consumer drops them by forebay-id. A broker that refuses the
// copy as well is sick, or its topic is configured so: everything is held, and no record is
// condemned. Where the partition has taken nothing yet, records behind the refused one go
// first; should the broker be sick and recover, these are out of order.
//
// Refused credentials, missing rights, unknown topics and the clock of a host that is ahead
// hold everything and raise an alarm: only a change of configuration will help. While one
// topic is held, so are the others of the same output.
//
// # Memory
//
// Beside the memory of the output, a session holds the batches under way once more, as
// they go over the wire, compressed: at most Window times BatchBytes, one batch before
// it is compressed, and what the client has in its connections, one request per broker.
// Copies of records for comparison take up to 256 KiB.
package kafka
