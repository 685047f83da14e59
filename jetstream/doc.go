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
// Each message has the name of its record ([dedup.ID]) as Nats-Msg-Id. A record is sent again if
// its answer was lost, because a connection, a server or the process ended. The server drops the
// copy if it arrives within the duplicate window of the stream, two minutes by default. The window
// starts when a message is stored.
//
// At most the 4,000 messages that were in flight at the beginning of an outage are sent twice. A
// window that is longer than the longest outage plus a minute for retries therefore prevents
// duplicates: 61 minutes for an outage of one hour. The server stores about 100 bytes for each
// message in the window: 36 MB for one hour with 100 messages per second. If a record waited in a
// spool for longer than the window, a consumer detects the duplicate with [dedup.Window].
//
// # Memory
//
// In addition to the memory of the output, a session needs the write buffer of nats.go, 32 KiB, and
// memory for answers that nats.go has read and not yet passed on. Reconnecting is disabled, so
// nats.go buffers no messages during an outage.
//
// # Order
//
// Messages are sent in the order of acceptance, on one connection. If a server loses messages, for
// example when the leader of a replicated stream changes, they are sent again after later ones.
// [Config.Sole] prevents that if there is no other writer to the stream: each message contains the
// position of the previous one, and the server rejects a message that would leave a gap. After a lost
// connection, messages are sent one by one until the stream stores a message that it does not have
// yet.
//
// [dedup.ID]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#ID
// [dedup.Window]: https://pkg.go.dev/github.com/forebay-log/forebay/dedup#Window
package jetstream
