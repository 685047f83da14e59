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
// A [Destination] is the driver of an outlet: see [deliver.New]. A session is one
// connection. These protocols have no answers, so a record is settled once the kernel
// has taken all of it. What the peer's kernel had not passed on when the peer died is
// lost unnoticed; a destination with acknowledgements, such as Forward, has no such
// gap. Nothing else is lost: the records from the first one not wholly written on stay
// open, and go over the next connection. A record is never continued on another
// connection; the peer may see the beginning of it at the end of the old one, without a
// newline, or with fewer bytes than its count says.
//
// One goroutine per connection reads what the peer sends, throws it away, and so
// notices the peer's end at once, also between two batches. A peer that closes only
// its sending side counts as gone too. It ends with the connection.
package netsink
