// Package jetstream sends records to JetStream, the streams of a NATS server.
//
//	log, err := forebay.New(jetstream.To("nats://localhost:4222", jetstream.Subject("logs.{app}")))
//
// Each record is one message on the subject that [Config.Subject] makes of it. The stream
// that takes the subject has to exist. A record is delivered once the server has
// acknowledged that the stream holds it. Several batches are under way at once.
//
// # Once
//
// Each message has its record's name ([dedup.ID]) as Nats-Msg-Id. A record that is sent
// again, because the answer was lost with a connection, a server or the process, is dropped
// by the server if it comes within the duplicate window of the stream: two minutes, unless
// the stream says otherwise. The window begins when a message is stored, and what may come
// twice are the up to 4,000 messages that were under way when the outage began. So a window
// that is longer than the longest outage, and a minute for what is sent again, leaves no
// duplicates: 61m for an hour. The server keeps the name of each message of the window, about
// 100 bytes: 36 MB for an hour of 100 messages a second. A record that waited in a spool for
// longer than the window and comes twice is found by a consumer with [dedup.Window].
//
// # Memory
//
// Beside the memory of the output, a session holds what nats.go writes at once, 32 KiB, and
// answers that it has read. Reconnecting is off, so nothing is buffered for later.
//
// # Order
//
// Messages are sent in the order of acceptance, on one connection. A server that loses
// messages in the middle, as at a change of the leader of a replicated stream, gets them
// again behind later ones. [Config.Sole] closes that gap where nobody else writes to the
// stream: each message names the place that the one before it has, and the server refuses
// what would leave a gap. After a lost connection, messages that the stream has already are
// sent one by one until it takes a new one.
//
// [dedup.ID]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#ID
// [dedup.Window]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#Window
package jetstream
