// Package jetstream sends records to JetStream, the streams of a NATS server.
//
//	log, err := forebay.New(jetstream.To("nats://localhost:4222", jetstream.Subject("logs.{app}")))
//
// Each record is one message, with the subject computed from [Config.Subject]. A stream with that
// subject must exist. A record is delivered once the server has acknowledged that the stream stores
// it. Several batches are in flight at once.
//
//	batches ─▶ messages ─▶ connection ─▶ stream
//	   ▲                                   │
//	   └──────── acknowledgements ◀────────┘
//
// # Duplicates
//
// Each message has the name of its record ([dedup.ID]) as Nats-Msg-Id. If a record is sent again
// because the answer was lost with a connection, a server or the process, the server drops it if it
// arrives within the duplicate window of the stream, which is two minutes by default. The window
// starts when a message is stored. Only the up to 4,000 messages that were in flight at the
// beginning of an outage can be duplicates. A window that is longer than the longest outage plus a
// minute for retries therefore prevents duplicates: 61m for an hour. The server stores the name of
// each message in the window, about 100 bytes: 36 MB for an hour of 100 messages a second. If a
// record waited in a spool for longer than the window, a consumer detects the duplicate with
// [dedup.Window].
//
// # Memory
//
// In addition to the memory of the output, a session holds the write buffer of nats.go, 32 KiB, and
// answers that were read. Reconnecting is disabled, so no data is buffered for later.
//
// # Order
//
// Messages are sent in the order of acceptance, on one connection. If a server loses messages, for
// example when the leader of a replicated stream changes, they are sent again after later ones.
// [Config.Sole] prevents that if there is no other writer to the stream: each message contains the
// position of the previous one, and the server rejects a message that would leave a gap. After a lost
// connection, messages that the stream already has are sent one by one until it accepts a new one.
//
// [dedup.ID]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#ID
// [dedup.Window]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#Window
package jetstream
