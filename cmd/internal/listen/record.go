// Package listen has the parts that listeners share: records, the sink that accepts them, and
// limits on the resources that peers can use. Its subpackages implement the protocols.
package listen

import (
	"context"
	"log/slog"
	"time"
)

// A Record is one record as a peer sent it. Everything in it belongs to the listener and
// is valid until Put returns.
type Record struct {
	Source   string    // the listener: forward, loki or syslog
	Tag      string    // Forward: the tag; syslog: the name of the program
	Tenant   string    // Loki: X-Scope-OrgID
	Labels   []Label   // Loki: labels of the stream; syslog: facility, host and so on
	Metadata []Label   // Loki: structured metadata; syslog: structured data; Forward: metadata of Fluent Bit
	Time     time.Time // zero: the peer sent none
	Level    slog.Level
	HasLevel bool   // the protocol has set the level
	Body     []byte // a JSON object on one line, or text
	JSON     bool   // Body is a JSON object
}

// A Label is a name and its value.
type Label struct{ Name, Value string }

// A Sink accepts the records of all listeners, from many goroutines.
//
// Put accepts a copy of r. It may wait for room: the listener then reads no more from that
// connection. Commit returns nil once every record whose Put returned before the call is safe; only
// then does the listener answer its peer. Both return when ctx is done. An error ends the
// connection without an answer, and peers that wait for an answer send again. The sink reports its
// error, once.
type Sink interface {
	Put(ctx context.Context, r *Record) error
	Commit(ctx context.Context) error
}

// A Fate is what becomes of a message of a peer: tests want more than success.
type Action uint8

const (
	Take   Action = iota
	Reject        // it is not taken; Loki answers 429 or 500, others nothing
	Reset         // it is not taken, and the connection is reset
)
