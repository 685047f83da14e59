// Package listen has what listeners share: the records that they hand on, the sink that
// takes them, and bounds on what peers may cost. Its subpackages speak the protocols.
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
	HasLevel bool   // the protocol says the level
	Body     []byte // a JSON object on one line, or text
	JSON     bool   // Body is a JSON object
}

// A Label is a name and its value.
type Label struct{ Name, Value string }

// A Sink takes the records of all listeners, from many goroutines.
//
// Put takes a copy of r. It may wait for room: the listener reads no more from that
// connection then. Commit returns nil once every record whose Put returned before the call
// is where it is safe; only then does the listener answer its peer. Both give up when ctx
// is done. An error ends the connection without an answer, and peers that wait for one
// send again; the sink itself tells why, once.
type Sink interface {
	Put(ctx context.Context, r *Record) error
	Commit(ctx context.Context) error
}

// A Fate is what becomes of a message of a peer: tests want more than success.
type Fate uint8

const (
	Take   Fate = iota
	Reject      // it is not taken; Loki answers 429 or 500, others nothing
	Reset       // it is not taken, and the connection is reset
)
