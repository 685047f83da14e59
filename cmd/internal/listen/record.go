// Package listen contains the parts that listeners share: records, the sink that accepts them, and
// limits on the resources that clients can use. Its subpackages implement the protocols.
package listen

import (
	"context"
	"log/slog"
	"time"
)

// A Record is one record as a client sent it. Its memory belongs to the listener and is valid until
// Put returns.
type Record struct {
	Source   string    // forward, loki or syslog
	Tag      string    // Forward: the tag; syslog: the name of the program
	Tenant   string    // Loki: X-Scope-OrgID
	Labels   []Label   // Loki: labels of the stream; syslog: facility, host and so on
	Metadata []Label   // Loki: structured metadata; syslog: structured data; Forward: metadata of Fluent Bit
	Time     time.Time // zero if the client sent none
	Level    slog.Level
	HasLevel bool   // Level is valid
	Body     []byte // a JSON object on one line, or text
	JSON     bool   // Body is a JSON object
}

// A Label is a name and its value.
type Label struct{ Name, Value string }

// A Sink accepts the records of all listeners. Many goroutines call it.
//
// Put accepts a copy of r. It may wait for room; meanwhile the listener reads nothing from that
// connection. Commit returns nil when every record whose Put returned before the call is safe; only
// then
// does the listener answer its client. Both return when ctx is done. An error ends the connection
// without
// an answer, so clients that wait for an answer send again. The sink itself reports its errors.
type Sink interface {
	Put(ctx context.Context, r *Record) error
	Commit(ctx context.Context) error
}

// An Action decides what happens to a message. Tests use it to inject faults.
type Action uint8

const (
	Accept Action = iota
	Reject        // the message is rejected; Loki answers 429 or 500, the other protocols nothing
	Reset         // the message is rejected and the connection is reset
)
