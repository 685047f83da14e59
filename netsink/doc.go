// Package netsink sends records over a stream socket: as lines, or as syslog
// messages (RFC 5424) with octet counting (RFC 6587 §3.4.1).
//
//	tcp://host:port            lines over TCP
//	tls://host:port            lines over TLS
//	unix:PATH                  lines over a unix socket
//	syslog+tcp://host:port     syslog over TCP
//	syslog+tls://host:port     syslog over TLS (RFC 5425)
//	syslog+unix:PATH           syslog over a unix socket
//
// A [Destination] is the driver of an outlet: see [deliver.NewOutput]. A session is one
// connection. These protocols have no answers, so a record is settled once the kernel
// has taken all of it. If the peer dies, the bytes that its kernel had not passed on are
// lost unnoticed; a destination with acknowledgements, such as Forward, has no such gap.
// Nothing else is lost: the first record that was not written as a whole stays open, with
// all records after it, and they go over the next connection. A record is never continued
// on another connection. The peer may see its beginning at the end of the old one, without
// a newline, or with fewer bytes than its count says.
//
// One goroutine per connection reads and discards the bytes that the peer sends. So it
// notices the end of the peer at once, also between two batches. A peer that closes only
// its sending side counts as gone. The goroutine ends with the connection.
//
// # Syslog
//
// A message is that of RFC 5424 §6:
//
//	<PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID - MSG
//
// PRI is the facility and the severity of the record's level: below Info debug,
// below Info+2 informational, below Warn notice, below Error warning, below
// Error+4 error, else critical. TIMESTAMP is the record's time in UTC with
// microseconds, the finest that the RFC allows, or "-" if the time is unknown.
// MSG is the record, without the newline at its end; records in a binary form
// are written as JSON ([batch.Codec]). Newlines within a record stay: the count of
// octets says where it ends. [Options] has the other fields of the header.
package netsink
