// Package listen contains code that all listeners share: the records, the sink that accepts them,
// and limits on the resources that clients can use. Its subpackages implement the protocols.
package listen

import (
	"context"
	"log/slog"
	"time"
)

// A Record is one record that a client has sent. The memory of its slices belongs to the listener
// and is valid until Put returns.
type Record struct {
	Source   string    // protocol: forward, loki or syslog
	Tag      string    // Forward: the tag; syslog: the name of the program
	Tenant   string    // Loki: X-Scope-OrgID
	Labels   []Label   // Loki: labels of the stream; syslog: facility, host and so on
	Metadata []Label   // Loki: structured metadata; syslog: structured data; Forward: metadata of Fluent Bit
	Time     time.Time // zero if the client sent no time
	Level    slog.Level
	HasLevel bool   // Level is valid
	Body     []byte // a JSON object on one line, or text
	JSON     bool   // Body is a JSON object
}

// A Label is a name and its value.
type Label struct{ Name, Value string }

// A Sink accepts the records of all listeners. It is safe for concurrent use.
//
// If a call returns an error, the listener ends the connection without an answer. Clients that wait
// for an answer send the records again. The sink itself reports its errors.
type Sink interface {
	// Put accepts a copy of r. It may block until there is room or ctx is done. While it blocks,
	// the listener does not read from the connection.
	Put(ctx context.Context, r *Record) error
	// Commit waits until every record that was passed to Put before the call is delivered or
	// stored. The listener then answers the client. Commit returns an error if ctx is done.
	Commit(ctx context.Context) error
}

// An Action is the reaction to a message. Tests use it to inject faults.
type Action uint8

const (
	Accept Action = iota
	Reject        // do not accept the message; Loki answers 429 or 500, the other protocols do not answer
	Reset         // do not accept the message, and reset the connection
)
