// Package netsink sends records over a stream socket: as lines, or as syslog messages (RFC 5424)
// with octet counting (RFC 6587 §3.4.1).
//
//	tcp://host:port            lines over TCP
//	tls://host:port            lines over TLS
//	unix:PATH                  lines over a unix socket
//	syslog+tcp://host:port     syslog over TCP
//	syslog+tls://host:port     syslog over TLS (RFC 5425)
//	syslog+unix:PATH           syslog over a unix socket
//
// [To] is an output of forebay.New:
//
//	log, err := forebay.New(netsink.To("syslog+tcp://localhost:514?app=shop"))
//
// A [Driver] is the driver for [deliver.NewOutput]. A session is one connection:
//
//	batch ─▶ frames ─▶ kernel ─▶ network ─▶ peer
//	                     └─▶ record settled
//
// These protocols have no acknowledgements, so a record is settled once the kernel has accepted all
// of it. If the peer crashes, bytes that its kernel had not passed on are lost without notice. A
// protocol with acknowledgements, such as Forward, does not have this gap. No other records are
// lost: the first record that was not written completely is sent over the next connection, with all
// records after it. It is sent from its beginning, so the data of the old connection may end in a
// part of it, without a newline or with fewer bytes than its octet count.
//
// One goroutine per connection reads and discards the data that the peer sends. It detects the end
// of the connection at once, even between batches. A peer that closes only its sending side counts
// as disconnected. The goroutine ends with the connection.
//
// # Syslog
//
// A message has the format of RFC 5424 §6:
//
//	<PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID - MSG
//
// PRI is computed from the facility and the severity of the record's level: debug for levels below
// Info, informational below Info+2, notice below Warn, warning below Error, error below Error+4,
// and critical otherwise. TIMESTAMP is the record's time in UTC with microseconds, the maximum
// resolution of the RFC, or "-" if the time is unknown. MSG is the record without the newline at
// its end; records in a binary form are converted to JSON ([batch.Codec]). Newlines within a record
// are kept, because the octet count determines its end. [Config] contains the other header fields.
package netsink
